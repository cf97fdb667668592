"""The routes that reach into an instance: its logs, commands, files, ports, events and last calls.

They need the owner's token wherever accounts exist; an instance's id alone opens none of them.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from starlette.responses import Response, StreamingResponse

from ...base import mcp
from ...base.errors import InvalidRequest, TooManyRequests, Unsupported
from ...base.http1 import Pool
from ...base.models import PresignUrl, RunCommand
from ...base.wire import timestamp
from ...engines.base import MAX_ENTRIES, CommandOutput, Exec, FileEntry, Files, Logs
from ..instances import histories
from ..instances.instance_access import InstanceAccess, Use
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.named_secrets import Secrets, owner_key
from ..serving.routes import MAX_BODY_BYTES, Route, RouteCall, parse
from .instance_routes import data_url
from .tokens import Tokens

T = TypeVar("T")

_MAX_COMMAND_BYTES = 8 << 20
_MAX_TOKENS = 50_000
_DECODER = json.JSONDecoder(strict=False)
_TOKEN = re.compile(r'["\[{,:]')
_LISTINGS = 2  # at a time: each has a thread, and there are few
_LISTINGS_OF_ONE = 8  # running or waiting, of an instance
_LAST_MOMENT = 253_402_300_799.0  # the end of the year 9999
_SSE = "text/event-stream"
_BYTES = "application/octet-stream"
_FOLLOW = {"follow": "1: also what comes, until the instance ends"}
_PAGE = {
    "path": "the folder; the workspace when left out",
    "limit": f"at most so many, 1 to {MAX_ENTRIES}; {MAX_ENTRIES} unless told",
    "cursor": "`next` of the page before; the reply has one, beside `data`, when there is more",
}


class InsideRoutes:
    def __init__(
        self,
        instances: InstanceAccess,
        tokens: Tokens,
        pool: Pool,
        secrets: Secrets,
        *,
        data_port: int | None,
        public_url: str = "",
        max_body_bytes: int,
    ) -> None:
        self._instances = instances
        self._tokens = tokens
        self._pool = pool
        self._secrets = secrets
        self._data_port = data_port
        self._public_url = public_url
        self._limit = max_body_bytes
        self._listings: Counter[str] = Counter()
        self._listing = asyncio.Semaphore(_LISTINGS)

    def routes(self) -> list[Route]:
        at = "/env-instance/{id}"
        file = at + "/files/{path:path}"
        rows, url = list[dict[str, Any]], dict[str, str]
        user, viewer = Role.USER, Role.VIEWER
        printed = "what the instance printed; as text, or as server-sent events"
        presign = "a URL of a port inside, for a while"
        return [
            Route("GET", at + "/logs", self._logs, viewer, printed, query=_FOLLOW, media="text/plain"),
            Route("POST", at + "/exec", self._exec, user, "run a command", body=RunCommand, media=_SSE),
            Route("PUT", file, self._put_file, user, "write a file", reply=dict[str, Any]),
            Route("GET", file, self._get_file, viewer, "read a file", media=_BYTES),
            Route("DELETE", file, self._delete_file, user, "remove a file or folder", reply=bool),
            Route("GET", at + "/files", self._list_files, viewer, "what is in a folder", reply=rows, query=_PAGE),
            Route("GET", at + "/events", self._events, viewer, "what happened to the instance", reply=rows),
            Route("GET", at + "/history", self._history, viewer, "its last calls", reply=rows),
            Route("POST", at + "/presign-url", self._presign, user, presign, body=PresignUrl, reply=url),
        ]

    async def _logs(self, call: RouteCall) -> Response:
        engine = await self._able(call, Logs, "show logs")
        record = await self._instances.get(call.path["id"], call.caller)
        lines = await started(engine.logs(record.id, follow=call.flag("follow")))
        if record.secrets:
            masks = await self._secrets.masks(owner_key(record.owner, record.account), record.secrets)
            lines = masks.stream(lines)
        if _SSE in call.request.headers.get("accept", ""):
            return StreamingResponse(_as_events(lines), media_type=_SSE)
        return StreamingResponse(lines, media_type="text/plain; charset=utf-8")

    async def _exec(self, call: RouteCall) -> Response:
        engine = await self._able(call, Exec, "run commands")
        body = await call.body(_MAX_COMMAND_BYTES)
        if len(body) > MAX_BODY_BYTES:
            await asyncio.to_thread(_check_is_simple, body)
        asked = parse(RunCommand, body)
        command = ["/bin/sh", "-c", asked.command] if isinstance(asked.command, str) else asked.command
        output = engine.exec(call.path["id"], command, stdin=asked.stdin.encode(), timeout=asked.timeout)
        use = await self._instances.use(call.path["id"])
        return StreamingResponse(_command_events(await started(output, use)), media_type=_SSE)

    async def _put_file(self, call: RouteCall) -> Response:
        engine = await self._able(call, Files, "write files")
        with await self._instances.use(call.path["id"]):
            size = await engine.put(call.path["id"], call.path["path"], call.stream(self._limit))
        return envelope.success({"path": call.path["path"], "size_bytes": size})

    async def _get_file(self, call: RouteCall) -> Response:
        engine = await self._able(call, Files, "read files")
        content = engine.read(call.path["id"], call.path["path"])
        content = await started(content, await self._instances.use(call.path["id"]))
        # Never as something that a browser would show as a page of this host.
        headers = {"content-disposition": "attachment", "x-content-type-options": "nosniff"}
        return StreamingResponse(content, media_type=_BYTES, headers=headers)

    async def _delete_file(self, call: RouteCall) -> Response:
        engine = await self._able(call, Files, "remove files")
        with await self._instances.use(call.path["id"]):
            await engine.remove(call.path["id"], call.path["path"])
        return envelope.success(True)

    async def _list_files(self, call: RouteCall) -> Response:
        engine = await self._able(call, Files, "list files")
        limit = call.number("limit", MAX_ENTRIES, least=1, most=MAX_ENTRIES)
        path, after = call.query.get("path", ""), call.query.get("cursor", "")
        with await self._instances.use(call.path["id"]), self._turn(call.path["id"]):
            async with self._listing:
                entries = await engine.list(call.path["id"], path, after=after, limit=limit + 1)
                return await asyncio.to_thread(_listing, entries, limit)

    @contextlib.contextmanager
    def _turn(self, id: str) -> Iterator[None]:
        """A listing of an instance, as long as the block lasts. TooManyRequests when it has too many already."""
        if self._listings[id] >= _LISTINGS_OF_ONE:
            now = f"{_LISTINGS_OF_ONE} listings of instance {id!r} are under way already"
            raise TooManyRequests(f"{now}; wait until one has ended")
        self._listings[id] += 1
        try:
            yield
        finally:
            self._listings -= Counter([id])  # which leaves out what is at 0

    async def _events(self, call: RouteCall) -> Response:
        return envelope.success((await self._instances.get(call.path["id"], call.caller)).events)

    async def _history(self, call: RouteCall) -> Response:
        record = await self._instances.running(call.path["id"], call.caller)
        with await self._instances.use(record.id) as address:
            return envelope.success(await histories.ask(self._pool, address.origin, record.id))

    async def _presign(self, call: RouteCall) -> Response:
        asked = await call.read(PresignUrl)
        record = await self._instances.running(call.path["id"], call.caller)
        await self._instances.port(record.id, asked.port)
        lifetime = 60 * asked.expiration_time_in_minutes
        token = self._tokens.sign(record.id, call.caller.account, port=asked.port, lifetime=lifetime)
        base = "" if call.is_local_socket else self._public_url or data_url(call.host, self._data_port)
        return envelope.success({"url": f"{base}/ports/{token}/"})

    async def _able(self, call: RouteCall, kind: type[T], what: str) -> T:
        """The engine, for an instance of the caller's that runs; Unsupported when it cannot do this."""
        await self._instances.running(call.path["id"], call.caller)
        engine: object = self._instances.engine
        if not isinstance(engine, kind):
            raise Unsupported(f"the {self._instances.engine.name} engine cannot {what} of an instance")
        return engine


