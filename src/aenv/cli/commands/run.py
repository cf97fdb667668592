"""`aenv run`: serve an environment on this machine, for its author."""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...artifacts.data.data_folders import on_host
from ...base import settings
from .. import local_project, output, parameters
from ..help_pages import DocumentedCommand
from ..settings_options import options

if TYPE_CHECKING:
    from ...isolation.sandbox.protocol import Ready
    from ..supervise import Plan


class _WithArguments(DocumentedCommand):
    """A command that keeps what follows `--`, which click would take for its own positional arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        after = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = tuple(args[after + 1 :])
        return super().parse_args(ctx, args[:after])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENT...]"]


@click.command(
    "run",
    cls=_WithArguments,
    examples=("aenv run", "aenv run my-env --reload", "aenv run server.py --port 9000 -- --verbose"),
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@parameters.work_dir("Working folder; PATH is relative to it.")
@options("host")
@click.option(
    "--port",
    type=parameters.PORT,
    default=8081,
    help="Port for tools, functions and rewards; 0 picks a free port.",
)
@click.option(
    "--control-port", type=parameters.PORT, default=8080, help="Port for the control API; 0 turns it off."
)
@click.option("--name", help="Name of the server in MCP.  [default: the name in config.json]")
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
@click.option(
    "--inspector-port",
    type=parameters.Number(1, 65532, "PORT"),  # it takes a second one, 3 higher
    help="Open MCP Inspector on this port, with npx.",
)
@click.option(
    "--stdio", is_flag=True, help="Serve MCP on stdin and stdout, for desktop clients; no port is opened."
)
@click.option("--reload", "reloads", is_flag=True, help="Restart when a source file changes.")
@click.option("--lenient", is_flag=True, help="Skip files that fail to load, with a warning.")
@parameters.log_level(None)
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> int:
    """Serve an environment on this machine, over MCP and HTTP.

    PATH is a folder or a Python file; without it, the working folder. Arguments after -- go to the environment, as
    sys.argv[1:] and Context.arguments.
    """
    options = RunOptions(**values)
    plan = _plan(options, ctx.meta["arguments"])
    if options.stdio:
        argv = plan.command("--stdio")
        os.chdir(plan.folder)
        os.execve(argv[0], argv, dict(plan.variables))
    import asyncio

    with _listen(options.host, options.port, "--port", control=options.control_port) as listener:
        if options.control_port:
            _listen(options.host, options.control_port, "--control-port").close()
        if options.inspector_port:
            _listen("127.0.0.1", options.inspector_port, "--inspector-port").close()
        return asyncio.run(_serve(options, plan, listener))


@dataclass(frozen=True)
class RunOptions:
    """The command line of `aenv run`, as click read it."""

    path: Path | None
    work_dir: Path
    host: str
    port: int
    control_port: int
    name: str | None
    quiet: bool
    inspector_port: int | None
    stdio: bool
    reloads: bool
    lenient: bool
    log_level: str | None


def _plan(options: RunOptions, arguments: tuple[str, ...]) -> Plan:
    from ...artifacts.pythons.choosing import note_on_our_own
    from ..supervise import Plan

    folder = options.work_dir.resolve()
    path = (folder / (options.path or ".")).resolve()
    if not path.exists():
        raise output.Failure(
            f"no such file or folder: '{path}'", hint="create an environment with 'aenv init NAME'"
        )
    found = local_project.around(path)
    if found and found.uses:
        raise output.Failure(
            f"'{found.ref}' is composed of other environments ('uses'), and aenv run starts it alone",
            hint=f"serve it with a gateway, which starts its parts too: aenv serve {found.path}",
        )
    name = options.name or (found.name if found else "aenv-server")
    level = options.log_level or ("WARNING" if options.quiet else "INFO")
    flags = ["--name", name, "--log-level", level.upper(), *(["--lenient"] if options.lenient else [])]
    if not options.stdio:
        flags += ["--host", options.host]
        flags += ["--control-port", str(options.control_port)] if options.control_port else []
    variables = dict(settings.variables())
    if found:
        # As in an instance, where what its creator gives wins over config.json: here the shell does.
        variables = {**found.deploy.environment_variables.texts, **variables, "AENV_ENVIRONMENT": str(found.ref)}
        for variable, secret in found.deploy.environment_variables.secrets.items():
            if variable not in variables:
                output.talk(f"{variable} is not set; a gateway would set it from the secret {secret!r}")
        if found.data and (data := on_host(found.data, settings.home())):
            variables[found.data.variable] = str(data)  # further folders are where the shell's variables say
        if note := note_on_our_own(found):
            output.talk(f"note: {note}")
        flags += ["--call-timeout", f"{found.deploy.call_timeout:g}"] if found.deploy.call_timeout else []
    return Plan(path, flags, arguments, folder, variables)


def _listen(host: str, port: int, flag: str, *, control: int = 0) -> socket.socket:
    """A listening socket. Where there is none, the error says whether the port `control` is taken as well."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        hint = f"{flag} 0, {'for a free port' if flag == '--port' else 'to turn it off'}, or another number"
        try:
            if control:
                _listen(host, control, "--control-port").close()
        except output.Failure:
            hint = "--port 0 --control-port 0, for a free port without the control API, or other numbers"
        raise output.Failure(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}", hint=hint
        ) from error
    return listener


async def _serve(options: RunOptions, plan: Plan, listener: socket.socket) -> int:
    from .. import inspector
    from ..supervise import supervise
    from ..watch import Watcher

    url = _url(options.host, listener.getsockname()[1])
    async with AsyncExitStack() as stack:
        watcher = Watcher(plan.path) if options.reloads else None
        if options.inspector_port is not None:
            await stack.enter_async_context(inspector.running(options.inspector_port, f"{url}/mcp"))
        return await supervise(plan, listener, lambda ready: _announce(options, url, ready), watcher)


def _announce(options: RunOptions, url: str, ready: Ready) -> None:
    """What an author wants to know once the environment serves."""
    if options.quiet:
        return
    for kind, offers in (("TOOL", ready.tools), ("FUNCTION", ready.functions), ("REWARD", ready.rewards)):
        if offers:
            rows = [(each["name"], output.first_line(each.get("description"))) for each in offers]
            output.table((kind, "DESCRIPTION"), rows)
            output.data("")
    lines = [f"mcp      {url}/mcp", f"health   {url}/health"]
    if options.control_port:
        lines.append(f"control  {_url(options.host, options.control_port)}")
    output.data("\n".join([*lines, "", f"export DUMMY_INSTANCE_IP={url}"]))


def _url(host: str, port: int) -> str:
    """Where to reach a server on this machine that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
