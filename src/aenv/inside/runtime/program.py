"""The runtime as a program: read the command line, load the environment, serve it until told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ...base import logs, masks, mcp, settings
from ...base.container_start import ContainerStart
from ...base.errors import AEnvError, InvalidRequest
from ..author.inject import Context
from . import in_container, orphans, sidecar_client
from .history import REMEMBERED
from .loader import add_requirements, load
from .serving import ServedEnvironment, bind, offered, served
from .stdio import Stdio, take_stdout

logger = logging.getLogger("aenv.inside.runtime")


@dataclass
class RuntimeOptions:
    path: Path
    host: str = "0.0.0.0"
    port: int = 8081
    name: str = "aenv-server"
    log_level: str = "INFO"
    log_dir: Path | None = None
    lenient: bool = False
    fd: int | None = None
    ready_fd: int | None = None
    lifeline_fd: int | None = None
    control_port: int | None = None
    call_timeout: float | None = None
    requirements: Path | None = None
    no_history: bool = False
    stdio: bool = False
    stops_on_signals: bool = True
    arguments: list[str] = field(default_factory=list)
    drain: float = 0.0
    """Seconds in which requests that are under way may end, after a signal."""
    container: ContainerStart | None = None
    """What the engine says, where this is the command of a container."""
    variables: Mapping[str, str] | None = None
    """Those of the process, where they are at hand: to ask the process costs more."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Run until a signal; exit 0 after a clean stop, 1 when the environment cannot be served."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    if container := in_container.told():
        options.container = container
        options.arguments = options.arguments or [*container.arguments]
        options.no_history = options.no_history or not container.keep_history
    if options.log_dir:
        options.log_dir.mkdir(parents=True, exist_ok=True)
    log = (options.log_dir / "runtime.log").open("a", buffering=1) if options.log_dir else sys.stderr
    logs.configure(options.log_level, log)
    serve(options)


def serve(options: RuntimeOptions) -> NoReturn:
    """The same, for who has read the options already, and has set up the log."""
    sys.argv = [str(options.path), *options.arguments]
    run(_run(options), options.ready_fd, options.container)


def run(
    serving: Coroutine[Any, Any, None], ready_fd: int | None, container: ContainerStart | None = None
) -> NoReturn:
    """Be nothing but this, to the end of the process."""
    loop = new_loop()
    asyncio.set_event_loop(loop)  # for code that still asks for it outside of a coroutine
    loop.run_until_complete(run_here(serving, ready_fd, container))
    raise AssertionError("it ends the process")