def _check_is_simple(body: bytes) -> None:
    """Refuse a long body of very many values: to read it would hold up the loop. One long text takes no time.

    For a thread: what it does it does in small steps, so that others go on.
    """
    text = body.decode(errors="replace")
    count = at = 0
    while found := _TOKEN.search(text, at):
        count += 1
        if count > _MAX_TOKENS:
            raise InvalidRequest(
                "field 'command': has too many arguments; in a body of more than 1 MiB only 'stdin' may be long"
            )
        at = found.end()
        if found[0] == '"':
            try:
                _, at = _DECODER.raw_decode(text, found.start())
            except ValueError as error:
                raise InvalidRequest(f"the body is not JSON: {error}") from None


def _listing(entries: list[FileEntry], limit: int) -> Response:
    """A page of a folder; one entry more than its limit says that there is another page."""
    rows = [
        {
            "path": entry.path,
            "kind": entry.kind,
            "size_bytes": entry.size_bytes,
            # Code inside chooses it, and not every number is a date.
            "modified_at": timestamp(min(max(entry.modified_at, 0.0), _LAST_MOMENT)),
        }
        for entry in entries[:limit]
    ]
    more = {"next": entries[limit - 1].path.rpartition("/")[2]} if len(entries) > limit else {}
    return envelope.success(rows, **more)


async def started(items: AsyncIterator[T], use: Use | None = None) -> AsyncIterator[T]:
    """The same items, once the first is there: until then an error can still be a reply. `use` ends with them."""
    try:
        first = [await anext(items)]
    except StopAsyncIteration:
        first = []
    except BaseException:
        if use:
            use.end()
        raise

    async def rest() -> AsyncIterator[T]:
        try:
            for item in first:
                yield item
            async for item in items:
                yield item
        finally:
            await items.aclose()  # type: ignore[attr-defined]
            if use:
                use.end()

    return rest()


async def _as_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffered = b""
    async for piece in pieces:
        *lines, buffered = (buffered + piece).split(b"\n")
        for line in lines:
            yield b"data: " + line + b"\n\n"
    if buffered:
        yield b"data: " + buffered + b"\n\n"


async def _command_events(pieces: AsyncIterator[CommandOutput]) -> AsyncIterator[bytes]:
    """What a command printed as text where it is text, and in base64 where it is not."""
    decoders = {name: codecs.getincrementaldecoder("utf-8")() for name in ("stdout", "stderr")}
    async for piece in pieces:
        if piece.stream == "exit":
            for name, decoder in decoders.items():
                if rest := decoder.getstate()[0]:
                    yield _event(name, {"base64": base64.b64encode(rest).decode()})
            yield _event("exit", {"code": piece.exit_code})
            continue
        decoder = decoders[piece.stream]
        held = decoder.getstate()[0]
        try:
            if text := decoder.decode(piece.data):
                yield _event(piece.stream, {"text": text})
        except UnicodeDecodeError:
            decoder.reset()
            yield _event(piece.stream, {"base64": base64.b64encode(held + piece.data).decode()})


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + mcp.dumps(data) + b"\n\n"
