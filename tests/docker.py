"""A Docker engine and an image registry of the tests' own, in a temporary folder; no image is ever pulled."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.system import require

USER, PASSWORD = "ada", "sesame"
_BCRYPT = "$2b$04$SkzfLero/0V.VJVyABS1kevCpzc15vPXj9toK7vOlIa7e1Mciz.22"  # of the password


ROOT = Path(__file__).resolve().parent.parent
BASE_IMAGE = "aenv-base:tests"


@contextmanager
def engine(folder: Path, driver: str = "vfs") -> Iterator[str]:
    """A running dockerd without network; the value of DOCKER_HOST for it."""
    if os.geteuid() != 0:
        pytest.skip("a Docker engine needs root")
    program = require("dockerd", "docker.io")
    require("docker", "docker.io")
    host = f"unix://{folder}/docker.sock"
    command = [program, "--host", host, "--data-root", folder / "data", "--exec-root", folder / "exec"]
    command += ["--pidfile", folder / "pid", "--storage-driver", driver]
    group = f"aenv-dockerd-{secrets.token_hex(4)}"
    command += ["--bridge", "none", "--iptables=false", "--ip6tables=false", "--cgroup-parent", f"/{group}"]
    try:
        with _started(command, "API listen on"):
            yield host
    finally:
        # The network namespace of this machine, for containers in it, stays mounted when the engine has ended.
        for mounted in (folder / "exec" / "netns").glob("*"):
            subprocess.run(["umount", mounted], capture_output=True)
        _remove_groups(group)


@contextmanager
def engine_with_base_image() -> Iterator[str]:
    """The same with a base image of this machine's files; in a short folder, because of its socket."""
    with TemporaryDirectory(prefix="aenv-dockerd-") as folder, engine(Path(folder), "overlay2") as host:
        command = [sys.executable, ROOT / "deploy" / "base-image", "--host", "--tag", BASE_IMAGE]
        subprocess.run(command, check=True, env={**os.environ, "DOCKER_HOST": host}, stdout=subprocess.DEVNULL)
        yield host


class Restarts:
    """A socket before an engine's own: it can be away for a while, as when the engine is restarted."""

    def __init__(self, host: str, path: Path) -> None:
        self.host = f"unix://{path}"
        self._behind, self._path = host.removeprefix("unix://"), path
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def begin(self) -> None:
        self._server = await asyncio.start_unix_server(self._pass_on, self._path)

    async def end(self) -> None:
        """Nothing answers any more, and what was under way breaks off."""
        assert self._server
        self._server.close()
        self._path.unlink(missing_ok=True)
        for writer in [*self._open]:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_unix_connection(self._behind)
        self._open |= {writer, before}
        await asyncio.gather(_copy(reader, before), _copy(behind, writer), return_exceptions=True)
        self._open -= {writer, before}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


def ask(host: str, *arguments: str, stdin: str = "") -> str:
    """What the docker command prints."""
    command = ["docker", "--host", host, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def leftovers(host: str) -> list[str]:
    """Containers in any state, and volumes."""
    containers = ask(host, "container", "ls", "--all", "--format", "container {{.Names}}").splitlines()
    return containers + ask(host, "volume", "ls", "--format", "volume {{.Name}}").splitlines()


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """A running registry that asks for USER and PASSWORD; its host and port."""
    program = require("docker-registry", "docker-registry")
    (folder / "htpasswd").write_text(f"{USER}:{_BCRYPT}\n")
    (folder / "registry.yml").write_text(f"""\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
http: {{addr: "127.0.0.1:0", secret: tests}}
auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}
""")
    with _started([program, "serve", folder / "registry.yml"], "listening on 127.0.0.1:") as said:
        yield f"localhost:{re.findall('listening on 127.0.0.1:([0-9]+)', said)[0]}"


@contextmanager
def _started(command: list[str | Path], ready: str) -> Iterator[str]:
    """A server that has printed `ready`, in the line that this gives; all of it has ended when the block ends."""
    with subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        said = []
        try:
            for line in process.stdout:
                said.append(line)
                if ready in line:
                    break
            else:
                _cannot("".join(said)[-1000:])
            threading.Thread(target=process.stdout.read, daemon=True).start()  # or it blocks when the pipe is full
            yield line
        finally:
            process.terminate()
            process.wait()
            _end_the_rest(process.pid)


def _end_the_rest(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return


def _remove_groups(name: str) -> None:
    """The control groups of an engine that has ended, which leaves its own: one in each hierarchy."""
    cgroups = Path("/sys/fs/cgroup")
    for group in (cgroups / name, *cgroups.glob(f"*/{name}")):
        for path, _, _ in os.walk(group, topdown=False):
            for _ in range(100):  # processes that were just killed leave their group a moment later
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.05)


def _cannot(why: str) -> None:
    message = f"no Docker engine can run here: {why}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
