"""A real Redis server for tests, on a free port, with its files in a folder of its own."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.system import require

_KEEP_EVERYTHING = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")


class RedisServer:
    """A server that writes every change to the disk before it answers, and so loses none when it is killed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()
        self._log: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return when it accepts connections, with what it had; the port stays the same."""
        while not self._start_on(self.port or _free_port()):
            assert self.port == 0, f"port {self.port} was taken meanwhile"

    def stop(self) -> None:
        """End it orderly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It keeps its connections, and answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> Any:
        """What it says to a command of the operator's."""
        with redis.Redis(port=self.port, protocol=2) as client:
            return client.execute_command(*words)

    def logs(self, text: str) -> bool:
        """Wait until it logs `text`; False when it ends without."""
        said = []
        for line in iter(self._log.get, ""):
            said.append(line)
            if text in line:
                return True
        if "Address already in use" not in "".join(said):
            pytest.fail(f"redis-server ended: {''.join(said)[-1000:]}")
        return False

    def _start_on(self, port: int) -> bool:
        """Start it; False when the port is taken."""
        program = require("redis-server", "redis-server")
        where = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(self._folder))
        self._process = subprocess.Popen(
            [program, *where, *_KEEP_EVERYTHING, *self._options], stdout=subprocess.PIPE, text=True
        )
        self._log = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()
        if not self.logs("Ready to accept connections"):
            self.kill()
            return False
        self.port = port
        return True

    def _read(self, process: subprocess.Popen[str]) -> None:
        """To the end, whether or not somebody wants it: a full pipe would stop the server."""
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                self._log.put(line)
        self._log.put("")

    def _end(self, with_signal: int) -> None:
        if self._process:
            self._process.send_signal(with_signal)
            self._process.wait()
            self._reader.join()
            self._process = None


@contextlib.contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """A server that runs; `options` are those of redis-server's command line."""
    server = RedisServer(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def redis_cluster(folder: Path, nodes: int = 1) -> Iterator[list[RedisServer]]:
    """The nodes of a cluster, each with its part of the slots."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(nodes):
            (folder / str(number)).mkdir()
            servers.append(stack.enter_context(redis_server(folder / str(number), "--cluster-enabled", "yes")))
        for number, server in enumerate(servers):
            first, last = 16384 * number // nodes, 16384 * (number + 1) // nodes - 1
            server.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            server.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            servers[0].command("CLUSTER", "MEET", "127.0.0.1", str(server.port))
        for server in servers:
            assert server.logs("Cluster state changed: ok")
        yield servers


def _free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_536:  # a cluster's nodes talk on the port 10,000 above
            return port
