"""The processes of a benchmark: servers that answer, workers that measure, and what /proc says of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, BinaryIO

import psutil

from aenv.base.addresses import Origin, parse_url
from tests.redis_server import redis_server

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "tests" / "environments" / "portable"

START_SECONDS = 120

_SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    pass
"""


@contextmanager
def server(command: list[str], port: int, variables: Mapping[str, str] | None = None) -> Iterator[int]:
    """The pid of `command`, once it answers on `port`. Its output is thrown away."""
    _check_free(port)
    process = _start(command, variables)
    try:
        until_it_answers(process, port)
        yield process.pid
    finally:
        _end(process)


@dataclass(frozen=True)
class Listening:
    """A server of ours on a free port."""

    pid: int
    origin: Origin


@contextmanager
def listening(*command: str) -> Iterator[Listening]:
    """`python -m` of a server that takes --ready-fd, once it is ready; RuntimeError, with its words, otherwise."""
    ready, told = os.pipe()
    with open(ready) as answers, tempfile.TemporaryFile() as said:
        process = _start([sys.executable, "-m", *command, "--ready-fd", str(told)], pass_fds=[told], stderr=said)
        os.close(told)  # ours, so that the server's end reads as the end of the file
        try:
            line = answers.readline()
            if not line:
                said.seek(0)
                words = said.read()[-2000:].decode(errors="replace")
                raise RuntimeError(f"{process.args!r} ended before it was ready: {words}")
            yield Listening(process.pid, parse_url(json.loads(line)["url"])[0])
        finally:
            _end(process)


@contextmanager
def awake_cores() -> Iterator[None]:
    """Keep each core busy with a process that gives way to every other one.

    A core of a virtual machine that sleeps takes 20 to 50 us to wake, at each step from one process to the next.
    """
    with ExitStack() as stack:
        for core in os.sched_getaffinity(0):
            stack.callback(_end, _start([sys.executable, "-c", _SPIN, str(core)]))
        yield


@contextmanager
def confined_to(core: int) -> Iterator[None]:
    """What is started inside runs on this core alone: one of those that we may use, counted from 0."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[core % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def stores(stack: ExitStack, count: int = 1) -> dict[str, list[str]]:
    """The urls of `count` empty stores of each kind; Redis, as it is installed, where it is."""
    urls = {"SQLite": [""] * count}
    if shutil.which("redis-server"):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(redis_server(folder, "--appendfsync", "everysec"))
        urls["Redis"] = [f"redis://127.0.0.1:{server.port}/{number}" for number in range(count)]
    return urls


@contextmanager
def bare_python() -> Iterator[Callable[[], list[float]]]:
    """Measures R: the seconds that `python -c pass` takes in a virtual environment with nothing in it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        python = str(Path(folder, "bin", "python"))

        def starts() -> list[float]:
            moments = [time.perf_counter()]
            for _ in range(3):
                subprocess.run([python, "-c", "pass"], check=True)
                moments.append(time.perf_counter())
            return [end - begin for begin, end in pairwise(moments)]

        yield starts


def cold_start(command: list[str], port: int) -> float:
    """Seconds from the start of `command` to its first HTTP answer on `port`."""
    _check_free(port)
    begin = time.perf_counter()
    process = _start(command)
    try:
        until_it_answers(process, port)
        return time.perf_counter() - begin
    finally:
        _end(process)


def until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    """Return at the first answer. Asks every millisecond: the published runtime has no way to tell."""
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not answer on port {port}")
        time.sleep(0.001)


def _check_free(port: int) -> None:
    if _answers(port):
        raise RuntimeError(f"port {port} is taken, and the published client knows no other; run it as root")


def _answers(port: int) -> bool:
    # A route of the runtimes; the gateway answers 404, which is an answer too.
    request = b"GET /functions/list HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(request)
            return connection.recv(64).startswith(b"HTTP/1.1 ")
    except ConnectionError:
        return False


class Worker:
    """`worker.py` with some Python, alive for many measurements."""

    def __init__(self, process: subprocess.Popen[bytes], complaints: BinaryIO) -> None:
        self._process = process
        self._complaints = complaints

    def measure(self, what: str, count: int) -> list[float]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"do": what, "count": count}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._complaints.seek(0)
            said = self._complaints.read().decode(errors="replace")
            raise RuntimeError(f"the worker {self._process.args!r} ended while it measured {what!r}: {said}")
        return list(json.loads(answer))


@contextmanager
def worker(python: Path | str, variables: Mapping[str, str]) -> Iterator[Worker]:
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [str(python), "-W", "ignore", str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=_variables(variables),
        )
        try:
            yield Worker(process, complaints)
        finally:
            process.communicate()  # the end of its input ends it


def context_switches(pid: int) -> int:
    """How often the threads of `pid` came to a processor or left it: the count of a sleeper stands still."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return total


def pss_bytes(pid: int) -> int:
    """The memory of `pid` and of all that it has started, where what some of them share counts once."""
    return sum(map(_pss_bytes, _family(pid)))


def cpu_seconds(pid: int) -> float:
    """What the threads of `pid`, and of all that it has started and that still runs, have computed.

    From nanoseconds: the ticks of `stat` would round what many sleepers do down to nothing.
    """
    return sum(map(thread_seconds, _family(pid)))


def thread_seconds(pid: int) -> float:
    """The same for the threads of `pid` alone."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _pss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _family(pid: int) -> list[int]:
    return [pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))]


class Memory:
    """How far the resident memory of `pid` rises from now on."""

    def __init__(self, pid: int) -> None:
        self._process = Path("/proc", str(pid))
        (self._process / "clear_refs").write_text("5")  # the peak is what it has now
        self._idle_bytes = self._bytes("VmRSS")

    def rise_bytes(self) -> int:
        return self._bytes("VmHWM") - self._idle_bytes

    def _bytes(self, name: str) -> int:
        [line] = [line for line in (self._process / "status").read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) << 10


def ours(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aenv.main", str(PROJECT), "--host", "127.0.0.1", *arguments]


def gateway(port: int, data_port: int) -> list[str]:
    options = ["--port", str(port), "--data-port", str(data_port), "--workers", "2"]
    return [sys.executable, "-m", "aenv.cli", "serve", "--engine", "process", *options, str(PROJECT)]


def _start(
    command: list[str],
    variables: Mapping[str, str] | None = None,
    pass_fds: Collection[int] = (),
    stderr: IO[bytes] | int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        pass_fds=pass_fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd=ROOT,  # where `python -m benchmarks.…` finds it
        env=_variables(variables or {}),
    )


def _variables(more: Mapping[str, str]) -> dict[str, str]:
    unset = ("PYTHONDONTWRITEBYTECODE", "DUMMY_INSTANCE_IP", "AENV_SYSTEM_URL")
    return {**{name: value for name, value in os.environ.items() if name not in unset}, **more}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    finally:
        process.kill()  # does nothing to a process that has ended
        process.wait()
