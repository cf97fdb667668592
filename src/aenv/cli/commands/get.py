"""`aenv get`: the hub's record of an environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ...base import config, refs
from ...base.errors import InvalidRequest
from .. import output, parameters
from ..help_pages import documented
from ..output_formats import PUBLISHED, formats

if TYPE_CHECKING:
    from ...client.hub import Hub
    from ...client.hub_records import HubRuntime, HubVersion


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
    if history:
        whole = ask_hub(lambda hub: hub.versions(ref.name))
        if as_json:
            output.json(whole.sent)
            return
        rows = [_history_row(each) for each in whole.versions]
        output.table(("Version", "Status", "Pushed by", "Created", "Digest", "Changes"), rows)
        return
    found, here = ask_hub(lambda hub: _get(hub, ref))
    if as_json:
        output.json({**found.sent, **{key: text for key, text in asdict(here).items() if text}})
    else:
        _print(found, here)


async def _get(hub: Hub, ref: refs.Ref) -> tuple[HubVersion, HubRuntime]:
    return await hub.get(ref), await hub.runs_on(ref)


def _print(env: HubVersion, here: HubRuntime) -> None:
    output.table(("Field", "Value"), list(_fields(env, here)))
    if env.offers:
        output.data("")
        rows = [(each.kind, each.name, output.first_line(each.description)) for each in env.offers]
        output.table(("Kind", "Name", "Description"), rows)
    if env.readme:
        output.data("\n" + output.plain(env.readme.rstrip()))


def _fields(env: HubVersion, here: HubRuntime) -> Iterator[tuple[str, str]]:
    yield "name", env.name
    yield "version", env.version
    yield "status", output.status(env.status)
    said = {
        "description": env.description,
        "owner": env.owner,
        "access": env.access,
        "pushed by": env.pushed_by,
        "digest": env.digest,
        "code url": env.code_url,
    }
    yield from ((key, output.first_line(text)) for key, text in said.items() if text)
    if env.size_bytes:
        yield "size", output.size(env.size_bytes)
    yield "tags", ", ".join(env.tags)
    yield "created", output.minute(env.created_at)
    yield "updated", output.minute(env.updated_at)
    yield from env.artifacts
    yield from ((kind, ", ".join(names)) for kind, names in env.dependencies.items() if names)
    yield from ((key, text) for key, text in asdict(here).items() if text)
    yield "resources", _resources(env.deploy_config)


def _resources(deploy_config: Mapping[str, Any]) -> str:
    try:
        deploy = config.parse_deploy(deploy_config)
    except InvalidRequest as error:  # other hubs store what they are sent
        return output.plain(error.message)
    amounts = {"cpu": deploy.cpu, "memory": deploy.memory}
    return ", ".join(f"{name} {amount.written}" for name, amount in amounts.items() if amount)


def _history_row(version: HubVersion) -> tuple[str, ...]:
    said = [
        f"{mark}{len(names)} {what}"
        for what, change in version.changes.items()
        for mark, names in zip("+-~", (change.get(done, ()) for done in _DONE), strict=True)
        if names
    ]
    return (
        version.version,
        output.status(version.status),
        version.pushed_by,
        output.minute(version.created_at),
        version.digest.removeprefix("sha256:")[:12],
        ", ".join(said),
    )


_DONE = ("added", "removed", "changed")
