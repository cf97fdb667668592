"""`aenv image`: the images of this machine, in which instances of the native engine can live. No server is needed.

Not here: building images with Docker or podman (`image.py`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import settings
from .. import output
from ..formats import PUBLISHED, formats
from ..groups import Group

if TYPE_CHECKING:
    from ...isolation.rootfs.images import Images

_HOME = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)


@click.group("image", cls=Group)
def command() -> None:
    """Bring container images to this machine, list and remove them: environments that name one live in it."""


@command.command("load")
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--name", default="", metavar="REF", help="What to call it.  [default: what it calls itself]")
@_HOME
def load(file: Path, name: str, home: Path | None) -> None:
    """Unpack an image that 'docker save', 'podman save' or skopeo wrote: an archive, or an OCI layout's folder."""
    images = _images(home)
    before = images.names()
    image = asyncio.run(images.load(file, name))
    new = [known for known, digest in images.names().items() if digest == image.digest]
    if not new:
        output.talk("it has no name, and no environment can ask for it; give it one with --name")
    elif any(before.get(known) not in (None, image.digest) for known in new):
        output.talk("an older image of that name is no longer called so")
    output.data(", ".join(new) or f"sha256:{image.digest}")


@command.command("list")
@_HOME
@formats(*PUBLISHED)
def list_images(home: Path | None, as_json: bool) -> None:
    """Print the images of this machine."""
    names = sorted(_images(home).names().items())
    if as_json:
        output.json([{"name": name, "digest": f"sha256:{digest}"} for name, digest in names])
    else:
        output.table(("Name", "Digest"), [(name, digest[:12]) for name, digest in names])


@command.command("remove")
@click.argument("ref")
@_HOME
def remove(ref: str, home: Path | None) -> None:
    """Forget the name of an image, and remove the image when it has no other."""
    asyncio.run(_images(home).remove(ref))


@command.command("pull")
@click.argument("ref")
@click.option(
    "--with",
    "program",
    type=click.Choice(["skopeo", "podman"]),
    help="The program that fetches it.  [default: the first that is installed]",
)
@_HOME
def pull(ref: str, program: str | None, home: Path | None) -> None:
    """Fetch an image from a registry, with skopeo or podman, and unpack it."""
    import shutil

    found = program or next(filter(shutil.which, ("skopeo", "podman")), None)
    if found is None:
        raise output.Failure(
            f"cannot fetch {ref!r}: neither skopeo nor podman is installed",
            hint=f"save it elsewhere with 'docker save', then: aenv image load FILE --name {ref}",
        )
    image = asyncio.run(_images(home, found).pull(ref, output.talk))
    output.data(f"sha256:{image.digest}")


def _images(home: Path | None, program: str = "") -> Images:
    from ...isolation.rootfs.images import Images

    return Images(home or settings.home(), pull=program)  # type: ignore[arg-type]  # one of the choices above
