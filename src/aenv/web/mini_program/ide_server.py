"""The server of the Mini Program IDE: its page, its requests, and the preview, on loopback.

Everything but the static files and the preview needs the token of the session. No code of a project runs here: it
runs in the instance, and in the frame of the preview, which has no origin (`preview.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ... import Chat, Environment
from ...base import mcp, origins, settings
from ...base.errors import (
    AEnvError,
    Conflict,
    EnvironmentError,
    Forbidden,
    InvalidRequest,
    NetworkError,
    NotFound,
)
from ...control.serving import envelope, listeners
from ...control.serving.centre import HEADERS, Centre
from .. import session_key
from ..session_key import SessionKey
from . import saved_project, scripted_model, workshop
from .preview import Preview
from .scripted_model import ScriptedModel
from .workshop import BuildingAgent, Workshop

_COMMAND = "aenv view --mini-program"
_MAX_BODY_BYTES = 1 << 20
_ALIVE_EVERY = 15.0  # seconds without an event, after which a comment keeps the stream open
_MAX_WATCHERS = 20


class IdeServer:
    """The application. `port` is where it listens: addresses that policies name have it."""

    def __init__(self, work: Workshop, port: int) -> None:
        self.session_key = SessionKey(_COMMAND)
        self._work = work
        self._port = port
        self._centre = Centre()
        self._preview = Preview(work)
        self._watchers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except AEnvError as error:
            response = envelope.failure(_told(error))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            response = envelope.failure(Conflict(f"{str(error.filename)!r}: {reason}; the project is not saved"))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path: str = request.scope["path"]
        reads = request.method in ("GET", "HEAD")
        if reads and path.startswith("/preview/"):
            # Its frame has no origin, so it is foreign to every check but that of the name that it was asked by.
            if not origins.is_loopback(origins.host_of(request.headers.get("host", ""))):
                raise Forbidden("the preview is on this machine; use localhost or 127.0.0.1")
            return await self._preview.answer(path.removeprefix("/preview/"), self._origin(request))
        if refused := origins.check(request.method, request.headers, loopback_only=True):
            raise Forbidden(refused)
        if reads and path == "/":
            return self._page(request)
        if reads and path.startswith("/assets/"):
            return self._centre.answer(request, path[1:])
        if (request.method, path) == ("POST", "/view/session"):
            body = await session_key.body_of(request, session_key.MAX_BYTES)
            return envelope.success({"token": self.session_key.exchange(body)})
        self.session_key.check(request)
        return await self._ide(request, path)

    async def _ide(self, request: Request, path: str) -> Response:
        match request.method, path:
            case "GET", "/ide/events":
                return self._events()
            case "GET", "/ide/file":
                return envelope.success(await self._work.read(request.query_params.get("path", "")))
            case "POST", "/ide/stop":
                await self._work.stop()
                return envelope.success(None)
        asked = await _asked(request)
        match request.method, path:
            case "POST", "/ide/chat":
                self._work.ask(_field(asked, "message"))
                return envelope.success(None)
            case "PUT", "/ide/file":
                arguments = {name: _field(asked, name) for name in ("path", "content", "digest")}
                return envelope.success(await self._work.change("put_file", **arguments))
            case "DELETE", "/ide/file":
                return envelope.success(await self._work.change("remove_file", path=_field(asked, "path")))
            case "POST", "/ide/undo" | "/ide/redo":
                return envelope.success(await self._work.change(path.rpartition("/")[2]))
            case "POST", "/ide/show":
                number = asked.get("number")
                if not isinstance(number, int):
                    raise InvalidRequest("field 'number': must be the number of a version")
                return envelope.success(await self._work.change("show_version", number=number))
        raise NotFound(f"no route {request.method} {path!r}")

    def _page(self, request: Request) -> Response:
        response = self._centre.answer(request, "mini_program.html")
        # The only frame is the preview, and it can go nowhere else.
        framed = f"frame-src {self._origin(request)}{self._preview.path}"
        response.headers["content-security-policy"] = f"{HEADERS['content-security-policy']}; {framed}"
        response.headers["cache-control"] = "no-store"  # the policy is this process's own
        return response

    def _origin(self, request: Request) -> str:
        """This server as the browser knows it. Only names that are known get into a policy."""
        host = origins.host_of(request.headers.get("host", ""))
        return f"http://{host if host in ('localhost', '127.0.0.1') else '127.0.0.1'}:{self._port}"

    def _events(self) -> Response:
        if self._watchers >= _MAX_WATCHERS:
            raise Conflict(f"{_MAX_WATCHERS} pages are open already; close one")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[bytes]:
        self._watchers += 1
        try:
            with self._work.watched() as watcher:
                yield _event("preview", {"path": self._preview.path})
                while True:
                    event = await watcher.next(_ALIVE_EVERY)
                    if event is None:
                        return
                    yield _event(*event) if event[0] else b": alive\n\n"
        finally:
            self._watchers -= 1


def _event(name: str, data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + mcp.dumps(data) + b"\n\n"


def _told(error: AEnvError) -> AEnvError:
    """What a function of the instance refuses is the request's fault, and not that of this server."""
    is_refusal = type(error) is EnvironmentError and not isinstance(error.__cause__, NetworkError)
    return InvalidRequest(error.message) if is_refusal else error


async def _asked(request: Request) -> dict[str, Any]:
    try:
        said = mcp.loads(await session_key.body_of(request, _MAX_BODY_BYTES) or b"{}")
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise InvalidRequest("the body must be a JSON object")
    return said


def _field(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"field {name!r}: must be a text")
    return value


@dataclass(frozen=True)
class ModelChoice:
    """An OpenAI-compatible model: its name, the URL of its server, and the key where that wants one."""

    name: str
    base_url: str
    key: str | None = field(default=None, repr=False)


@asynccontextmanager
async def building(
    project: str,
    model: ModelChoice | None = None,
    *,
    home: Path | None = None,
    port: int = 0,
    first_wish: str = "",
    aenv_url: str | None = None,
    api_key: str | None = None,
) -> AsyncIterator[str]:
    """The address of the IDE, with its key, while the block lasts; without a model, a script answers.

    The project is saved below `home`, which is that of aenv unless given. An empty project begins with the
    `first_wish`, when a page is there to see it.
    """

    def make() -> Environment:
        return Environment(workshop.ENVIRONMENT, ttl=workshop.TTL, aenv_url=aenv_url, api_key=api_key)

    folder = home or settings.client_settings().home.expanduser()
    async with AsyncExitStack() as stack:
        saved = stack.enter_context(saved_project.opened(folder, project))
        agent = BuildingAgent(ScriptedModel(), scripted_model.NAME, is_script=True)
        if model:
            chat = await stack.enter_async_context(Chat(model.base_url, model.key))
            agent = BuildingAgent(chat, model.name)
        listener = stack.enter_context(listeners.bind_tcp("127.0.0.1", port))
        number = listener.getsockname()[1]
        work = Workshop(project, saved, agent, make, first_wish)
        server = IdeServer(work, number)
        await stack.enter_async_context(work.opened())
        await stack.enter_async_context(listeners.serving(server, [listener]))
        yield f"http://127.0.0.1:{number}/#key={server.session_key.key}"
