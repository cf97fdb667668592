"""Plays seeds against a real gateway with two tenants, and looks after each whether all is as it must be."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.attacks.served import Served, served
from tests.gateways import make_project
from tests.ordinary import OrdinaryUser

HERE = Path(__file__).parent
MEBIBYTE = 1 << 20
_MOST_MEMORY = 256 * MEBIBYTE  # more than at the beginning
_MOST_DESCRIPTORS = 64
_PATIENCE = 20.0  # seconds after which the gateway counts as stalled
_IMPATIENCE = 0.3  # seconds that a client waits for what may never come
_ATTEMPTS = 50
_MOST_READ = 2 * MEBIBYTE
_HOST_PASSWD = "root:x:0:0:root:/root"  # an instance's own says otherwise


class Found(AssertionError):
    """A seed after which something was wrong."""

    def __init__(self, kind: str, seed: int, what: str) -> None:
        again = f".venv/bin/python -m tests.fuzz {kind} --seed {seed}"
        super().__init__(f"{what}\nreplay:  {again}\nkeep it: echo '{seed}  # what it found' >> {corpus(kind)}")
        self.seed = seed


class Fuzz:
    """A gateway under attack by one tenant, while another one works."""

    def __init__(self, gateway: Served, canary: str) -> None:
        self.gateway = gateway
        self.canary = canary
        self._process = psutil.Process(gateway.pid)
        self._neighbour = str(gateway.create("echo@1.0.0", token=gateway.tokens["b"])["id"])
        self._hostile = ""
        self._read = 0  # characters of the gateway's log
        self._connection = self._connect()
        self.echo("begun")
        self._memory = self._process.memory_info().rss
        self._descriptors = self._process.num_fds()

    def play(self, kind: str, seed: int) -> None:
        """Found when the seed breaks something."""
        try:
            PLAYS[kind](self, seed)
            self.echo(f"after {seed}")
            self._look()
        except Found:
            raise
        except (AssertionError, OSError, http.client.HTTPException, ValueError) as error:
            raise Found(kind, seed, f"{type(error).__name__}: {error}\n{self.gateway.log[-3000:]}") from error

    def end(self) -> None:
        """Nothing is held any more when the hostile instance is gone."""
        self._connection.close()
        if self._hostile:
            assert self.control("DELETE", f"/env-instance/{self._hostile}")[0] in (200, 404)
        end = time.monotonic() + _PATIENCE
        while self._process.num_fds() > self._descriptors + _MOST_DESCRIPTORS:
            assert time.monotonic() < end, (
                f"descriptors: {self._descriptors} before, {self._process.num_fds()} now"
            )
            time.sleep(0.05)  # connections end when both sides have seen it, which no event tells here

    # What the plays use

    @property
    def hostile(self) -> str:
        """The instance that sends what seeds say; a new one when the last has not survived its own tricks."""
        if self._hostile:
            status, reply = self.control("GET", f"/env-instance/{self._hostile}")
            if status != 200 or reply["data"]["status"] != "Running":
                self._hostile = ""
        if not self._hostile:
            self._hostile = str(self.gateway.create("fuzz@1.0.0", token=self.gateway.tokens["a"])["id"])
        return self._hostile

    def order(self, target: str) -> None:
        """Tell the hostile instance something, which it confirms.

        What it has sent too much before may be taken for the answer to this, which harms its own tenant alone.
        """
        for _ in range(_ATTEMPTS):
            reply = self.gateway.ask("GET", f"/instances/{self.hostile}{target}", data_port=True)
            if (reply.status, reply.body) == (200, b"ok"):
                return
        raise AssertionError(reply)

    def control(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """What the gateway answers the hostile tenant: always an envelope, and never a bug of its own."""
        reply = self.gateway.ask(method, target, body, token=self.gateway.tokens["a"])
        return reply.status, self.envelope(reply.status, reply.body)

    def envelope(self, status: int, body: bytes) -> Any:
        self.unharmed(body)
        reply = json.loads(body, parse_constant=_refuse)
        assert reply["success"] is (status == 200), (status, body[:500])
        assert reply.get("error") != "internal", body[:500]
        return reply

    def unharmed(self, body: bytes) -> None:
        """Nothing of the host is in what the gateway says."""
        text = body.decode("utf-8", "replace")
        assert self.canary not in text, "a variable of the gateway's was told"
        assert _HOST_PASSWD not in text, "a file of the host was told"

    def ask_impatiently(self, target: str, *, data_port: bool = False, **headers: str) -> tuple[int, bytes]:
        """Status and body, as far as they come soon; (0, b"") where none do, and the connection is closed."""
        connection = self._connection if data_port else self._connect(self.gateway.url)
        try:
            connection.timeout = _IMPATIENCE
            if connection.sock:
                connection.sock.settimeout(_IMPATIENCE)
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                body = response.read(_MOST_READ)
                if not response.isclosed() and response.read(1):
                    connection.close()
                return response.status, body
        except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
            connection.close()
            # What this client cannot take for its size is fine; what is not HTTP is not.
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                raise
            return 0, b""
        finally:
            if not data_port:
                connection.close()

    def echo(self, text: str) -> None:
        """The other tenant's instance answers, on the connection that the hostile one was just asked on."""
        connection = self._connection
        connection.timeout = _PATIENCE
        if connection.sock:
            connection.sock.settimeout(_PATIENCE)
        try:
            self._echo(connection, text)
        except (ConnectionError, http.client.RemoteDisconnected):  # it was closed while it lay there
            connection.close()
            self._echo(connection, text)

    def _echo(self, connection: http.client.HTTPConnection, text: str) -> None:
        body = json.dumps({"text": text})
        kind = {"content-type": "application/json"}
        connection.request("POST", f"/instances/{self._neighbour}/tools/echo", body, kind)
        with connection.getresponse() as response:
            said = response.read()
        assert response.status == 200, (response.status, said[:500])
        assert json.loads(said)["data"]["content"][0]["text"] == text, said[:500]

    def _connect(self, url: str = "") -> http.client.HTTPConnection:
        address = urlsplit(url or self.gateway.data_url)
        return http.client.HTTPConnection(address.hostname or "", address.port, timeout=_PATIENCE)

    def _look(self) -> None:
        assert self._process.is_running(), "the gateway is another process"
        reply = self.gateway.ask("GET", "/health")
        assert reply.status == 200, reply
        grown = self._process.memory_info().rss - self._memory
        assert grown < _MOST_MEMORY, f"the gateway grew by {grown / MEBIBYTE:.0f} MiB"
        with open(self.gateway.folder / "log") as log:
            log.seek(self._read)
            said, self._read = log.read(), log.tell()
        assert " ERROR: " not in said, "the gateway's log has an error, which is what it calls a bug of its own"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


