"""The native engine: from the create of an instance to its first answer, and calls as fast as without isolation.

Not here: many instances at once, and what one does to its neighbours (`crowds.py`).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from aenv import Environment
from aenv.client.api import Api
from aenv.isolation.sandbox import cgroup_moves
from tests.native import traces

from . import favoured_moves
from .measures import SHORT_ROUNDS, THEIR_PORT, Bench, in_turns
from .processes import PROJECT, awake_cores, bare_python, listening, server, worker
from .report import NO_TARGET, Row, at_most, within

NAME = "portable@1.0.0"
COLD = ("--warm-memory", "0")
"""For a gateway that has no spare instance ready, not even where many are created at once."""
CREATES = 300
AT_A_TIME = 3  # as many as starts of Python in each round
SPARES = 4
QUIET = 0.015  # seconds: on a quiet machine R is about 12 ms, and only there an absolute time says something

_CALL = ("echo", {"text": "hello"})
_ANSWER = [{"type": "text", "text": "hello"}]


@dataclass(frozen=True)
class Gateway:
    """A gateway on a home of its own, and a client of it."""

    pid: int
    api: Api
    runner: asyncio.Runner

    @property
    def url(self) -> str:
        return f"http://{self.api.origin.host}:{self.api.origin.port}"

    def first_answers(self, count: int = AT_A_TIME) -> list[float]:
        """Seconds from the create of an instance to its first answer, for some one after the other."""
        return [
            self.runner.run(first_answer(Environment(NAME, aenv_url=self.url, runtime_url="")))
            for _ in range(count)
        ]


@contextmanager
def gateway(*options: str, engine: str = "native") -> Iterator[Gateway]:
    """`aenv serve` with one environment. RuntimeError when it leaves anything of its instances behind."""
    with tempfile.TemporaryDirectory() as home:
        ports = ("--port", "0", "--data-port", "0", "--rate-limit", "1000000")
        command = ("aenv.cli", "serve", str(PROJECT), "--engine", engine, "--home", home, *ports, *options)
        with listening(*command) as server, asyncio.Runner() as runner:
            api = Api(server.origin, max_retries=0)
            runner.run(_connected(api))
            try:
                yield Gateway(server.pid, api, runner)
            finally:
                runner.run(api.close())
        if left := traces(Path(home)):
            raise RuntimeError(f"the gateway left {', '.join(left)}")


async def _connected(api: Api) -> None:
    await api.list_instances()


async def first_answer(env: Environment) -> float:
    """Seconds until a tool of an environment that is not entered yet has answered. It is released then."""
    begin = perf_counter()
    async with env:
        await call(env)
        return perf_counter() - begin


async def call(env: Environment) -> float:
    """Seconds that one call takes."""
    begin = perf_counter()
    result = await env.call_tool(*_CALL)
    assert result.content == _ANSWER, result
    return perf_counter() - begin


def rows(bench: Bench) -> list[Row]:
    """How long one instance takes to answer first, and each time."""
    return [*starts(), *warm_starts(), *against_fastmcp(bench), *calls()]


def starts() -> list[Row]:
    """Without spare instances: as the host is, and with `favordynmods`, which makes moves between cgroups fast."""
    with bare_python() as python, gateway(*COLD) as cold:
        reference, seconds = _spread(python, cold)
        with _favoured() as favoured:
            favoured_seconds = _spread(python, cold)[1] if favoured else []
    what, p50 = "create to first answer, cold", median(seconds)
    is_quiet = reference <= QUIET
    absolute = ("≤ 15 ms", p50 <= 0.015) if is_quiet else (NO_TARGET, True)
    found = [
        Row(f"{what}, P50", "ms", None, p50 * 1e3, *within(0.6, reference, p50)),
        Row(
            f"the same, {'on a quiet machine' if is_quiet else 'on a busy machine'}",
            "ms",
            None,
            p50 * 1e3,
            *absolute,
        ),
        Row(f"{what}, P99 of {CREATES} to its P50", "×", None, p99(seconds) / p50, NO_TARGET, True),
    ]
    if favoured_seconds:
        times = p99(favoured_seconds) / median(favoured_seconds)
        found.append(Row("the same, with favordynmods", "×", None, times, "≤ 5 ×", times <= 5))
    return found


def _spread(python: Callable[[], list[float]], cold: Gateway) -> tuple[float, list[float]]:
    """R, and the seconds of many creates in turns with it: far enough apart that the kernel gets out of step."""
    seconds: list[float] = []

    def answers() -> list[float]:
        batch = cold.first_answers()
        seconds.extend(batch)
        return batch

    reference, _ = in_turns(python, answers, rounds=CREATES // AT_A_TIME)
    return reference, seconds[AT_A_TIME:]  # the first round warms up


def p99(seconds: list[float]) -> float:
    """What 99 of 100 do not exceed."""
    return quantiles(seconds, n=100)[98]


@contextmanager
def _favoured() -> Iterator[bool]:
    """Whether `favordynmods` is on inside; where it was not before, it is taken back as far as the kernel does."""
    if cgroup_moves.is_favoured():  # an administrator's choice, which stays
        yield True
        return
    with tempfile.TemporaryDirectory() as name:
        try:
            favoured_moves.favour_moves(Path(name))
        except OSError as error:
            print(f"left out: favordynmods: {error}", file=sys.stderr)
        try:
            yield cgroup_moves.is_favoured()
        finally:
            favoured_moves.unfavour(Path(name))


def warm_starts() -> list[Row]:
    """With spare instances, each time as many as are kept."""
    with bare_python() as python, gateway() as warm:

        async def until_full() -> None:
            while sum((await warm.api.call("GET", "/env-instances/usage"))["warm"].values()) < SPARES:
                pass  # asked again: nobody tells when a pool is full

        def answers() -> list[float]:
            seconds = []
            for _ in range(AT_A_TIME):
                warm.runner.run(until_full())
                seconds += warm.first_answers(1)
            return seconds

        name, _, version = NAME.partition("@")
        warm.runner.run(warm.api.call("PUT", f"/env/{name}/{version}/warm", {"count": SPARES}))
        reference, p50 = in_turns(python, answers, rounds=SHORT_ROUNDS)
    return [Row("create to first answer, warm pool, P50", "ms", None, p50 * 1e3, *within(0.45, reference, p50))]


def against_fastmcp(bench: Bench) -> list[Row]:
    """The published runtime, which is a FastMCP server, from its start to the first answer of a tool."""
    with gateway(*COLD) as cold:

        def answer() -> list[float]:
            begin = perf_counter()
            with server(bench.theirs(THEIR_PORT), THEIR_PORT):
                runtime = Environment(NAME, runtime_url=f"http://127.0.0.1:{THEIR_PORT}")
                cold.runner.run(first_answer(runtime))
                return [perf_counter() - begin]

        theirs, mine = in_turns(answer, cold.first_answers)
    target = at_most(60, theirs, mine)
    return [Row("the same, against a cold FastMCP subprocess", "ms", theirs * 1e3, mine * 1e3, *target)]


def calls() -> list[Row]:
    """A tool call through the gateway: to an isolated instance, and to one that is a plain process."""
    with ExitStack() as stack:
        workers = []
        for engine in ("process", "native"):
            url = stack.enter_context(gateway(engine=engine)).url
            workers.append(stack.enter_context(worker(sys.executable, {"AENV_SYSTEM_URL": url})))
        process, native = workers
        with awake_cores():
            plain, isolated = in_turns(
                lambda: process.measure("tool", 200), lambda: native.measure("tool", 200), rounds=SHORT_ROUNDS
            )
    times = isolated / plain
    target = f"≤ 1.1 × (process {plain * 1e3:.2f} ms)"
    return [Row("tool call P50, native to process", "×", None, times, target, times <= 1.1)]
