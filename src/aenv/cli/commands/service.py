"""`aenv service`: environments that run for long, with replicas, storage and a stable URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...base.config import Deploy
from .. import connection, local_project, output, parameters, prefixes
from ..connection import Gateway
from ..help_pages import CommandGroup
from ..output_formats import formats

if TYPE_CHECKING:
    from ...client.instance_replies import Service
    from ...client.services import Services

T = TypeVar("T")
_VARIABLES = parameters.pairs("-e", "--env", "variables", help="Environment variable of the replicas; repeatable.")


@click.group(
    "service", cls=CommandGroup, examples=("aenv service create notes --service-name notes", "aenv service list")
)
def command() -> None:
    """Create, show, change and end services."""


@command.command(
    "create",
    examples=(
        "aenv service create notes@1.0.0 --service-name notes",
        "aenv service create notes --replicas 3 --env MODE=demo",
    ),
)
@click.argument("env_name", metavar="[ENV]", required=False)
@click.option("-s", "--service-name", help="Name of the service.  [default: generated]")
@click.option(
    "-r", "--replicas", type=parameters.Number(1), help="Number of replicas.  [default: from config.json, else 1]"
)
@click.option(
    "-p",
    "--port",
    type=parameters.Number(1, 65535),
    help="Port in the replicas that gets the requests, where a server of the environment listens.",
)
@_VARIABLES
@parameters.SECRETS
@click.option("--enable-storage", is_flag=True, help="Keep the files of the service. Needs exactly one replica.")
@click.option("--owner", help="Owner of the service.  [default: from cli_config.json]")
@connection.options
@formats()
def create(
    gateway: Gateway,
    env_name: str | None,
    variables: dict[str, str],
    secrets: dict[str, dict[str, str]],
    enable_storage: bool,
    owner: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a service of an environment.

    ENV is the environment; without it, the project in the current folder. Settings that are not given here come
    from deployConfig.service in config.json, then from deployConfig.
    """
    name, deploy = _configured(env_name)
    given["owner"] = owner or gateway.owner
    given["environment_variables"] = {**_variables(deploy), **variables, **secrets} or None
    body = {"envName": name, **_from_config(name, deploy, enable_storage)}
    body |= {key: value for key, value in given.items() if value is not None}
    _show(_run(gateway, lambda services: services.create(body)), as_json)


@command.command("list", examples=("aenv service list", "aenv service list --name notes --json"))
@click.option("-n", "--name", help="List only services of this environment.")
@connection.options
@formats()
def list_(gateway: Gateway, name: str | None, as_json: bool) -> None:
    """List services."""
    found = _run(gateway, lambda services: services.list(name or "*"))
    output.answer([one.sent for one in found], _HEADERS, _rows(found), as_json=as_json, nothing="no services")


@command.command("get", examples=("aenv service get notes",))
@click.argument("id")
@connection.options
@formats()
def get(gateway: Gateway, id: str, as_json: bool) -> None:
    """Show one service."""
    _show(_run_on(gateway, id, lambda services, whole: services.get(whole)), as_json)


@command.command(
    "update", examples=("aenv service update notes --replicas 3", "aenv service update notes --version 1.1.0")
)
@click.argument("id")
@click.option("-r", "--replicas", type=parameters.Number(1), help="New number of replicas.")
@click.option("--image", help="Image to run from now on.")
@click.option("--version", help="Version of the environment to run from now on.")
@_VARIABLES
@parameters.SECRETS
@connection.options
@formats()
def update(
    gateway: Gateway,
    id: str,
    variables: dict[str, str],
    secrets: dict[str, dict[str, str]],
    as_json: bool,
    **given: Any,
) -> None:
    """Change a service while it serves.

    Variables are added to the existing ones.
    """
    given["environment_variables"] = {**variables, **secrets} or None
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("no change is given; use --replicas, --image, --version, --env or --secret")
    _show(_run_on(gateway, id, lambda services, whole: services.update(whole, changes)), as_json)


