"""An agent that is a program of others: started beside the instance for each rollout, and ended with it.

It has a folder of its own as home, and no variable of the user's but PATH and LANG: keys and settings of the user
stay where they are. Its model is the captured one, and its tools are those of the environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ...base import settings
from ...base.errors import AEnvError, NotJudged
from ...base.outcomes import Outcome
from ..agents import MAX_MESSAGE, steps_of
from ..capture.endpoint import ModelAccess
from ..episodes import AgentUsage
from ..task_instances import WatchedEnvironment
from .tool_endpoint import ToolAccess, ToolEndpoint

_KEPT_BYTES = 4 << 20  # the end of what a program prints
_PIECE_BYTES = 64 << 10
_INHERITED = ("PATH", "LANG")
_WATCH = """
read -r pid
read -r word && exit
case $pid in [0-9]*) kill -9 "-$pid" ;; esac
rm -rf -- "$1"
"""


@dataclass(frozen=True)
class AgentJob:
    """What a program is to do, and where it finds its tools and its model."""

    task: str
    """What is to be done, with what the environment says to every agent before it."""
    model: str
    max_steps: int
    tools: Sequence[Mapping[str, Any]]
    """As MCP describes them."""
    tool_access: ToolAccess
    model_access: ModelAccess
    folder: Path
    """Its home, which is removed when it has ended."""

    @property
    def prompt(self) -> str:
        """The task, for a program that has tools of other kinds as well."""
        return f"Solve this task in an environment by calling its tools.\n\n{self.task}"


@dataclass(frozen=True)
class ProgramCall:
    """How a program is started."""

    argv: Sequence[str]
    stdin: str = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


class ReadyProgram(Protocol):
    """A program of others that can play. `install` is the command that installs it."""

    name: str
    install: str

    def call(self, job: AgentJob) -> ProgramCall:
        """How it is started for a job. NotJudged when it is not installed."""
        ...

    def message(self, job: AgentJob, printed: str) -> str:
        """The last thing it said, of what it has printed or left in its folder."""
        ...


class ProgramFailed(AEnvError):
    """A program ended before it had played to the end."""

    code = "program_failed"


class ProgramAgent:
    """Plays tasks with a program. `model` is the name by which it asks for its model."""

    validation, asks = False, True

    def __init__(self, program: ReadyProgram, model: str, max_steps: int | None = None) -> None:
        self.name = program.name
        self._program = program
        self._model = model
        self._max_steps = max_steps
        self._endpoint: asyncio.Task[ToolEndpoint] | None = None

    async def close(self) -> None:
        if self._endpoint:
            endpoint, self._endpoint = await self._endpoint, None
            await endpoint.__aexit__(None, None, None)

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        spent.begin(task)
        model, steps = env.model, steps_of(task, self._max_steps)
        endpoint = await self._opened()
        with tempfile.TemporaryDirectory(prefix="aenv-agent-", ignore_cleanup_errors=True) as folder:
            async with endpoint.serving(env, steps) as tools:
                known = await env.known_tools()
                job = AgentJob(_task(task), self._model, steps, known, tools, model, Path(folder))
                printed = await self._run(job)
            said = self._program.message(job, printed).strip()[:MAX_MESSAGE]
        if said:
            spent.say({"role": "assistant", "content": said})

    async def _opened(self) -> ToolEndpoint:
        """The endpoint that all rollouts of this agent share, from the first one on."""
        if self._endpoint is None:
            self._endpoint = asyncio.ensure_future(ToolEndpoint().__aenter__())
        return await asyncio.shield(self._endpoint)

    async def _run(self, job: AgentJob) -> str:
        """What it has printed when it has ended. ProgramFailed where that was not by its own will."""
        call = self._program.call(job)
        given = settings.variables()
        variables = {
            **{name: given[name] for name in _INHERITED if name in given},
            "HOME": str(job.folder),
            "TMPDIR": str(job.folder),
            **job.model_access.variables,
            **call.variables,
        }
        async with _watched(job.folder) as watch:
            try:
                process = await asyncio.create_subprocess_exec(
                    *call.argv,
                    cwd=job.folder,
                    env=variables,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise missing(self._program, f"{call.argv[0]!r}: {error.strerror or error}") from error
            try:
                watch(process.pid)
                printed, errors, _ = await asyncio.gather(
                    _tail(process.stdout), _tail(process.stderr), _feed(process.stdin, call.stdin)
                )
                code = await process.wait()
            finally:
                # With all that it has started: a program that is cancelled has no say in this.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
        if code:
            raise ProgramFailed(f"agent {self.name!r} ended with code {code}: {_why(errors or printed, job)}")
        return printed


@asynccontextmanager
async def _watched(folder: Path) -> AsyncIterator[Callable[[int], None]]:
    """Ends the program whose pid is given, with all that it has started and its folder, if this process is killed.

    A shell waits for that: its input ends with this process, before the word which says that all is well.
    """
    watcher = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _WATCH, "sh", str(folder)),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    said = watcher.stdin
    assert said
    try:
        yield lambda pid: said.write(f"{pid}\n".encode())
    finally:
        said.write(b"ended\nended\n")
        said.close()
        await asyncio.shield(watcher.wait())


def missing(program: ReadyProgram, what: str) -> NotJudged:
    """What is said of a program that is not here, with the command that installs it."""
    return NotJudged(Outcome.NOT_READY, f"agent {program.name!r} is not installed: {what}; {program.install}")


def _task(told: Mapping[str, Any]) -> str:
    parts = [str(told[name]) for name in ("system", "instruction") if told.get(name)]
    return "\n\n".join(parts or ["Begin."])


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """The end of what comes, all of which is read."""
    assert stream
    kept = b""
    while piece := await stream.read(_PIECE_BYTES):
        kept = (kept + piece)[-_KEPT_BYTES:]
    return kept.decode("utf-8", "replace")


async def _feed(stream: asyncio.StreamWriter | None, text: str) -> None:
    assert stream
    with suppress(ConnectionError):  # it does not read on
        stream.write(text.encode())
        await stream.drain()
    stream.close()


def _why(printed: str, job: AgentJob) -> str:
    """The last line of what it has printed, without its tokens."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()] or ["it printed nothing"]
    text = lines[-1][-500:]
    for token in (job.model_access.key, job.tool_access.token):
        text = text.replace(token, "***")
    return text
