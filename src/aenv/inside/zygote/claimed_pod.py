"""`python3 -m aenv.inside.zygote.claimed_pod`: a runtime in a Pod that waits until an engine says what it becomes.

It listens where instances are called. The first connection that brings the token gives it files, variables and
arguments (`base/pod_claim.py`), and gets the ready line. Then the port is that of the instance.
"""

from __future__ import annotations

import argparse
import hmac
import io
import json
import os
import select
import signal
import socket
import sys
import tarfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

from ...base import logs, mcp, settings
from ...base.errors import AEnvError, InvalidRequest
from ...base.pod_claim import MAX_LINE_BYTES, PodClaim
from ..runtime import program
from ..runtime.loader import add_requirements, load
from ..runtime.serving import bind
from .preloaded import PreloadedInstance

_PATIENCE = 20.0  # seconds for a connection to bring its claim
_NOT_YET = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
"""For who asks whether it serves: a cluster does every second."""
_FILES_PATIENCE = 120.0  # seconds without a byte, for its files


class ClaimListener:
    """The listening socket, and what has been loaded for the next claim."""

    def __init__(self, listener: socket.socket, token: str) -> None:
        self._listener = listener
        self._token = token
        self._connection: socket.socket | None = None

    def claim(self) -> PodClaim:
        """Wait for the next one that has the token; its files are in place. Others get no answer."""
        while True:
            connection, _ = self._listener.accept()
            try:
                connection.settimeout(_PATIENCE)
                with connection.makefile("rb") as stream:
                    line = stream.readline(MAX_LINE_BYTES)
                    if line.startswith(b"GET "):
                        connection.sendall(_NOT_YET)
                        connection.close()
                        continue
                    said = PodClaim.parse(line)
                    if not hmac.compare_digest(said.token.encode(), self._token.encode()):
                        raise InvalidRequest("not the token of this Pod")
                    connection.settimeout(_FILES_PATIENCE)
                    if said.files_bytes:
                        unpack(Limited(stream, said.files_bytes))
                connection.settimeout(None)
            except (AEnvError, OSError, tarfile.TarError) as error:
                print(f"aenv: a connection was refused: {error}", file=sys.stderr, flush=True)
                connection.close()
                continue
            self._connection = connection
            return said

    def answer(self, line: bytes) -> None:
        """Say the ready line to who brought the claim, and end the connection."""
        with self.take_connection() as connection:
            connection.sendall(line)

    def take_connection(self) -> socket.socket:
        assert self._connection
        connection, self._connection = self._connection, None
        return connection

    def has_next(self) -> bool:
        return bool(select.select([self._listener], [], [], 0)[0])

    def options(self, said: PodClaim) -> program.RuntimeOptions:
        """Take over the claim's variables, arguments and folder; what serves it then has the connection."""
        variables = {**_kept(settings.variables()), **said.variables}
        if said.variables_file:
            note(Path(said.variables_file), variables)
        settings.give(variables)
        if said.workspace:
            os.chdir(said.workspace)
        sys.argv = [said.project, *said.arguments]
        return program.RuntimeOptions(
            Path(said.project),
            fd=self._listener.detach(),
            ready_fd=self.take_connection().detach(),
            requirements=Path(said.requirements) if said.requirements else None,
            no_history=not said.keep_history,
            arguments=list(said.arguments),
            drain=said.drain,
        )


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="python3 -m aenv.inside.zygote.claimed_pod", description=__doc__)
    parser.add_argument("--token", required=True, help="what a claim must bring")
    parser.add_argument("--port", type=int, default=8081, help="port to listen on")
    told = parser.parse_args()
    # The first process of a container is ended by no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    logs.configure("INFO", sys.stderr)
    listener = bind("0.0.0.0", told.port, "--port")
    listener.listen(1024)
    waiting = ClaimListener(listener, told.token)
    first = waiting.claim()
    if first.is_spare:
        _be_spare(waiting, first)
    program.serve(waiting.options(first))


def _be_spare(waiting: ClaimListener, first: PodClaim) -> NoReturn:
    """Load the environment ahead, say so, and become an instance at the next claim."""
    if first.workspace:
        os.chdir(first.workspace)
    try:
        if first.requirements:
            add_requirements(Path(first.requirements))
        loaded = load(Path(first.project), lenient=False)
    except AEnvError as error:
        waiting.answer(mcp.dumps({"ready": False, "error": error.message}) + b"\n")
        os._exit(1)
    except BaseException:  # boundary: the author's code
        traceback.print_exc()
        waiting.answer(mcp.dumps({"ready": False, "error": traceback.format_exc()}) + b"\n")
        os._exit(1)
    instance = PreloadedInstance(
        loaded,
        None,
        first.keep_history,
        has_news=waiting.has_next,
        join=lambda: True,  # it is in all groups already
        tell=lambda: (waiting.options(waiting.claim()), False),
        announce=waiting.answer,
    )
    program.run(instance.serve(), None)


class Limited(io.RawIOBase):
    """The next bytes of a stream, and no more of it."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream = stream
        self._left = left

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece


def unpack(stream: Limited) -> None:
    """Write the files of a tar below the root folder. We may write no more there than the instance may."""
    with tarfile.open(fileobj=stream, mode="r|") as packed:
        for entry in packed:
            packed.extract(entry, "/", filter="tar")
    stream.read()  # what pads the archive


def note(file: Path, variables: Mapping[str, str]) -> None:
    """Write them down for commands that are started beside us, as the same user."""
    text = json.dumps(dict(variables)).encode("utf-8", "surrogateescape")
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:
        written.write(text)


def _kept(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of the image that an instance needs; those that the cluster adds are not for it."""
    return {name: value for name, value in variables.items() if not name.startswith("KUBERNETES_")}


if __name__ == "__main__":
    main()
