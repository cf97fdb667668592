"""`aenv image`: the images of this machine, in which instances of the native engine can live. No server is needed.

Not here: building images with Docker or podman (`cli/image_builder.py`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import settings
from .. import output, parameters
from ..help_pages import CommandGroup
from ..output_formats import PUBLISHED, formats

if TYPE_CHECKING:
    from ...isolation.rootfs.images import Images


@click.group("image", cls=CommandGroup, examples=("aenv image load debian.tar", "aenv image list"))
def command() -> None:
    """Manage the container images on this machine.

    An environment can name an image. Its instances then see the files of the image.
    """


@command.command("load", examples=("aenv image load debian.tar", "aenv image load debian.tar --name debian:12"))
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--name", default="", metavar="REF", help="Name of the image here.  [default: the name in FILE]")
@parameters.HOME
def load(file: Path, name: str, home: Path | None) -> None:
    """Load an image from an archive or an OCI layout folder.

    FILE is what 'docker save', 'podman save' or skopeo wrote.
    """
    images = _images(home)
    before = images.names()
    image = asyncio.run(images.load(file, name))
    new = [known for known, digest in images.names().items() if digest == image.digest]
    if not new:
        output.talk("the image has no name, so no environment can use it; give it one with --name")
    elif any(before.get(known) not in (None, image.digest) for known in new):
        output.talk("the name now belongs to this image; an older image has lost it")
    output.data(", ".join(new) or f"sha256:{image.digest}")


@command.command("list", examples=("aenv image list",))
@parameters.HOME
@formats(*PUBLISHED)
def list_images(home: Path | None, as_json: bool) -> None:
    """List the images on this machine."""
    names = sorted(_images(home).names().items())
    found = [{"name": name, "digest": f"sha256:{digest}"} for name, digest in names]
    output.answer(found, ("Name", "Digest"), [(name, digest[:12]) for name, digest in names], as_json=as_json)


@command.command("remove", examples=("aenv image remove debian:12",))
@click.argument("ref")
@parameters.HOME
def remove(ref: str, home: Path | None) -> None:
    """Remove a name of an image, and the image with its last name."""
    asyncio.run(_images(home).remove(ref))


@command.command("pull", examples=("aenv image pull docker.io/library/debian:12",))
@click.argument("ref")
@click.option(
    "--with",
    "program",
    type=click.Choice(["skopeo", "podman"]),
    help="Program that fetches the image.  [default: the first one that is installed]",
)
@parameters.HOME
def pull(ref: str, program: str | None, home: Path | None) -> None:
    """Fetch an image from a registry, with skopeo or podman."""
    import shutil

    found = program or next(filter(shutil.which, ("skopeo", "podman")), None)
    if found is None:
        raise output.Failure(
            f"cannot fetch {ref!r}: neither skopeo nor podman is installed",
            hint=f"run 'docker save' on another machine, then: aenv image load FILE --name {ref}",
        )
    image = asyncio.run(_images(home, found).pull(ref, output.talk))
    output.data(f"sha256:{image.digest}")


def _images(home: Path | None, program: str = "") -> Images:
    from ...isolation.rootfs.images import Images

    return Images(home or settings.home(), pull=program)  # type: ignore[arg-type]  # one of the choices above