@command.command(
    "delete", examples=("aenv service delete notes", "aenv service delete notes --delete-storage --yes")
)
@click.argument("id")
@parameters.YES
@click.option("--delete-storage", is_flag=True, help="Delete the files of the service as well.")
@connection.options
def delete(gateway: Gateway, id: str, yes: bool, delete_storage: bool) -> None:
    """End a service.

    Its storage is kept unless --delete-storage is given.
    """
    whole = _run(gateway, lambda services: prefixes.service(services, id))
    parameters.confirm(f"end {whole}{' and delete its files' if delete_storage else ''}", yes)
    _run(gateway, lambda services: services.delete(whole, delete_storage=delete_storage))
    output.talk(f"ended {whole}")


@command.command("logs", examples=("aenv service logs notes", "aenv service logs notes --follow"))
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines until the replicas end.")
@connection.options
def logs(gateway: Gateway, id: str, follow: bool) -> None:
    """Print the output of the replicas of a service.

    With several replicas, a line begins with the last characters of its replica's id.
    """
    import asyncio

    async def printed(services: Services, whole: str) -> None:
        replicas = (await services.get(whole)).instances
        if not replicas:
            output.talk(f"{whole} has no running replica")

        async def one(replica: str) -> None:
            mark = f"{replica[-6:]}  " if len(replicas) > 1 else ""
            async for line in services.logs(whole, replica, follow=follow):
                output.data(mark + line)

        if follow:
            await asyncio.gather(*map(one, replicas))
        else:
            for replica in replicas:
                await one(replica)

    _run_on(gateway, id, printed)


def _run(gateway: Gateway, act: Callable[[Services], Awaitable[T]]) -> T:
    from ...client.services import Services

    return gateway.run(lambda api: act(Services(api)))


def _run_on(gateway: Gateway, id: str, act: Callable[[Services, str], Awaitable[T]]) -> T:
    """The same for one service: the one whose id is `id`, or begins with it."""

    async def found(services: Services) -> T:
        return await act(services, await prefixes.service(services, id))

    return _run(gateway, found)


def _configured(env_name: str | None) -> tuple[str, Deploy]:
    """The environment, and the deployConfig of the project here where it is the same one."""
    here = local_project.around(Path()) if env_name else local_project.load(Path())
    if here and env_name in (None, here.name, str(here.ref)):
        return env_name or str(here.ref), here.deploy
    return env_name or "", Deploy()


def _from_config(name: str, deploy: Deploy, enable_storage: bool) -> dict[str, Any]:
    """The fields of a new service that config.json settles; of amounts the old pairs win over the simple names."""
    service = deploy.service
    amounts = {
        "cpu_request": deploy.cpu_request or deploy.cpu,
        "cpu_limit": deploy.cpu_limit or deploy.cpu,
        "memory_request": deploy.memory_request or deploy.memory,
        "memory_limit": deploy.memory_limit or deploy.memory,
        "ephemeral_storage_request": deploy.ephemeral_storage_request or deploy.ephemeral_storage,
        "ephemeral_storage_limit": deploy.ephemeral_storage_limit or deploy.ephemeral_storage,
    }
    fields: dict[str, Any] = {field: amount.written for field, amount in amounts.items() if amount}
    numbers = {"replicas": service.replicas, "port": service.port}
    fields |= {field: number for field, number in numbers.items() if number is not None}
    if enable_storage or service.enable_storage:
        fields["pvc_name"] = service.storage_name or name.partition("@")[0]
        fields["storage_size"] = service.storage_size
        fields["mount_path"] = service.mount_path
    return fields


def _variables(deploy: Deploy) -> dict[str, Any]:
    """Those of config.json: texts, and secrets by their names."""
    given = deploy.environment_variables
    return {**given.texts, **{variable: {"secret": name} for variable, name in given.secrets.items()}}


def _show(service: Service, as_json: bool) -> None:
    output.answer(service.sent, _HEADERS, _rows([service]), as_json=as_json)
    if service.reason and not as_json:
        output.talk(output.plain(service.reason))


_HEADERS = ("ID", "Environment", "Version", "Owner", "Status", "Replicas", "URL", "Created")


def _rows(services: Sequence[Service]) -> list[tuple[str, ...]]:
    return [
        (
            one.id,
            one.environment or "-",
            one.version or "-",
            one.owner or "-",
            one.status,
            f"{one.available_replicas}/{one.replicas}",
            one.service_url or "-",
            output.minute(one.created_at),
        )
        for one in services
    ]
