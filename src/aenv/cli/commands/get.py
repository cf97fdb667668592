"""`aenv get`: the hub's record of an environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from ...base import config, refs
from ...base.errors import InvalidRequest
from .. import output, parameters
from ..help_pages import documented
from ..output_formats import PUBLISHED, formats

if TYPE_CHECKING:
    from ...client.hub import Hub


@documented("get", examples=("aenv get my-env", "aenv get my-env@1.0.0 --json", "aenv get my-env --versions"))
@click.argument("ref", metavar="NAME[@VERSION]", callback=parameters.reference)
@click.option("-v", "--version", help="Version, or a range such as ^1.2.  [default: the latest version]")
@click.option("--versions", "history", is_flag=True, help="List all versions, and what changed in each.")
@formats(*PUBLISHED)
def command(ref: refs.Ref, version: str | None, history: bool, as_json: bool) -> None:
    """Show the tools, rewards and other details of an environment."""
    from ..connection import ask_hub

    if version:
        ref = refs.parse(f"{ref.name}@{version}")
    found = ask_hub(lambda hub: hub.versions(ref.name) if history else _get(hub, ref))
    if as_json:
        output.json(found)
    elif history:
        rows = [_history_row(each) for each in found["versions"]]
        output.table(("Version", "Status", "Pushed by", "Created", "Digest", "Changes"), rows)
    else:
        _print(found)


async def _get(hub: Hub, ref: refs.Ref) -> Mapping[str, Any]:
    found, here = await hub.get(ref), await hub.runs_on(ref)
    return {**found, **{key: here[key] for key in ("root", "python", "note") if here.get(key)}}


def _print(env: Mapping[str, Any]) -> None:
    output.table(("Field", "Value"), list(_fields(env)))
    named = [(kind, each) for kind in ("tool", "function", "reward") for each in env.get(f"{kind}s") or ()]
    if named:
        output.data("")
        rows = [(kind, each["name"], output.first_line(each.get("description"))) for kind, each in named]
        output.table(("Kind", "Name", "Description"), rows)
    if env.get("readme"):
        output.data("\n" + output.plain(env["readme"].rstrip()))


def _fields(env: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "name", env["name"]
    yield "version", env["version"]
    yield "status", output.status(env)
    for key in ("description", "owner", "access", "pushed_by", "digest", "code_url"):
        if env.get(key):
            yield key.replace("_", " "), output.first_line(env[key])
    if env.get("size_bytes"):
        yield "size", output.size(env["size_bytes"])
    yield "tags", ", ".join(env.get("tags") or ())
    for key in ("created_at", "updated_at"):
        yield key.removesuffix("_at"), output.minute(env.get(key))
    for artifact in env.get("artifacts") or ():
        yield artifact.get("type", "artifact"), artifact.get("content", "")
    for kind, names in (env.get("dependencies") or {}).items():
        if names:
            yield kind, ", ".join(map(str, names))
    for key in ("root", "python", "note"):
        if env.get(key):
            yield key, env[key]
    yield "resources", _resources(env.get("deploy_config") or {})


def _resources(deploy_config: Mapping[str, Any]) -> str:
    try:
        deploy = config.parse_deploy(deploy_config)
    except InvalidRequest as error:  # other hubs store what they are sent
        return output.plain(error.message)
    amounts = {"cpu": deploy.cpu, "memory": deploy.memory}
    return ", ".join(f"{name} {amount.written}" for name, amount in amounts.items() if amount)


def _history_row(version: Mapping[str, Any]) -> tuple[str, ...]:
    changes = version.get("changes") or {}
    said = [
        f"{mark}{len(names)} {what}"
        for what, change in changes.items()
        for mark, names in zip("+-~", (change.get(kind) or () for kind in _KINDS), strict=True)
        if names
    ]
    return (
        version["version"],
        output.status(version),
        version.get("pushed_by") or "",
        output.minute(version.get("created_at")),
        (version.get("digest") or "").removeprefix("sha256:")[:12],
        ", ".join(said),
    )


_KINDS = ("added", "removed", "changed")
