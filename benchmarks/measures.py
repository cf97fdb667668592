"""What is measured, and how: a batch of theirs, a batch of ours, in turns, so that both see the same machine.

Every number is a median. The published runtime has port 8081, since its health check works on no other.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from statistics import median

from tests.venvs import create

from .processes import (
    PROJECT,
    Worker,
    awake_cores,
    cold_start,
    confined_to,
    context_switches,
    gateway,
    ours,
    server,
    worker,
)
from .report import NO_TARGET, Row, at_most

THEIR_PORT = 8081
OUR_PORT = 18081
GATEWAY_PORT = 18080
GATEWAY_DATA_PORT = 18082

ROUNDS = 7
SHORT_ROUNDS = 25  # for what takes milliseconds: the machine's moods change within seconds
IDLE_SECONDS = 10

_IMPORT = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


class Bench:
    """Everything that runs while the client measurements are taken; an `ExitStack` ends it."""

    @cached_property
    def published(self) -> Path:
        """The Python that has the published package."""
        return create("published")

    def theirs(self, port: int) -> list[str]:
        return [str(self.published), "-W", "ignore", "-m", "aenv.main", str(PROJECT), "--port", str(port)]

    def imports(self) -> list[Row]:
        rows = []
        for statement, fraction in (("import aenv", 10), ("from aenv import Environment", 8)):
            theirs, mine = in_turns(
                partial(_cpu_seconds, self.published, statement), partial(_cpu_seconds, sys.executable, statement)
            )
            target, met = at_most(fraction, theirs, mine)
            rows.append(Row(f"`{statement}`, CPU time", "ms", theirs * 1e3, mine * 1e3, target, met))
        return rows

    def starts(self) -> list[Row]:
        theirs, mine = in_turns(
            lambda: [cold_start(self.theirs(THEIR_PORT), THEIR_PORT)],
            lambda: [cold_start(ours("--port", str(OUR_PORT)), OUR_PORT)],
        )
        target, met = at_most(8, theirs, mine)
        return [Row("runtime start to first answer", "ms", theirs * 1e3, mine * 1e3, target, met)]

    def calls(self, what: str) -> list[Row]:
        """Measurements of a client on a runtime, directly."""
        names = {
            "enter": ("enter the context, direct", 3, 10),
            "tool": ("tool call P50, direct", 100, 8),
            "function": ("function call P50, direct", 30, 20),
            "reward": ("reward call P50, direct", 30, 20),
        }
        title, count, fraction = names[what]
        with ExitStack() as stack:
            their_worker, our_worker = self._direct_workers(stack)
            theirs, mine = in_turns(
                lambda: their_worker.measure(what, count), lambda: our_worker.measure(what, count)
            )
        target, met = at_most(fraction, theirs, mine)
        return [Row(title, "ms", theirs * 1e3, mine * 1e3, target, met)]

    def concurrent(self) -> list[Row]:
        with ExitStack() as stack:
            their_worker, our_worker = self._direct_workers(stack)
            theirs, mine = in_turns(
                lambda: their_worker.measure("concurrent", 2), lambda: our_worker.measure("concurrent", 2)
            )
        return [Row("tool calls, 32 at once", "/s", theirs, mine, "≥ 20 ×", mine >= 20 * theirs)]

    def through_gateway(self) -> list[Row]:
        """Ours directly, through our gateway, and by the socket that a gateway of the same host tells, in turns.

        The clients have one core and the platform has another: where the scheduler chooses, two of three processes
        share a core, and which two they are says more than what they do. There is nothing published to compare.
        """
        with ExitStack() as stack:
            with confined_to(1):
                stack.enter_context(server(ours("--port", str(OUR_PORT)), OUR_PORT))
                stack.enter_context(server(gateway(GATEWAY_PORT, GATEWAY_DATA_PORT), GATEWAY_PORT))
            url = {"AENV_SYSTEM_URL": f"http://127.0.0.1:{GATEWAY_PORT}"}
            with confined_to(0):
                direct_worker = stack.enter_context(
                    worker(sys.executable, {"DUMMY_INSTANCE_IP": f"127.0.0.1:{OUR_PORT}"})
                )
                gateway_worker, near_worker = [stack.enter_context(worker(sys.executable, url)) for _ in range(2)]
            batches = (
                lambda: direct_worker.measure("tool", 200),
                lambda: gateway_worker.measure("through", 200),
                lambda: near_worker.measure("tool", 200),
            )
            asleep, through_asleep, _ = in_turns(*batches)
            with awake_cores():
                direct, through, near = in_turns(*batches, rounds=SHORT_ROUNDS)
        bound = 1.5 * direct
        target = f"≤ {bound * 1e3:.2f} ms (direct {direct * 1e3:.2f} ms)"
        times, times_asleep = near / direct, through_asleep / asleep
        near_target = f"≤ 1.1 × (direct {direct * 1e3:.2f} ms)"
        return [
            Row("tool call P50, through our gateway", "ms", None, through * 1e3, target, through <= bound),
            Row("the same to direct, where cores sleep between", "×", None, times_asleep, NO_TARGET, True),
            Row("tool call P50, SDK on the same host, to direct", "×", None, times, near_target, times <= 1.1),
        ]

    def idle(self) -> list[Row]:
        """Context switches of runtimes that nobody calls: without a connection, and with one kept alive."""
        with ExitStack() as stack:
            their_pid = stack.enter_context(server(self.theirs(THEIR_PORT), THEIR_PORT))
            alone = stack.enter_context(server(ours("--port", str(OUR_PORT)), OUR_PORT))
            connected = stack.enter_context(server(ours("--port", str(OUR_PORT + 2)), OUR_PORT + 2))
            stack.enter_context(_kept_alive(OUR_PORT + 2))
            pids = (their_pid, alone, connected)
            time.sleep(1)  # the last work of the start is over
            before = [context_switches(pid) for pid in pids]
            time.sleep(IDLE_SECONDS)
            theirs, mine, with_connection = (
                context_switches(pid) - count for pid, count in zip(pids, before, strict=True)
            )
        what = f"idle runtime, wake-ups in {IDLE_SECONDS} s"
        return [
            Row(what, "", theirs, mine, "0", mine == 0),
            Row(f"{what}, with an open connection", "", None, with_connection, "0", with_connection == 0),
        ]

    def _direct_workers(self, stack: ExitStack) -> tuple[Worker, Worker]:
        stack.enter_context(server(self.theirs(THEIR_PORT), THEIR_PORT))
        stack.enter_context(server(ours("--port", str(OUR_PORT)), OUR_PORT))
        return (
            stack.enter_context(worker(self.published, {"DUMMY_INSTANCE_IP": "127.0.0.1"})),
            stack.enter_context(worker(sys.executable, {"DUMMY_INSTANCE_IP": f"127.0.0.1:{OUR_PORT}"})),
        )


def in_turns(*batches: Callable[[], list[float]], rounds: int = ROUNDS) -> list[float]:
    """The medians of all after some rounds in turns; a first round warms them up and is thrown away."""
    for batch in batches:
        batch()
    samples: list[list[float]] = [[] for _ in batches]
    for _ in range(rounds):
        for batch, seconds in zip(batches, samples, strict=True):
            seconds.extend(batch())
    return [median(seconds) for seconds in samples]


def _cpu_seconds(python: Path | str, statement: str) -> list[float]:
    command = [str(python), "-W", "ignore", "-c", _IMPORT.format(statement)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    return [float(done.stdout.split()[-1])]


def _kept_alive(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    return connection
