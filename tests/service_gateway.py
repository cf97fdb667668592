"""A gateway that has services alone: real engine, store, accounts and HTTP; in a test, or as a process of its own.

`python -m tests.service_gateway HOME MOMENT PROJECT…` prints its port when it answers, and then each change of a
service. It kills itself at the given moment: before its first write (1), after it (2), before its second (3) and
so on; 0 is never. On SIGTERM it stops, and leaves its replicas to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aenv.base import mcp
from aenv.base.addresses import Origin
from aenv.base.config import Project, load_project
from aenv.base.errors import AEnvError, ConnectFailed, NotFound, Unavailable
from aenv.base.http1 import Pool
from aenv.base.refs import Ref
from aenv.control.instances.catalog import PreparedProject
from aenv.control.services.replica import Pace
from aenv.control.services.service_records import ServiceRecord, ServiceRecords
from aenv.control.services.service_routes import ServiceRoutes
from aenv.control.services.service_supervisor import ServiceSupervisor
from aenv.control.serving import envelope, listeners
from aenv.control.serving.accounts import LOCAL, Accounts, Caller
from aenv.control.serving.metrics import Metrics
from aenv.control.serving.named_secrets import Secrets
from aenv.control.serving.rates import Rates
from aenv.control.serving.routes import Front
from aenv.control.stores.base import Delete, Document, Put
from aenv.control.stores.sqlite import SqliteStore
from aenv.engines.process import ProcessEngine

CODE = '''
import os
from pathlib import Path

from aenv import register_health, register_tool


@register_tool
def who() -> dict:
    """Which replica answers, and what it was given."""
    return {"pid": os.getpid(), "version": os.environ["envversion"], "variables": dict(os.environ)}


@register_tool
def begin(pipe: str, go: str) -> dict:
    """Say on a pipe that the call has begun, and answer when the other one says so."""
    os.close(os.open(pipe, os.O_WRONLY))
    os.close(os.open(go, os.O_RDONLY))
    return {"pid": os.getpid()}


@register_tool
def keep(text: str) -> dict:
    """Write to the storage."""
    return {"size": (Path(os.environ["AENV_STORAGE"]) / "kept").write_text(text)}


@register_tool
def kept() -> str:
    """What was written there."""
    return (Path(os.environ["AENV_STORAGE"]) / "kept").read_text()


@register_health
def health() -> dict:
    """Ill when there is a file with the name of this process."""
    ill = (Path(os.environ.get("ILL", "/none")) / str(os.getpid())).exists()
    return {"status": "error" if ill else "healthy"}
'''
BROKEN = "raise RuntimeError('this version is broken')"

QUICK = Pace(first_delay=0.01, longest_delay=0.1, check_every=0.2, recheck_after=0.02, check_timeout=0.5)


def make_project(
    folder: Path, version: str = "1.0.0", code: str = CODE, name: str = "notes", **deploy: Any
) -> Path:
    project = folder / f"{name}-{version}"
    (project / "src").mkdir(parents=True)
    (project / "config.json").write_text(json.dumps({"name": name, "version": version, "deployConfig": deploy}))
    (project / "src" / "environment.py").write_text(textwrap.dedent(code))
    return project


class Folders:
    """A catalog of project folders."""

    def __init__(self, projects: Iterable[Path]) -> None:
        self._projects: list[Project] = [load_project(path) for path in projects]

    async def find(self, ref: Ref, caller: Caller) -> Project:
        versions = {project.version: project for project in self._projects if project.name == ref.name}
        version = ref.pick(versions)
        if version is None:
            raise NotFound(f"no environment {str(ref)!r}")
        return versions[version]

    async def prepare(self, project: Project) -> PreparedProject:
        return PreparedProject(None, None)


class WatchedStore(SqliteStore):
    """A store that tells when it was written to, and can be out of reach."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_down = False
        self._written = asyncio.Event()

    async def get(self, kind: str, *keys: str) -> list[Document | None]:
        self._check()
        return await super().get(kind, *keys)

    async def write(self, *changes: Put | Delete, durable: bool = True, gather: bool = False) -> None:
        self._check()
        await super().write(*changes, durable=durable)
        self._written.set()

    def _check(self) -> None:
        if self.is_down:
            raise Unavailable("the store is down")

    async def until(self, id: str, check: Callable[[ServiceRecord | None], bool]) -> ServiceRecord | None:
        """The record of a service, once it is as it should be."""
        async for _ in self.changes():
            record = await ServiceRecords(self).find(id)
            if check(record):
                return record
        raise AssertionError

    async def changes(self) -> AsyncIterator[None]:
        """Now, and whenever something was written."""
        while True:
            self._written.clear()
            yield
            await self._written.wait()


class ServiceGateway:
    """A gateway that runs, as a client sees it."""

    def __init__(
        self,
        services: ServiceSupervisor,
        store: WatchedStore,
        accounts: Accounts,
        port: int,
        pool: Pool,
        home: Path,
    ) -> None:
        self.services = services
        self.store = store
        self.accounts = accounts
        self.origin = Origin("127.0.0.1", port)
        self.pool = pool
        self.home = home

    async def ask(
        self, method: str, target: str, body: Any = None, token: str = "", session: str = ""
    ) -> tuple[int, Any]:
        return await ask(self.pool, self.origin, method, target, body, token, session)

    async def create(self, token: str = "", ready: bool = True, **body: Any) -> dict[str, Any]:
        """A service of `notes`; `ready` waits until it runs."""
        status, reply = await self.ask("POST", "/env-service", {"envName": "notes", **body}, token)
        assert status == 200, reply
        data: dict[str, Any] = reply["data"]
        if ready:
            await self.until(data["id"])
        return data

    async def until(self, id: str, status: str = "Running", **fields: Any) -> ServiceRecord:
        """The service, once the gateway says that it has this status, and these fields."""
        async for _ in self.store.changes():
            record = await self.services.get(id, LOCAL)
            if record.status == status and all(getattr(record, name) == value for name, value in fields.items()):
                return record
        raise AssertionError

    async def call(self, id: str, tool: str, session: str = "", **arguments: Any) -> Any:
        return await call(self.pool, self.origin, id, tool, session, **arguments)

    async def pids(self, id: str, calls: int = 6) -> set[int]:
        """The processes that answer for a service."""
        return {(await self.call(id, "who"))["pid"] for _ in range(calls)}

    def leftovers(self) -> list[str]:
        return leftovers(self.home)


