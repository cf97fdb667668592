"""`aenv push`: publish a version of a project in the hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import refs
from ...base.errors import AEnvError
from .. import local_project, output, parameters
from ..help_pages import documented
from ..output_formats import formats

if TYPE_CHECKING:
    from ...client.hub import Hub
    from ..project_bundle import PackedProject


@documented("push", examples=("aenv push", "aenv push ./my-env --version 1.1.0", "aenv push --dry-run"))
@click.argument("what", metavar="[PATH|NAME]", required=False)
@parameters.work_dir("Folder that contains PATH or NAME.")
@click.option("--dry-run", is_flag=True, help="Print what would be pushed, without pushing it.")
@click.option(
    "--force", is_flag=True, help="Replace an existing version with other content, unless it is released."
)
@click.option(
    "-v", "--version", callback=parameters.version, help="Version to push.  [default: the one in config.json]"
)
@click.option("--no-verify", is_flag=True, help="Do not load the environment to check it first.")
@click.option("-r", "--registry", help="Registry that holds the image.  [default: the one it was built for]")
@click.option(
    "-s", "--namespace", help="Namespace of the image in the registry.  [default: the one it was built for]"
)
@formats(plain="text")
def command(
    what: str | None,
    work_dir: Path,
    dry_run: bool,
    force: bool,
    version: str | None,
    no_verify: bool,
    registry: str | None,
    namespace: str | None,
    as_json: bool,
) -> None:
    """Publish a version of a project in the hub.

    The project is in the folder PATH, or in a folder below the current one whose config.json has the name NAME;
    without either, in the current folder. Files that .gitignore and .aenvignore name are left out, and always
    .git, .env, virtual environments and caches.
    """
    import asyncio

    from .. import image_builder, project_bundle

    found = local_project.named(what, work_dir)
    with tempfile.TemporaryDirectory(prefix="aenv-push-") as work:
        packed = project_bundle.pack(found, Path(work), version)
        body = {**_record(packed), "artifacts": image_builder.moved(packed.project.artifacts, registry, namespace)}
        if dry_run:
            _print_plan(packed, as_json)
            return
        created = asyncio.run(_push(packed, body, force, verify=not no_verify))
    if as_json:
        output.json({**_as_json(packed), "files": len(packed.bundle.files), "created": created})
    else:
        output.data(f"pushed {packed.project.ref} ({packed})")


async def _push(packed: PackedProject, body: dict[str, Any], force: bool, *, verify: bool) -> bool:
    """Whether the version is new."""
    from .. import connection, progress, project_bundle

    metadata = {"metadata": await project_bundle.describe(packed)} if verify else {}
    ref, bundle = packed.project.ref, packed.bundle
    async with connection.hub() as hub:
        known = await _known(hub, packed, force)
        with progress.bar(f"uploading {ref}", bundle.size_bytes) as show:
            await hub.upload_bundle(packed.archive, bundle.digest, bundle.size_bytes, show)
        if known:
            await hub.update(ref, {**body, **metadata})
        else:
            await hub.create({**body, **metadata})
        await _tell_of_python(hub, ref)
    return not known


async def _tell_of_python(hub: Hub, ref: refs.Ref) -> None:
    """Say so when its instances there do not run on the Python that it asks for. It is pushed, whatever comes."""
    try:
        note = (await hub.runs_on(ref)).note
    except AEnvError as error:
        note = f"the server did not say which Python its instances run on: {error.message}"
    if note:
        output.talk(f"note: {note}")


async def _known(hub: Hub, packed: PackedProject, force: bool) -> bool:
    """Whether the hub has this version. Fails when that has other content, which may not be replaced."""
    ref, digest = packed.project.ref, packed.bundle.digest
    record = await hub.find(ref)
    there = record.digest if record else ""
    if record and there != digest and not force:
        raise output.Failure(
            f"{ref} exists with other content: the hub has {f'sha256:{there}' if there else 'no bundle of it'}, "
            f"this is sha256:{digest}",
            hint="push a new version with -v, or replace one that is not released with --force",
        )
    return record is not None


def _record(packed: PackedProject) -> dict[str, Any]:
    """What the hub keeps of config.json, and the bundle."""
    project = packed.project
    kept = ("description", "tags", "status", "codeUrl", "buildConfig", "testConfig", "deployConfig")
    fields = {key: project.raw[key] for key in kept if key in project.raw}
    return {"name": project.name, "version": project.version, **fields, "bundle": packed.bundle.digest}


def _print_plan(packed: PackedProject, as_json: bool) -> None:
    bundle = packed.bundle
    if as_json:
        output.json({**_as_json(packed), "files": list(bundle.files)})
        return
    for name in bundle.files:
        output.data(output.plain(name))
    output.talk(f"would push {packed.project.ref} ({packed}; sha256:{bundle.digest})")


def _as_json(packed: PackedProject) -> dict[str, Any]:
    ref, bundle = packed.project.ref, packed.bundle
    return {"name": ref.name, "version": ref.version, "digest": bundle.digest, "size_bytes": bundle.size_bytes}
