"""The server of `aenv view`: the environment centre on loopback, with local files, in front of a gateway or alone.

Other users of this machine can connect to it, and pages of other origins can try. So everything but the static
files needs the token of the session, which the page gets once, for the key in its address.
"""

from __future__ import annotations

import asyncio
import html
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .. import __version__
from ..base import mcp, origins
from ..base.addresses import Origin
from ..base.errors import AEnvError, Forbidden, NetworkError, NotFound, Unauthenticated, Unavailable
from ..base.http1 import Pool
from ..control.gateway.data_request import DataRequest
from ..control.gateway.tunnels import Tunnels
from ..control.serving import envelope, listeners
from ..control.serving.centre import Centre
from ..control.serving.upgrades import Upgrade, upgrade_of
from . import session_key
from .session_key import SessionKey
from .viewed_runs import ViewedRuns

_MAX_BODY_BYTES = 64 << 20
_LOOK_EVERY = 2.0  # seconds between two looks at the files that are shown
_PASSED_ON = ("content-type", "accept")
_PASSED_BACK = (b"content-type", b"content-disposition", b"x-total-count", b"retry-after", b"cache-control")
_LOCAL = {"user": "local", "role": "viewer", "account": None, "max_instances": None, "version": __version__}


class ViewServer:
    """The application. `platform` is where everything else is asked, with `api_key` where that needs one."""

    def __init__(
        self, runs: ViewedRuns, pool: Pool, platform: Origin | None = None, api_key: str | None = None
    ) -> None:
        self.session_key = SessionKey("aenv view")
        self._runs = runs
        self._pool = pool
        self._platform = platform
        self._api_key = api_key
        self._centre = Centre()
        self._tunnels = Tunnels()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            if upgrade := upgrade_of(scope):
                await self._tunnel(request, upgrade, send)
                return
            response = await self._answer(request)
        except AEnvError as error:
            response = envelope.failure(error)
        except OSError as error:
            response = envelope.failure(NotFound(f"{error.filename}: {(error.strerror or str(error)).lower()}"))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if refused := origins.check(request.method, request.headers, loopback_only=True):
            raise Forbidden(refused)
        path = request.url.path
        if request.method in ("GET", "HEAD") and (path == "/" or path.startswith("/assets/")):
            return self._centre.answer(request, path[1:] or "index.html")
        if (request.method, path) == ("POST", "/view/session"):
            body = await session_key.body_of(request, session_key.MAX_BYTES)
            return envelope.success({"token": self.session_key.exchange(body)})
        if (request.method, path) == ("GET", "/session") and "authorization" not in request.headers:
            return envelope.success({**_LOCAL, "user": "", "role": "anonymous"})
        self.session_key.check(request)
        match request.method, path.strip("/").split("/"):
            case "GET", ["session"]:
                return envelope.success(await self._session())
            case "GET", ["runs"]:
                return envelope.success(await asyncio.to_thread(self._runs.list))
            case "GET", ["runs", "live"]:
                return StreamingResponse(
                    self._changes(), media_type="text/event-stream", headers={"cache-control": "no-store"}
                )
            case "GET", ["runs", run]:
                return envelope.success(await asyncio.to_thread(self._runs.show, run))
            case "GET", ["runs", run, "rollouts"]:
                # The id is in the query: one of others may be "..", and browsers resolve that in a path.
                id = request.query_params.get("id", "")
                return envelope.success(await asyncio.to_thread(self._runs.trajectory, run, id))
        return await self._pass_on(request)

    async def _changes(self) -> AsyncIterator[bytes]:
        """`ready`, and `runs` when a file has changed; else a comment, so that silence means a lost connection."""
        known = await asyncio.to_thread(self._runs.versions)
        yield b"event: ready\ndata: {}\n\n"
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            found = await asyncio.to_thread(self._runs.versions)
            yield b"event: runs\ndata: {}\n\n" if found != known else b": alive\n\n"
            known = found

    async def _session(self) -> dict[str, Any]:
        caller: Mapping[str, Any] = _LOCAL
        if self._platform:
            reply = await self._ask("GET", "/session", {}, b"")
            said = mcp.loads(await reply.read())
            if reply.status != 200:
                raise Unauthenticated(str(said.get("message")))
            caller = said["data"]
        return {**caller, "runs": True, "platform": self._platform is not None}

    async def _pass_on(self, request: Request) -> Response:
        """Ask the platform, with its own key and not with the session's."""
        if self._platform is None:
            raise NotFound(f"no route {request.url.path!r}; there is no gateway behind 'aenv view FILE'")
        headers = {name: value for name in _PASSED_ON if (value := request.headers.get(name))}
        reply = await self._ask(
            request.method, _target(request), headers, await session_key.body_of(request, _MAX_BODY_BYTES)
        )
        kept = {name.decode(): value.decode("latin-1") for name, value in reply.headers if name in _PASSED_BACK}
        # An instance's page, too, comes this way: it must not be one of ours.
        safe = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}
        return StreamingResponse(aiter(reply), reply.status, headers={**kept, **safe})

    async def _tunnel(self, request: Request, upgrade: Upgrade, send: Send) -> None:
        """A WebSocket to the platform, with its own key and not with the session's."""
        if refused := origins.check(request.method, request.headers, loopback_only=True):
            raise Forbidden(refused)
        self.session_key.check(request)
        if self._platform is None:
            raise NotFound(f"no route {request.url.path!r}; there is no gateway behind 'aenv view FILE'")
        headers = [pair for pair in request.headers.raw if pair[0].startswith(b"sec-websocket-")]
        if self._api_key:
            headers.append((b"authorization", f"Bearer {self._api_key}".encode()))
        wanted = DataRequest("platform", False, None, None, _target(request), headers, 0)
        try:
            await self._tunnels.carry(upgrade, send, self._platform, wanted, until=None)
        except NetworkError as error:
            raise Unavailable(f"the gateway does not answer: {error.message}") from None

    async def _ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Any:
        assert self._platform
        sent = list(headers.items())
        if self._api_key:
            sent.append(("authorization", f"Bearer {self._api_key}"))
        try:
            return await self._pool.request(self._platform, method, target, sent, body)
        except NetworkError as error:
            raise Unavailable(f"the gateway does not answer: {error.message}") from None


