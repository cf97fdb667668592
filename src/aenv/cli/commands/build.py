"""`aenv build`: everything that an instance is made of: bundle, requirements, image."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import local_project, output, parameters
from ..help_pages import documented

if TYPE_CHECKING:
    from ...base.config import Project
    from ..config_file import CliSettings
    from ..image_builder import ImageOptions
    from ..project_bundle import PackedProject


@documented(
    "build",
    examples=("aenv build", "aenv build --no-image", "aenv build --registry ghcr.io --namespace me --push"),
)
@parameters.work_dir("Folder of the project.")
@click.option("-n", "--image-name", help="Name of the image.  [default: buildConfig.image_name, else the name]")
@click.option(
    "-t",
    "--image-tag",
    "tags",
    multiple=True,
    help="Tag of the image; repeatable.  [default: buildConfig.image_tag, else the version]",
)
@click.option("-r", "--registry", help="Registry of the image.  [default: from cli_config.json, else docker.io]")
@click.option("-s", "--namespace", help="Namespace in the registry.  [default: from cli_config.json, else aenv]")
@click.option("--push/--no-push", show_default=False, help="Push the image to its registry, or do not push it.")
@click.option("-p", "--platform", help="Platform of the image, as in linux/arm64.  [default: this machine's]")
@click.option("--no-cache", is_flag=True, help="Build every layer again, also those of earlier builds.")
@click.option(
    "-f",
    "--dockerfile",
    help="Dockerfile, relative to the work directory.  [default: buildConfig.dockerfile, else Dockerfile]",
)
@click.option(
    "--image/--no-image",
    default=None,
    help="Require an image, or do not build one.  [default: build one if possible]",
)
def command(
    work_dir: Path,
    image_name: str | None,
    tags: tuple[str, ...],
    registry: str | None,
    namespace: str | None,
    push: bool,
    platform: str | None,
    no_cache: bool,
    dockerfile: str | None,
    image: bool | None,
) -> None:
    """Build the bundle, the requirements and the image of a project.

    The image needs Docker, podman or buildah. The results are written into config.json, as artifacts.
    """
    from .. import config_file
    from ..image_builder import ImageOptions, labels, names

    found = local_project.load(work_dir)
    settings = config_file.in_use()
    registry = settings.registry.host if registry is None else registry
    namespace = settings.registry.namespace if namespace is None else namespace
    name = image_name or found.build.image_name or found.name
    wanted = names(registry, namespace, name, tags or (found.build.image_tag or found.version,))
    if image is not False:
        file = work_dir / (dockerfile or found.build.dockerfile)
        images = [{"id": "", "type": "image", "content": name} for name in wanted]
        after = local_project.changed(found, [*images, *local_project.other_artifacts(found, "image")])
        options = ImageOptions(labels(found, _digest(after)), platform, cache=not no_cache)
        required = bool(image) or push or bool(dockerfile and not file.is_file())  # a name that was typed wrong
        if _image(found, wanted, file, options, settings, push, required=required):
            found = local_project.with_artifacts(found, "image", images)
    _requirements(found)
    _bundle(found)


def _image(
    found: Project,
    names: list[str],
    dockerfile: Path,
    options: ImageOptions,
    settings: CliSettings,
    push: bool,
    *,
    required: bool,
) -> bool:
    """Build the image under these names; False where none can be made."""
    from .. import wheel
    from ..image_builder import builder

    program = builder(settings.docker_socket) if dockerfile.is_file() else None
    if program is None:
        why = (
            "neither Docker nor podman nor buildah answers"
            if dockerfile.is_file()
            else f"'{dockerfile}' does not exist"
        )
        if required:
            raise output.Failure(f"cannot build the image: {why}")
        output.talk(f"no image was built: {why}")
        older = next((each["content"] for each in found.artifacts if each.get("type") == "image"), "")
        if older and dockerfile.is_file():
            output.talk(
                f"config.json still names {older!r}, whose code instances in containers run: build it again where "
                "there is an engine, or remove it from 'artifacts'"
            )
        return False
    context = found.path / found.build.context
    text = dockerfile.read_text(encoding="utf-8", errors="replace")
    takes_wheel = f"{wheel.FOLDER}/" in text
    if "pip install" in text and not takes_wheel:
        output.talk(
            f"'{dockerfile}' does not copy {wheel.FOLDER}/*.whl, so 'pip install aenvironment' installs a version "
            "before 1.0.0 from the package index"
        )
    with wheel.beside(context) if takes_wheel else nullcontext():
        program.build(names, context, dockerfile, options)
    if push:
        program.push(names, settings.registry)
    for name in names:
        output.data(f"image         {name}{' (pushed)' if push else ''}")
    return True


def _requirements(found: Project) -> None:
    import asyncio

    from ...artifacts.pythons.choosing import requirements_of_project
    from ...base import settings
    from ..progress import lines

    with lines("installing requirements") as show:
        _, folder = asyncio.run(requirements_of_project(found, settings.home(), settings.variables(), show))
    output.data(f"requirements  {folder or 'none'}")


def _digest(found: Project) -> str:
    return _packed(found).bundle.digest


def _packed(found: Project) -> PackedProject:
    from ..project_bundle import pack

    with tempfile.TemporaryDirectory(prefix="aenv-build-") as work:
        return pack(found, Path(work))


def _bundle(found: Project) -> None:
    packed = _packed(found)
    bundle = {"id": str(found.ref), "type": "bundle", "content": f"sha256:{packed.bundle.digest}"}
    local_project.with_artifacts(found, "bundle", [bundle])
    output.data(f"bundle        {found.ref} ({packed})")