# One function for each kind


def _play_reply(fuzz: Fuzz, seed: int) -> None:
    fuzz.unharmed(fuzz.ask_impatiently(f"/instances/{fuzz.hostile}/reply/{seed}", data_port=True)[1])


def _play_history(fuzz: Fuzz, seed: int) -> None:
    fuzz.order(f"/history/{seed}")
    token = {"authorization": f"Bearer {fuzz.gateway.tokens['a']}"}
    status, body = fuzz.ask_impatiently(f"/env-instance/{fuzz.hostile}/history", **token)
    if status and len(body) < _MOST_READ:
        fuzz.envelope(status, body)


def _play_ready(fuzz: Fuzz, seed: int) -> None:
    status, reply = fuzz.control("POST", "/env-instance", {"envName": "fuzz@1.0.0", "arguments": [str(seed)]})
    fuzz.control("GET", "/env-instance/*/list")
    if status == 200:
        target = f"/env-instance/{reply['data']['id']}"
        assert fuzz.control("GET", target)[0] == 200
        assert fuzz.control("DELETE", target)[0] in (200, 404)


def _play_log(fuzz: Fuzz, seed: int) -> None:
    fuzz.order(f"/log/{seed}")
    token = {"authorization": f"Bearer {fuzz.gateway.tokens['a']}"}
    logs = f"/env-instance/{fuzz.hostile}/logs"
    targets = (logs, f"{logs}?follow=1") if seed % 4 == 0 else (logs,)  # what is followed has no end to wait for
    for target, accept in itertools.product(targets, ("text/plain", "text/event-stream")):
        status, body = fuzz.ask_impatiently(target, accept=accept, **token)
        fuzz.unharmed(body)
        if status >= 400:
            fuzz.envelope(status, body)


