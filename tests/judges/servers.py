"""Servers for other people's clients: child processes that end with their `with` block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.netns import Namespace
from tests.raw import connected

ENVIRONMENTS = Path(__file__).resolve().parent.parent / "environments"


@dataclass(frozen=True)
class Served:
    """A server that answers now."""

    address: str
    pid: int
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Gateway:
    """A gateway that answers now."""

    url: str
    data_url: str

    def create(self, name: str) -> dict[str, Any]:
        """What it says of a new instance."""
        with connected(self.url) as raw:
            reply = raw.call("/env-instance", {"envName": name})
        assert reply.status == 200, reply.body
        return dict(reply.json()["data"])


@contextmanager
def runtime(path: Path, *options: str, space: Namespace | None = None) -> Iterator[Served]:
    """Our runtime: on a free port, or inside `space` on 8081. Ends when the block does."""
    command = ["-m", "aenv.main", str(path), "--host", "127.0.0.1", "--port", "8081" if space else "0", *options]
    with _announced([sys.executable, *command], space) as said:
        assert said.get("ready"), f"the runtime did not start: {said}"
        yield Served(said["address"], said["pid"], tuple(said["tools"]))


@contextmanager
def gateway(home: Path, *projects: Path, space: Namespace | None = None) -> Iterator[Gateway]:
    """`aenv serve` with these environments: on free ports, or inside `space` on 8080 and 8081."""
    ports = [] if space else ["--port", "0", "--data-port", "0"]
    command = [
        "-m",
        "aenv.cli",
        "serve",
        "--engine",
        "process",
        "--home",
        str(home),
        *ports,
        *(str(project) for project in projects),
    ]
    with _announced([sys.executable, *command], space) as said:
        yield Gateway(said["url"], said["data_url"])


@contextmanager
def _announced(command: list[str], space: Namespace | None) -> Iterator[dict[str, Any]]:
    """What `command` says in its ready line, while it runs."""
    read, write = os.pipe()
    with os.fdopen(read) as ready, child([*command, "--ready-fd", str(write)], space, keep=(write,)) as process:
        os.close(write)  # ours, so that the child's exit reads as end-of-file
        line = ready.readline()
        assert line, f"{command} ended before it was ready: {process.output()}"
        yield json.loads(line)


@contextmanager
def local_run(path: Path, space: Namespace) -> Iterator[None]:
    """`aenv run` inside `space`, with its control port 8080 and its data port 8081."""
    with child([sys.executable, "-m", "aenv.cli", "run", str(path)], space) as process:
        process.wait_for_line("export DUMMY_INSTANCE_IP=")
        yield


@contextmanager
def published_runtime(python: Path, path: Path, space: Namespace) -> Iterator[Served]:
    """The published runtime on 8081 of `space`; its health check works on no other port."""
    with child([str(python), "-m", "aenv.main", str(path)], space) as process:
        process.wait_for_line("Uvicorn running on")
        yield Served("http://127.0.0.1:8081", process.process.pid)


class Child:
    """A running process. A thread reads its output all the time: a full pipe would block it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for_line(self, text: str, timeout: float = 60) -> str:
        """The first line of its output that has `text` in it."""

        def found() -> str | None:
            return next((line for line in self._lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: self._ended or found(), timeout)
            line = found()
        assert line, f"{self.process.args} did not print {text!r}; it printed: {self.output()}"
        return line

    def output(self) -> str:
        return "".join(self._lines)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()  # does nothing to a process that has ended
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                with self._news:
                    self._lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


@contextmanager
def child(
    command: list[str],
    space: Namespace | None = None,
    keep: tuple[int, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[Child]:
    """`command` as a child process, inside `space` if given; `keep` are descriptors that it inherits."""
    process = subprocess.Popen(
        space.command(*command) if space else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=keep,
        env={**os.environ, **(variables or {})},
    )
    running = Child(process)
    try:
        yield running
    finally:
        running.end()