async def run_here(
    serving: Coroutine[Any, Any, None], ready_fd: int | None, container: ContainerStart | None = None
) -> NoReturn:
    """The same, on the running loop."""
    try:
        await serving
        code = 0
    except AEnvError as error:
        _say(ready_fd, container, {"ready": False, "error": error.message})
        print(f"aenv: {error.message}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    # Not sys.exit: a tool that blocks forever has a thread that would keep the process alive.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where there is one: it doubles the calls a second, for four milliseconds of the start."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _parse(argv: list[str]) -> RuntimeOptions:
    import argparse  # a zygote has no command line to read

    parser = argparse.ArgumentParser(
        prog="python -m aenv.main", description="Serve an environment's tools, functions and rewards."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a Python file, or a folder (its src/ preferred)")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=8081, help="port to listen on; 0 takes a free one")
    parser.add_argument("--name", default="aenv-server", help="the server's name in MCP")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument("--log-dir", type=Path, help="write the log to runtime.log in this folder")
    parser.add_argument("--lenient", action="store_true", help="leave out files that fail to load")
    parser.add_argument("--fd", type=int, help="serve on this inherited listening socket")
    parser.add_argument("--ready-fd", type=int, help="write one JSON line here once ready")
    parser.add_argument("--lifeline-fd", type=int, help="end when the other end of this pipe is closed")
    parser.add_argument("--control-port", type=int, help="also serve the control routes here")
    parser.add_argument("--call-timeout", type=float, help="seconds a call may take (default: 3600)")
    packages = ("--requirements", "--layer")  # the second is its old name
    parser.add_argument(*packages, type=Path, help="a folder of Python packages for the environment")
    parser.add_argument("--no-history", action="store_true", help="do not remember the last calls")
    parser.add_argument("--stdio", action="store_true", help="speak MCP on standard input and output")
    # What stands behind "--" is the environment's.
    end = argv.index("--") if "--" in argv else len(argv)
    return RuntimeOptions(**vars(parser.parse_args(argv[:end])), arguments=argv[end + 1 :])


async def _run(options: RuntimeOptions) -> None:
    out = take_stdout() if options.stdio else None
    if options.requirements:
        add_requirements(options.requirements)
    registry, modules = load(options.path, lenient=options.lenient)
    context, timeout = situation(options)
    # What is loaded now lives as long as the instance: the collector need not look at it again.
    gc.freeze()
    gc.enable()
    stop = _stop_on_signals(options.lifeline_fd) if options.stops_on_signals else asyncio.Event()
    remembered = 0 if options.no_history else REMEMBERED
    async with offered(
        registry, modules, context, timeout=timeout, name=options.name, remembered=remembered
    ) as offer:
        await offer.join_parts()
        if out is not None:
            offer.calls.start(registry.starts)
            from ...base.supervision import first_of  # for desktop clients alone

            await first_of(stop.wait(), Stdio(offer.methods, out).serve())
            return
        data = _listening_socket(options)
        control = None
        if options.control_port is not None:
            control = bind(options.host, options.control_port, "--control-port")
        offer.calls.after = orphans.begin()
        ways_out = options.container.ways_out if options.container else {}
        async with served(offer, data, control) as listener, in_container.passed_on(ways_out):
            count = len(offer.tools)
            logger.info("serving %d %s at %s", count, "tool" if count == 1 else "tools", _spell(data))
            announce(options, data, offer)
            offer.calls.start(registry.starts)
            await stop.wait()
            await listener.drain(options.container.drain if options.container else options.drain)


def situation(options: RuntimeOptions) -> tuple[Context, float | None]:
    """What authors can ask about their instance, and how long a call of it may take."""
    known = settings.runtime_settings(options.variables)
    logs.masks = masks.of(settings.variables())
    context = Context(
        id=known.instance_id,
        environment=known.environment or "",
        workspace=known.workspace or Path.cwd(),
        arguments=tuple(options.arguments),
        variables=settings.variables(),
        sidecar=sidecar_client.reached_at(known.sidecar) if known.sidecar else None,
    )
    return context, options.call_timeout or known.call_timeout


def _stop_on_signals(lifeline: int | None) -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:

        def parent_is_gone() -> None:
            loop.remove_reader(lifeline)  # or its end would be told again and again
            stop.set()

        loop.add_reader(lifeline, parent_is_gone)
    return stop


def _listening_socket(options: RuntimeOptions) -> socket.socket:
    if options.container and options.container.socket:
        return in_container.listen(options.container.socket)
    if options.fd is None:
        return bind(options.host, options.port, "--port")
    try:
        return socket.socket(fileno=options.fd)
    except OSError as error:
        raise InvalidRequest(f"--fd {options.fd} is not a socket: {error.strerror}") from error


def _spell(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        return "fd"
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def announce(options: RuntimeOptions, data: socket.socket, offer: ServedEnvironment) -> None:
    """Tell the program that waits for it that requests are answered now, and what there is to call."""
    if options.ready_fd is None and not options.container:
        return
    address = _spell(data)
    line: dict[str, Any] = {"ready": True, "pid": os.getpid(), "name": options.name, "address": address}
    line["tools"] = offer.tools
    for kind, known in (("functions", offer.registry.functions), ("rewards", offer.registry.rewards)):
        line[kind] = [{"name": each.name, "description": each.description} for each in known.values()]
    _say(options.ready_fd, options.container, line)


def _say(fd: int | None, container: ContainerStart | None, line: dict[str, Any]) -> None:
    if container and container.ready_line:
        sys.stdout.flush()
        in_container.say(mcp.dumps(line) + b"\n")
    if fd is None:
        return
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(mcp.dumps(line) + b"\n")
