"""`aenv call`: one call to a runtime or an instance, from a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...base import settings
from ...base.errors import ConnectFailed, NotFound
from .. import output, parameters
from ..help_pages import documented
from ..output_formats import formats

if TYPE_CHECKING:
    from ...client.address import Located
    from ...client.environment import Environment
    from ...client.result import ToolResult
    from ..arguments import Given

_RUN_ADDRESS = "http://127.0.0.1:8081"
_OF_A_GATEWAY = ("no instance named", "no route 'POST /mcp'")  # what its two ports answer to calls of no instance


@documented(
    "call",
    examples=(
        "aenv call my_custom_echo_env content=hello",
        "aenv call word_count text='one two three' --function",
        'aenv call my_custom_reward --args \'{"task": "say hello"}\' --reward',
        "aenv call my_custom_echo_env content=hello --instance my-env-3q",
    ),
)
@click.argument("name", metavar="TOOL")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--args", "json_arguments", metavar="JSON", help="Arguments as a JSON object. KEY=VALUE adds to them."
)
@click.option("--url", help=f"Address of the runtime; with --instance, of the gateway.  [default: {_RUN_ADDRESS}]")
@click.option("--instance", metavar="ID", help="Call this running instance, through its gateway.")
@click.option("--function", "kind", flag_value="function", help="Call the function with the name TOOL.")
@click.option("--reward", "kind", flag_value="reward", help="Call the reward with the name TOOL.")
@click.option("--timeout", type=parameters.DURATION, default="60s", help="Maximum time to wait for the answer.")
@formats(plain="text", json_help="Print the whole result as JSON.")
def command(
    name: str,
    pairs: tuple[str, ...],
    json_arguments: str | None,
    url: str | None,
    instance: str | None,
    kind: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Call a tool, a function or a reward, and print its answer.

    A value is read as JSON where the schema of the tool allows that (n=3, flags='["a"]'), and as a string
    otherwise. The call goes to the runtime at --url, else at $DUMMY_INSTANCE_IP, else to 'aenv run' on this
    machine. With --instance it goes to the gateway at --url, else at $AENV_SYSTEM_URL, else to the one of 'aenv
    login'. The exit code is 1 when the tool failed.
    """
    import asyncio

    from ..arguments import split

    given = split(pairs, json_arguments)
    env = _environment(name, url, instance, timeout)
    try:
        return asyncio.run(_call(env, name, kind or "tool", given, as_json))
    except ConnectFailed as error:
        raise output.Failure(
            error.message, hint="start 'aenv run' in another terminal, or name the runtime with --url"
        ) from error
    except NotFound as error:
        if instance or not error.message.startswith(_OF_A_GATEWAY):
            raise
        raise output.Failure(
            f"{_runtime(url)} is a gateway, and not 'aenv run'",
            hint="--instance ID, from 'aenv ps', with the gateway's address in --url or AENV_SYSTEM_URL; "
            "for 'aenv run', the address that it prints",
        ) from error


def _environment(name: str, url: str | None, instance: str | None, timeout: float) -> Environment:
    """What to call: an instance through its gateway, or a runtime directly."""
    import functools

    from ...client.environment import Environment
    from .. import connection, prefixes

    prefix, slash, _ = name.partition("/")
    full_name = prefix if slash and "@" in prefix else "local"
    # Nothing is retried: a person at a shell wants to know at once.
    environment = functools.partial(Environment, full_name, timeout=timeout, max_retries=0)
    if instance:
        gateway = connection.gateway(url, option="--url")
        instance = gateway.run(lambda api: prefixes.instance(api, str(instance)))
        return environment(aenv_url=gateway.url, api_key=gateway.api_key, runtime_url="", attach=instance)
    return environment(runtime_url=_runtime(url))


def _runtime(url: str | None) -> Located:
    """Where calls go that name no instance."""
    from ...client import where
    from ...client.address import Located

    given = Located(url, "the option --url") if url else None
    found = where.find(settings.client_settings(), runtime_url=given).runtime
    return found or Located(_RUN_ADDRESS, "the default of aenv call")


async def _call(env: Environment, name: str, kind: str, given: Given, as_json: bool) -> int:
    async with env:
        if kind == "tool":
            tools = await env.list_tools() if given.pairs else []
            schemas = {tool["name"].partition("/")[2]: tool["inputSchema"] for tool in tools}
            short = name.removeprefix(f"{env.env_name}/")
            result = await env.call_tool(name, given.typed(schemas.get(short, {})), timeout=env.timeout)
            _print_result(result, as_json)
            if result.is_error and result.text.startswith("Unknown tool: "):
                await _tell_of_option(env, short)
            return int(result.is_error)
        answer = await _function(env, name, kind, given)
    if as_json or not isinstance(answer, str):
        output.json(answer)
    else:
        output.data(answer)
    return 0


async def _tell_of_option(env: Environment, name: str) -> None:
    """Say so when what is not a tool is a function or a reward. Agents, who have the same answer, are not told."""
    listed = await env.list_functions()
    for kind, entries in (("function", listed["functions"]), ("reward", listed.get("reward", []))):
        if name in {entry["name"] for entry in entries}:
            output.talk(f"try: --{kind}, since {name!r} is a {kind}")


async def _function(env: Environment, name: str, kind: str, given: Given) -> Any:
    listed = await env.list_functions() if given.pairs else {}
    known = {entry["name"]: entry for entry in listed.get("reward" if kind == "reward" else "functions", [])}
    arguments = given.typed({"properties": known.get(name, {}).get("parameters", {})})
    if kind == "reward":
        return await env.call_reward(arguments, name=name)
    return await env.call_function(name, arguments)


def _print_result(result: ToolResult, as_json: bool) -> None:
    if as_json:
        output.json({"content": result.content, "is_error": result.is_error, "structured": result.structured})
        return
    for part in result.content:
        if part["type"] == "text":
            output.data(part["text"])
        else:
            output.talk(f"({part.get('mimeType', part['type'])}; use --json to print it)")
