"""`aenv instance`: create, show and end instances. What happens inside one is in `instance_*.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import connection, local_project, output, parameters, prefixes, progress
from ..connection import Gateway
from ..help_pages import CommandGroup
from ..output_formats import formats
from . import instance_cp, instance_exec, instance_logs

if TYPE_CHECKING:
    from ...base.addresses import Origin
    from ...base.refs import Ref
    from ...client.api import Api
    from ...client.instance_replies import Instance
    from ...client.launch import ReadyInstance, RetryLimits


@click.group(
    "instance",
    cls=CommandGroup,
    examples=("aenv instance create my-env --keep-alive", "aenv instance list", "aenv instance delete my-env-3q"),
)
def command() -> None:
    """Create, show, use and end instances."""


@command.command(
    "create",
    examples=(
        "aenv instance create my-env@1.0.0 --keep-alive --ttl 2h",
        "aenv instance create my-env --env MODE=demo --secret API_KEY=OPENAI_API_KEY",
        "aenv instance create my-env --count 8 --label run=7 --keep-alive --json",
    ),
)
@click.argument("env_name", metavar="[ENV]", required=False)
@click.option("-d", "--datasource", default="", help="Folder of a dataset, or image of the sidecar.")
@click.option("-t", "--ttl", metavar="DURATION", help="Time to live.  [default: from the environment, else 30m]")
@parameters.pairs("-e", "--env", "variables", help="Environment variable of the instance; repeatable.")
@parameters.SECRETS
@click.option(
    "-a", "--arg", "arguments", multiple=True, metavar="TEXT", help="Argument for the environment; repeatable."
)
@parameters.pairs("--label", "labels", help="Label of the instance; repeatable.")
@click.option("--owner", help="Owner of the instance.  [default: from cli_config.json]")
@click.option(
    "--count", type=parameters.Number(1), help="Number of instances to create. If one fails, all are ended."
)
@click.option(
    "--network",
    callback=parameters.network,
    metavar="none|HOST[,HOST]...",
    help="Hosts that the instance may reach, as in api.example.com:443; never more than its environment may.",
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="Maximum time in the queue when there is no capacity.  [default: do not queue]",
)
@click.option(
    "--keep-alive",
    is_flag=True,
    help="Leave the instance running. By default it is ended after it has been shown.",
)
@click.option("--timeout", default="60s", help="Maximum duration of a request.", type=parameters.DURATION)
@click.option(
    "--startup-timeout", default="500s", help="Maximum time until the instance is ready.", type=parameters.DURATION
)
@click.option(
    "--max-retries", type=parameters.Number(0), default=3, help="Number of retries after a network error."
)
@click.option("--skip-health", is_flag=True, help="Accepted for compatibility; it has no effect.")
@connection.options
@formats()
def create(
    gateway: Gateway,
    env_name: str | None,
    variables: dict[str, str],
    secrets: dict[str, dict[str, str]],
    arguments: tuple[str, ...],
    labels: dict[str, str],
    owner: str | None,
    count: int | None,
    wait: str | None,
    keep_alive: bool,
    timeout: float,
    startup_timeout: float,
    max_retries: int,
    skip_health: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Create an instance, and show it when it is ready.

    ENV is the environment; without it, the project in the current folder.
    """
    import asyncio

    from ...base import quantities
    from ...client.embedded import forwarded, found_by
    from ...client.launch import RetryLimits

    given["datasource"] = found_by(gateway.url, given["datasource"])
    environment = env_name or str(local_project.load(Path()).ref)
    body: dict[str, Any] = {
        "envName": environment,
        "environment_variables": forwarded(gateway.url, environment, {**variables, **secrets}),
        "arguments": list(arguments),
        "labels": labels,
        "owner": owner or gateway.owner,
        "wait": wait,
        **given,
    }
    body = {name: value for name, value in body.items() if value is not None}
    limits = RetryLimits(timeout, startup_timeout, max_retries, None if wait is None else quantities.seconds(wait))

    async def made(origin: Origin) -> None:
        instances = await _launch(origin, gateway.api_key, limits, body, count)
        try:
            shown = [one.instance for one in instances]
            said = [one.sent for one in shown]
            output.answer(said if count else said[0], _HEADERS, _rows(shown), as_json=as_json)
            if not keep_alive:
                output.talk(f"ending the instance{'s' if count else ''}; use --keep-alive to avoid that")
        finally:
            await asyncio.gather(*(one.api.close() if keep_alive else one.release() for one in instances))

    with local_project.push_first(environment):
        gateway.run_at(made)


async def _launch(
    origin: Origin, api_key: str | None, limits: RetryLimits, body: dict[str, Any], count: int | None
) -> list[ReadyInstance]:
    from ...base import refs, wire
    from ...client import launch

    what = f"starting {count or 'an'} instance{'s' if count and count > 1 else ''} of {body['envName']}"
    async with progress.creating(what):
        if count:
            return await launch.create_many(origin, api_key, limits, count, body)
        id = wire.new_instance_id(refs.parse(body["envName"]).name)
        return [await launch.create(origin, api_key, limits, id, body)]


