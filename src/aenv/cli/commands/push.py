"""`aenv push`: publish a project's version in the hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import refs
from ...base.errors import AEnvError, InvalidRequest
from .. import output, project
from ..formats import formats

if TYPE_CHECKING:
    from ...client.hub import Hub
    from ..packing import Packed


def _version(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return value and refs.exact("name", value).version
    except InvalidRequest:
        raise click.UsageError(f"bad version {value!r}; write it as '1.0.0'", ctx) from None


@click.command("push")
@click.argument("what", metavar="[PATH|NAME]", required=False)
@click.option(
    "-w",
    "--work-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("."),
    help="Where PATH or NAME is.  [default: the current folder]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be pushed, and push nothing.")
@click.option("--force", is_flag=True, help="Replace a version that is not released and has other content.")
@click.option(
    "-v", "--version", callback=_version, help="Push it as this version.  [default: that in config.json]"
)
@click.option("--no-verify", is_flag=True, help="Do not load the environment first to see what it offers.")
@click.option("-r", "--registry", help="The registry that has the image, if another than at its build.")
@click.option("-s", "--namespace", help="The image's namespace there.")
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
    """Publish the project in a folder, or the one of a name below the current folder.

    Left out is what .gitignore and .aenvignore say, and always: .git, .env, virtual environments, caches.
    """
    import asyncio

    from .. import image, packing

    found = project.named(what, work_dir)
    with tempfile.TemporaryDirectory(prefix="aenv-push-") as work:
        packed = packing.pack(found, Path(work), version)
        body = {**_record(packed), "artifacts": image.moved(packed.project.artifacts, registry, namespace)}
        if dry_run:
            _print_plan(packed, as_json)
            return
        created = asyncio.run(_push(packed, body, force, verify=not no_verify))
    ref, bundle = packed.project.ref, packed.bundle
    if as_json:
        said = {"name": ref.name, "version": ref.version, "digest": bundle.digest, "size_bytes": bundle.size_bytes}
        output.json({**said, "files": len(bundle.files), "created": created})
    else:
        output.data(f"pushed {ref} ({packed})")


async def _push(packed: Packed, body: dict[str, Any], force: bool, *, verify: bool) -> bool:
    """Whether the version is new."""
    from .. import connection, packing, progress

    metadata = {"metadata": await packing.describe(packed.project)} if verify else {}
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
        note = (await hub.runs_on(ref)).get("note")
    except AEnvError as error:
        note = f"the server does not say which Python its instances run on: {error.message}"
    if note:
        output.talk(f"note: {note}")


async def _known(hub: Hub, packed: Packed, force: bool) -> bool:
    """Whether the hub has this version. Fails when that has other content, which may not be replaced."""
    ref, digest = packed.project.ref, packed.bundle.digest
    record = await hub.find(ref)
    there = (record or {}).get("digest")
    if record and there != digest and not force:
        raise output.Failure(
            f"{ref} exists with other content: the hub has {f'sha256:{there}' if there else 'no bundle of it'}, "
            f"this is sha256:{digest}",
            hint="-v, for a new version; --force, to replace one that is not released",
        )
    return record is not None


def _record(packed: Packed) -> dict[str, Any]:
    """What the hub keeps of config.json, and the bundle."""
    raw = packed.project.raw
    kept = ("description", "tags", "status", "codeUrl", "buildConfig", "testConfig", "deployConfig")
    fields = {key: raw[key] for key in kept if key in raw}
    return {"name": raw["name"], "version": raw["version"], **fields, "bundle": packed.bundle.digest}


def _print_plan(packed: Packed, as_json: bool) -> None:
    ref, bundle = packed.project.ref, packed.bundle
    if as_json:
        said = {"name": ref.name, "version": ref.version, "digest": bundle.digest, "size_bytes": bundle.size_bytes}
        output.json({**said, "files": list(bundle.files)})
        return
    for name in bundle.files:
        output.data(output.plain(name))
    output.talk(f"would push {ref} ({packed}; sha256:{bundle.digest})")
