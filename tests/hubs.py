"""Real hubs for tests: in this process, on a free port, on a store and blobs of their own."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aenv.artifacts import bundles
from aenv.base import mcp
from aenv.base.addresses import Origin
from aenv.base.config import Project
from aenv.base.http1 import Pool
from aenv.control.hub.blobs import Blobs, open_blobs
from aenv.control.hub.checkouts import Checkouts
from aenv.control.hub.hub_routes import HubRoutes
from aenv.control.serving.accounts import Accounts, Role
from aenv.control.serving.listeners import bind_tcp, serving
from aenv.control.serving.metrics import Metrics
from aenv.control.serving.rates import Rates
from aenv.control.serving.routes import Front
from aenv.control.stores.opening import open_store
from tests.archives import make_source


@dataclass
class Answer:
    """A reply, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return self.envelope["data"]

    @property
    def message(self) -> str:
        return str(self.envelope["message"])

    @property
    def envelope(self) -> dict[str, Any]:
        value: dict[str, Any] = mcp.loads(self.body)
        return value


@dataclass
class RunningHub:
    """A hub that serves, as a client sees it."""

    origin: Origin
    pool: Pool
    hub: HubRoutes
    store: Any
    blobs: Blobs
    accounts: Accounts
    checkouts: Checkouts
    home: Path

    async def ask(
        self, method: str, target: str, body: Any = None, token: str = "", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An answer; a body that is no bytes goes as JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {**({"authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        response = await self.pool.request(self.origin, method, target, list(sent.items()), content)
        names = {name.decode().lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(response.status, names, await response.read())

    async def get(self, target: str, token: str = "") -> Any:
        """The data of a good answer."""
        answer = await self.ask("GET", target, token=token)
        assert answer.status == 200, answer.body
        return answer.data

    async def ask_url(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The same for a URL that somebody gave; it must lead here."""
        parts = urlsplit(url)
        assert (parts.scheme, parts.netloc) == ("http", self.origin.authority)
        return await self.ask(method, parts.path, body, headers=headers)

    async def user(self, name: str, role: Role = Role.USER) -> str:
        """The token of a new account."""
        return (await self.accounts.create(name, role))[1]

    async def upload(self, content: bytes, digest: str, token: str = "") -> Answer:
        """Announce and send a whole bundle."""
        announced = await self.ask("POST", "/bundles", {"digest": digest, "size_bytes": len(content)}, token)
        if announced.status != 200 or announced.data["exists"]:
            return announced
        return await self.ask("PUT", f"/bundles/{digest}?offset={announced.data['offset']}", content, token)

    async def push(self, name: str, version: str, token: str = "", files: Any = None, **body: Any) -> Answer:
        """Pack and push a project with these further files."""
        with tempfile.TemporaryDirectory() as folder:
            source = make_source(Path(folder, "source"), name, version, **(files or {}))
            bundle = bundles.pack(source, Path(folder, "a"))
            sent = await self.upload(Path(folder, "a").read_bytes(), bundle.digest, token)
            if sent.status != 200:
                return sent
        return await self.ask(
            "POST", "/env", {"name": name, "version": version, "bundle": bundle.digest, **body}, token
        )


@contextlib.asynccontextmanager
async def running_hub(
    home: Path, *, store: str = "", blobs: str = "", local: Mapping[str, Mapping[str, Project]] | None = None
) -> AsyncIterator[RunningHub]:
    """A hub without accounts: everybody is an administrator until `user` makes the first."""
    async with open_store(store, home) as opened, open_blobs(blobs, home) as kept, Pool() as pool:
        accounts, hub = Accounts(opened), HubRoutes(opened, kept, home, local)
        front = Front(accounts, Rates(opened, 0, {}), Metrics(), loopback_only=True)
        listener = bind_tcp("127.0.0.1", 0)
        origin = Origin("127.0.0.1", listener.getsockname()[1])
        async with serving(front.app(hub.routes()), [listener]):
            yield RunningHub(origin, pool, hub, opened, kept, accounts, Checkouts(home, kept), home)


def pack(folder: Path, version: str = "1.0.0") -> tuple[bytes, str]:
    """The bytes and digest of a new bundle of 3 MB."""
    source = make_source(folder / f"source-{version}", "echo", version, data=os.urandom(3_000_000))
    digest = bundles.pack(source, folder / "packed").digest
    return (folder / "packed").read_bytes(), digest


async def announce(hub: RunningHub, content: bytes, digest: str, token: str = "") -> dict[str, Any]:
    """What the hub says that it has of a bundle."""
    answer = await hub.ask("POST", "/bundles", {"digest": digest, "sizeBytes": len(content)}, token)
    assert answer.status == 200, answer.body
    data: dict[str, Any] = answer.data
    return data


def incoming(hub: RunningHub) -> list[Path]:
    """The uploads that have not been finished."""
    return sorted((hub.home / "blobs" / "incoming").glob("*"))


async def published_push(hub: RunningHub, content: bytes, token: str = "", version: str = "1.0.0") -> None:
    """What the published command line does: ask for a URL, upload, then publish the record."""
    url = (await hub.ask("POST", f"/env/echo/{version}/sign", token=token)).data
    sent = await hub.ask_url("PUT", url, content, {"x-oss-object-acl": "public-read-write"})
    assert sent.status == 200
    body = {"name": "echo", "version": version, "codeUrl": f"oss://x/echo-{version}.tar", "status": "Ready"}
    assert (await hub.ask("POST", "/env/", body, token)).status == 200