def _play_boot(fuzz: Fuzz, seed: int) -> None:
    """An environment of its own for each seed: what is loaded ahead is loaded once."""
    gateway, name = fuzz.gateway, f"boot-{seed}"
    project = gateway.project(name, preload=["boot_ahead"])
    code = (HERE / "environment.py").read_text().replace("\nLOG =", f"\nSEED = {seed}\nLOG =", 1)
    (project / "src" / "boot_ahead.py").write_text(code)
    shutil.copy(HERE / "generators.py", project / "src")
    # Unverified: that would load it outside.
    key = {
        "HUB_BACKEND": gateway.url,
        "AENV_HOME": str(gateway.folder / "client"),
        "AENV_API_KEY": gateway.tokens["a"],
    }
    done = gateway.run("push", "--no-verify", str(project), **key)
    assert done.returncode == 0, done.stderr
    status, reply = fuzz.control("POST", "/env-instance", {"envName": f"{name}@1.0.0"})
    # Whatever became of that one: other tenants' instances are made as before.
    other = gateway.create("echo@1.0.0", token=gateway.tokens["b"])
    assert gateway.ask("DELETE", f"/env-instance/{other['id']}", token=gateway.tokens["b"]).status == 200
    if status == 200:
        assert fuzz.control("DELETE", f"/env-instance/{reply['data']['id']}")[0] in (200, 404)


PLAYS: dict[str, Callable[[Fuzz, int], None]] = {
    "reply": _play_reply,
    "history": _play_history,
    "ready": _play_ready,
    "log": _play_log,
    "boot": _play_boot,
}


@contextlib.contextmanager
def fuzzing(user: OrdinaryUser | None = None) -> Iterator[Fuzz]:
    """A gateway that root runs, or this user, with both tenants' environments."""
    canary = f"canary-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        hostile = make_project(folder, "fuzz", code=(HERE / "environment.py").read_text())
        shutil.copy(HERE / "generators.py", hostile / "src")
        with served(
            user,
            accounts=True,
            projects=[make_project(folder), hostile],
            arguments=[
                "--rate-limit",
                "0",
                "--freeze-after",
                "0",
                "--start-timeout",
                "10s",
                "--log-level",
                "WARNING",
            ],
            variables={"CANARY": canary},
        ) as gateway:
            fuzz = Fuzz(gateway, canary)
            yield fuzz
            fuzz.end()


def run(fuzz: Fuzz, kind: str, first: int, seconds: float) -> int:
    """Play the corpus of a kind, then fresh seeds from `first` on, for so long; says how many were played."""
    end = time.monotonic() + seconds
    played = 0
    for seed in itertools.chain(seeds(kind), itertools.count(first)):
        if played >= len(seeds(kind)) and time.monotonic() >= end:
            break
        fuzz.play(kind, seed)
        played += 1
    return played


def corpus(kind: str) -> Path:
    return HERE.relative_to(HERE.parent.parent) / "corpus" / f"{kind}.txt"


def seeds(kind: str) -> list[int]:
    """Those that have found something before."""
    lines = (HERE / "corpus" / f"{kind}.txt").read_text().splitlines()
    return [int(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