@command.command("list", examples=("aenv instance list", "aenv instance list --name my-env --label run=7 --json"))
@click.option("-n", "--name", help="List only instances of this environment.")
@click.option("--version", help="List only instances of this version. Needs --name.")
@click.option("--owner", help="List only instances of this owner.")
@click.option("--label", metavar="KEY=VALUE", help="List only instances with this label.")
@click.option("--status", help="List only instances with this status.  [default: all that have not ended]")
@click.option("--limit", type=parameters.Number(1, 1000), default=100, help="Maximum number of instances.")
@click.option("--cursor", metavar="ID", help="List only instances after the one with this id.")
@connection.options
@formats()
def list_(
    gateway: Gateway, name: str | None, version: str | None, limit: int, as_json: bool, **filters: str | None
) -> None:
    """List instances, oldest first, then the replicas of services."""
    if version and not name:
        raise click.UsageError("--version needs --name")
    which = f"{name}@{version}" if version else name or "*"
    chosen = {key: value for key, value in filters.items() if value is not None}

    async def listed(api: Api) -> tuple[list[Instance], list[Instance]]:
        found = await api.list_instances(which, limit=limit, **chosen)
        # Replicas have no labels, and come after the last page.
        with_replicas = len(found) < limit and not chosen.keys() - {"owner", "cursor"}
        return found, await _replicas(api, which, chosen.get("owner")) if with_replicas else []

    found, replicas = gateway.run(listed)
    both = [*found, *replicas]
    output.answer([one.sent for one in both], _HEADERS, _rows(both), as_json=as_json, nothing="no instances")
    if len(found) == limit:
        output.talk(f"there may be more; use --cursor {found[-1].id}")


async def _replicas(api: Api, which: str, owner: str | None) -> list[Instance]:
    """The replicas of services, in the form of instances; `service` says whose they are."""
    from ...client.instance_replies import Instance
    from ...client.services import Services

    return [
        Instance.of({"id": id, "service": service.id, **{key: service.sent.get(key) for key in _OF_SERVICE}})
        for service in await Services(api).list(which)
        if owner in (None, service.owner)
        for id in service.instances
    ]


@command.command("get", examples=("aenv instance get my-env-3q",))
@click.argument("id")
@connection.options
@formats()
def get(gateway: Gateway, id: str, as_json: bool) -> None:
    """Show one instance."""
    found = gateway.run_on(id, lambda one: one.api.get_instance(one.id))
    rows = [("id", found.id), ("environment", f"{found.environment or '-'}@{found.version or '-'}")]
    rows += [(key, _text(found.sent[key])) for key in _SHOWN if found.sent.get(key)]
    if found.tools:
        rows.append(("tools", ", ".join(tool["name"] for tool in found.tools)))
    output.answer(found.sent, ("Field", "Value"), rows, as_json=as_json)


@command.command("delete", examples=("aenv instance delete my-env-3q", "aenv instance delete --label run=7 --yes"))
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--label", metavar="KEY=VALUE", help="End all instances with this label.")
@parameters.YES
@connection.options
def delete(gateway: Gateway, ids: tuple[str, ...], label: str | None, yes: bool) -> None:
    """End instances, by id or by label."""
    if bool(ids) == bool(label):
        raise click.UsageError("name the instances, either by their ids or by --label")

    async def whole(api: Api) -> list[str]:
        return [await prefixes.instance(api, id) for id in ids]

    found = gateway.run(whole)
    parameters.confirm(f"end {f'all instances with the label {label}' if label else ', '.join(found)}", yes)

    async def end(api: Api) -> None:
        if label:
            count = await api.delete_instances(label)
            output.talk(f"ended {count} instance{'' if count == 1 else 's'}")
        for id in found:
            await api.delete_instance(id, missing_ok=False)
            output.talk(f"ended {id}")

    gateway.run(end)


@command.command("renew", examples=("aenv instance renew my-env-3q", "aenv instance renew my-env-3q 2h"))
@click.argument("id")
@click.argument("ttl", default="30m")
@connection.options
def renew(gateway: Gateway, id: str, ttl: str) -> None:
    """Extend the time to live of an instance.

    It then ends after TTL from now; without TTL, after 30 minutes. Prints the new time of its end.
    """
    output.data(gateway.run_on(id, lambda one: one.api.renew_instance(one.id, ttl)).expires_at)


@command.command("info", examples=("aenv instance info my-env@1.0.0",))
@click.argument("ref", metavar="ENV", callback=parameters.reference)
@connection.SYSTEM_URL
@connection.API_KEY
@formats()
def info(ref: Ref, system_url: str | None, api_key: str | None, as_json: bool) -> None:
    """Show an environment and its tools, without creating an instance."""
    found = connection.ask_hub(lambda hub: hub.get(ref), connection.hub_address(system_url, api_key))
    rows = [(key, _text(getattr(found, key))) for key in _ABOUT if getattr(found, key)]
    output.answer(found.sent, ("Field", "Value"), rows, as_json=as_json)
    tools = [(each.name, output.first_line(each.description)) for each in found.offers if each.kind == "tool"]
    if tools and not as_json:
        output.data("")
        output.table(("Tool", "Description"), tools)


for _inside in (instance_logs, instance_exec, instance_cp):
    command.add_command(_inside.command)

_OF_SERVICE = ("env", "owner", "status", "created_at")
_SHOWN = (
    "status",
    "reason",
    "owner",
    "labels",
    "ip",
    "created_at",
    "ttl",
    "expires_at",
    "engine",
    "isolation",
    "not_enforced",
    "root",
    "frozen",
    "mcp_url",
)
_ABOUT = ("name", "version", "description", "tags", "owner", "digest", "created_at", "updated_at")


_HEADERS = ("ID", "Environment", "Version", "Owner", "Status", "IP", "Created")


def _rows(instances: Sequence[Instance]) -> list[tuple[str, ...]]:
    return [
        (
            one.id,
            one.environment or "-",
            one.version or "-",
            one.owner or "-",
            one.status,
            one.ip or "-",
            output.minute(one.created_at),
        )
        for one in instances
    ]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