def _target(request: Request) -> str:
    raw: bytes = request.scope["raw_path"]
    return raw.decode("ascii") + (f"?{request.url.query}" if request.url.query else "")


def _leading_to(url: str, folder: Path) -> str:
    """The URL of a file in a folder of the user's own, which leads a browser to `url`.

    A browser is started with its address as an argument, and every user of a machine can read those: one with
    the key in it would let others in first.
    """
    file = folder / "open.html"
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">\n')
    file.chmod(0o600)
    return file.as_uri()


@asynccontextmanager
async def viewing(
    files: Sequence[Path], *, port: int = 0, platform: Origin | None = None, api_key: str | None = None
) -> AsyncIterator[str]:
    """The address of a page that shows these files, with its key, while the block lasts."""
    async with Pool() as pool:
        server = ViewServer(ViewedRuns(files), pool, platform, api_key)
        with listeners.bind_tcp("127.0.0.1", port) as listener:
            number = listener.getsockname()[1]
            async with listeners.serving(server, [listener]):
                yield f"http://127.0.0.1:{number}/#key={server.session_key.key}"


async def serve(
    opened: AbstractAsyncContextManager[str],
    tell: Callable[[str], None],
    launch: Callable[[str], object] | None = None,
) -> None:
    """Tell the address, hand `launch` a file that leads there, and go on until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with opened as url:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            with tempfile.TemporaryDirectory(prefix="aenv-view-") as folder:
                tell(url)
                if launch:
                    launch(_leading_to(url, Path(folder)))
                await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