async def ask(
    pool: Pool, origin: Origin, method: str, target: str, body: Any = None, token: str = "", session: str = ""
) -> tuple[int, Any]:
    headers = [("authorization", f"Bearer {token}")] if token else []
    headers += [("mcp-session-id", session)] if session else []
    content = b"" if body is None else mcp.dumps(body)
    response = await pool.request(origin, method, target, headers, content)
    return response.status, mcp.loads(await response.read())


async def call(pool: Pool, origin: Origin, id: str, tool: str, session: str = "", **arguments: Any) -> Any:
    """What a tool of a service says, through its URL."""
    status, reply = await ask(pool, origin, "POST", f"/services/{id}/tools/{tool}", arguments, session=session)
    assert status == 200, reply
    structured = reply["data"].get("structured")
    return reply["data"]["content"][0]["text"] if structured is None else structured


def pipes(folder: Path) -> tuple[Path, Path]:
    pipe, go = folder / "pipe", folder / "go"
    os.mkfifo(pipe)
    os.mkfifo(go)
    return pipe, go


@contextlib.contextmanager
def open_for_both(pipe: Path) -> Iterator[None]:
    """Whoever waits for the other end of the pipe goes on; this end waits for nobody."""
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        yield
    finally:
        os.close(descriptor)


def replica_processes(home: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if str(home / "run") in _workspace(process)]


def leftovers(home: Path) -> list[str]:
    """Folders and processes of replicas below `home`."""
    folders = [path.name for path in (home / "run" / "instances").glob("*")]
    return folders + [str(process.pid) for process in replica_processes(home)]


def _workspace(process: psutil.Process) -> str:
    try:
        return process.environ().get("AENV_WORKSPACE", "")
    except psutil.Error:
        return ""


@contextlib.asynccontextmanager
async def service_gateway(
    home: Path,
    *projects: Path,
    pace: Pace = QUICK,
    start_timeout: float = 30.0,
    keep: bool = False,
    make_store: Callable[[Path], WatchedStore] = WatchedStore,
) -> AsyncIterator[ServiceGateway]:
    """With `keep` its replicas stay when it stops."""
    home.mkdir(exist_ok=True)
    engine = ProcessEngine(home)
    metrics = Metrics()
    async with make_store(home / "aenv.db") as store, Pool() as pool:
        services = ServiceSupervisor(
            engine,
            Folders(projects),  # type: ignore[arg-type]
            store,
            metrics,
            Secrets(store),
            node="here",
            home=home,
            start_timeout=start_timeout,
            pace=pace,
        )
        accounts = Accounts(store)
        async with services:
            adopted = await services.adopt(await engine.running())
            for id in {*await engine.running(), *await engine.leftovers()} - adopted:
                await engine.destroy(id)
            services.refusal = None
            with listeners.bind_tcp("127.0.0.1", 0) as listener:
                port = listener.getsockname()[1]
                front = Front(accounts, Rates(store, 0.0, {}), metrics, loopback_only=True)
                control = front.app(ServiceRoutes(services, data_port=port).routes())
                async with listeners.serving(_with_data(control, services, pool), [listener]):
                    yield ServiceGateway(services, store, accounts, port, pool, home)
                    await services.close(keep=keep)
    if not keep:
        assert leftovers(home) == []


def _with_data(control: ASGIApp, services: ServiceSupervisor, pool: Pool) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/services/"):
            await control(scope, receive, send)
            return
        request = Request(scope, receive)
        _, _, id, target = scope["path"].split("/", 3)
        session = request.headers.get("mcp-session-id")
        try:
            response = await _forward(services, pool, id, session, request.method, target, await request.body())
        except AEnvError as error:
            response = envelope.failure(error)
        await response(scope, receive, send)

    return app


async def _forward(
    services: ServiceSupervisor, pool: Pool, id: str, session: str | None, method: str, target: str, body: bytes
) -> Response:
    """As the gateway's data path does it: once more, elsewhere, when nothing could be sent."""
    for _ in range(2):
        with services.use(id, session) as origin:
            try:
                reply = await pool.request(origin, method, f"/{target}", (), body)
                return Response(await reply.read(), reply.status)
            except ConnectFailed:
                services.failed(id, origin)
    raise AssertionError("two replicas in a row were not there")


class MortalStore(WatchedStore):
    """A store that tells what becomes of services, and takes its process along when its time has come."""

    def __init__(self, path: Path, moment: int) -> None:
        super().__init__(path)
        self._left = moment

    async def write(self, *changes: Put | Delete, durable: bool = True, gather: bool = False) -> None:
        self._come_nearer()
        await super().write(*changes, durable=durable)
        self._come_nearer()
        for change in changes:
            value = change.value if isinstance(change, Put) else {"id": change.key, "status": "Gone"}
            print(json.dumps(dict(value)), flush=True)

    def _come_nearer(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(home: Path, moment: int, *projects: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with service_gateway(
        home, *projects, keep=True, make_store=lambda path: MortalStore(path, moment)
    ) as gateway:
        print(gateway.origin.port, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:])))
