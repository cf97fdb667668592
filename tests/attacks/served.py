"""A real `aenv serve` to attack: a process of root's or of an ordinary user, with the native engine.

    with served() as gateway:                                   # root's, without accounts
        made = gateway.create("echo@1.0.0")                     # by POST; the data of the reply
        assert gateway.call(made["id"], "echo", text="a").status == 200

    with served(user, accounts=True, arguments=["--require-data-token"]) as gateway:    # run by that OrdinaryUser
        made = gateway.create(token=gateway.tokens["a"], by="PUT")
        reply = gateway.ask("GET", f"/env-instance/{made['id']}", token=gateway.tokens["viewer"])
        assert (reply.status, reply.data["id"]) == (200, made["id"])

    with served(accounts=True) as gateway:
        gateway.push(gateway.project("mine", code=CODE, network="full"), token=gateway.tokens["b"])

It listens on free ports, has a home of its own (0700), serves the project `echo@1.0.0` of `tests/gateways.py`
unless other `projects` are given, and ends with the block. With `accounts` there are tokens of `admin`, of the
users `a` and `b`, and of `viewer`, who is called `a` as well, so that the viewer sees a's instances.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aenv.base import wire
from tests.command_line import environ
from tests.gateways import ECHO, make_project
from tests.ordinary import OrdinaryUser

_ACCOUNTS = {"admin": ("admin", "admin"), "a": ("a", "user"), "b": ("b", "user"), "viewer": ("a", "viewer")}
_TIMEOUT = 60.0


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case; of several with one name, the last."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """What a successful reply of a control route carries."""
        return self.json["data"]


class Served:
    """A gateway that runs."""

    def __init__(self, folder: Path, user: OrdinaryUser | None) -> None:
        self.folder = folder
        """All of it: the home, the projects, the log. Below `user.folder` where a user runs it."""
        self.user = user
        self.home = folder / "home"
        self.tokens: dict[str, str] = {}
        self.url = self.data_url = ""
        self.pid = 0

    @property
    def log(self) -> str:
        """What it has written to its stderr so far."""
        return (self.folder / "log").read_text()

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        data_port: bool = False,
    ) -> Reply:
        """One request, as it stands: no header is added but `Host`, the length, and `Authorization` for a token.

        A body that is neither bytes nor None goes as JSON, with its content type unless `headers` has another.
        """
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        if token:
            sent["authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        address = urlsplit(self.data_url if data_port else self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT)
        with contextlib.closing(connection):
            connection.request(method, target, body, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())

    def create(
        self, name: str = "echo@1.0.0", *, token: str | None = None, by: str = "POST", **body: Any
    ) -> dict[str, Any]:
        """The data of an instance that has just been created, by "POST" or, with an id of ours, by "PUT"."""
        id = wire.new_instance_id(name.partition("@")[0])
        target = "/env-instance" if by == "POST" else f"/env-instance/{id}"
        reply = self.ask(by, target, {"envName": name, **body}, token=token)
        assert reply.status == 200, reply.body
        data: dict[str, Any] = reply.data
        return data

    def call(self, id: str, tool: str, *, token: str | None = None, **arguments: Any) -> Reply:
        """A tool's reply, through the data port."""
        return self.ask("POST", f"/instances/{id}/tools/{tool}", arguments, token=token, data_port=True)

    def project(self, name: str, version: str = "1.0.0", *, code: str = ECHO, **deploy: Any) -> Path:
        """A new project in a folder of this gateway's, which its user may read."""
        folder = Path(tempfile.mkdtemp(prefix="project-", dir=self.folder))
        return self._given(folder, make_project(folder, name, version, code, **deploy))

    def push(self, project: Path, *, token: str | None = None) -> subprocess.CompletedProcess[str]:
        """`aenv push`, run by the gateway's user with this token; it may have failed."""
        variables = {"HUB_BACKEND": self.url, "AENV_HOME": str(self.folder / "client")}
        return self.run("push", str(project), **variables, **({"AENV_API_KEY": token} if token else {}))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """An `aenv` command to its end, run by the gateway's user."""
        return subprocess.run(self._command(arguments, variables), **self._process(variables), capture_output=True)

    @contextlib.contextmanager
    def _serving(self, arguments: Sequence[str], variables: Mapping[str, str]) -> Iterator[None]:
        ready, theirs = os.pipe()
        ports = ["--port", "0", "--data-port", "0", "--ready-fd", str(theirs)]
        command = self._command(["serve", "--home", str(self.home), *ports, *arguments], variables)
        with open(ready) as pipe, open(self.folder / "log", "wb") as log:
            options = self._process(variables)
            process = subprocess.Popen(command, **options, stdout=log, stderr=log, pass_fds=[theirs])
            os.close(theirs)  # ours, so that its end reads as end-of-file
            try:
                said = pipe.readline()
                assert said, self.log
                address = json.loads(said)
                self.url, self.data_url, self.pid = address["url"], address["data_url"], process.pid
                yield
            finally:
                process.terminate()
                try:
                    process.wait(_TIMEOUT)
                finally:
                    process.kill()
                    process.wait()

    def _command(self, arguments: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        if not self.user:
            return [sys.executable, "-m", "aenv.cli", *arguments]
        given = [f"{name}={value}" for name, value in variables.items()]
        return self.user.command("env", *given, str(self.user.python), "-m", "aenv.cli", *arguments)

    def _process(self, variables: Mapping[str, str]) -> dict[str, Any]:
        env = environ(**variables) if not self.user else None  # a user's are on the command line
        return {"env": env, "cwd": self.folder, "text": True, "stdin": subprocess.DEVNULL}

    def _given(self, *paths: Path) -> Path:
        for path in paths:
            if self.user:
                self.user.give(path)
        return paths[-1]


@contextlib.contextmanager
def served(
    user: OrdinaryUser | None = None,
    *,
    accounts: bool = False,
    arguments: Sequence[str] = (),
    projects: Sequence[Path] | None = None,
    pushed: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """A gateway that `user` runs, or root, with further `arguments` and `variables`.

    `projects` are copied, and served as folders; `pushed` are copied, and pushed by the admin.
    """
    parent = user.folder if user else None
    with tempfile.TemporaryDirectory(prefix="served-", dir=parent) as name:
        folder = Path(name)
        folder.chmod(0o755)
        gateway = Served(folder, user)
        gateway.home.mkdir(mode=0o700)
        (folder / "client").mkdir(mode=0o700)
        gateway._given(folder)
        if projects is None:
            folders = [gateway.project("echo")]
        else:
            folders = [_copied(gateway, project) for project in projects]
        if accounts:
            for who, (called, role) in _ACCOUNTS.items():
                home = ["--home", str(gateway.home)]
                made = gateway.run("token", "create", "--user", called, "--role", role, "--json", *home)
                assert made.returncode == 0, made.stderr
                gateway.tokens[who] = json.loads(made.stdout)["token"]
        with gateway._serving([*arguments, *map(str, folders)], variables or {}):
            for project in pushed:
                done = gateway.push(_copied(gateway, project), token=gateway.tokens.get("admin"))
                assert done.returncode == 0, done.stderr
            yield gateway


def _copied(gateway: Served, project: Path) -> Path:
    place = Path(tempfile.mkdtemp(prefix="project-", dir=gateway.folder)) / project.name
    shutil.copytree(project, place)
    return gateway._given(place.parent, place)
