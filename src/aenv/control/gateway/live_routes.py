"""The live list of instances: a stream of events with the caller's instances, their changes, and what they use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any

from starlette.responses import Response, StreamingResponse

from ...base import mcp
from ...base.errors import NotFound, TooManyRequests, Unavailable
from ...base.wire import timestamp
from ..instances.instance_access import InstanceAccess
from ..instances.instance_changes import ChangedInstance, ChangeFeed, InstanceChanges
from ..instances.ledger import Quotas
from ..instances.selection import Selection
from ..serving.accounts import Accounts, Caller, Role
from ..serving.queue import Queue
from ..serving.routes import Route, RouteCall
from ..stores.base import Store
from .inside_routes import started
from .load_history import LoadHistory

_SSE = "text/event-stream"
_EVERY = 5.0  # seconds between two events `usage`
_GATHERED = 0.1  # seconds for which changes are gathered: a burst is a few events, not thousands
_ROWS = 500  # in one event
_MAX_MEASURED = 1000  # instances of one viewer that are measured
_MAX_VIEWERS = 500
_ALIVE = b": alive\n\n"
_QUERY = {"usage": "0 leaves out the events 'usage'"}


class LiveRoutes:
    """The handler; `routes()` is the table. A stream ends when the gateway stops or its account is revoked."""

    def __init__(
        self,
        instances: InstanceAccess,
        changes: InstanceChanges,
        accounts: Accounts,
        store: Store,
        queue: Queue,
        quotas: Quotas,
        history: LoadHistory,
    ) -> None:
        self._instances = instances
        self._changes = changes
        self._accounts = accounts
        self._store = store
        self._queue = queue
        self._quotas = quotas
        self.history = history
        self._streams: set[asyncio.Event] = set()

    def routes(self) -> list[Route]:
        what = "the caller's instances, then their changes and what they use: events instances, ready, usage"
        return [Route("GET", "/env-instances/live", self._live, Role.VIEWER, what, query=_QUERY, media=_SSE)]

    def close(self) -> None:
        """End all streams: the gateway stops."""
        for closed in self._streams:
            closed.set()

    async def _live(self, call: RouteCall) -> Response:
        if len(self._streams) >= _MAX_VIEWERS:
            raise TooManyRequests(f"{_MAX_VIEWERS} streams are open already; close a page, or try again later")
        usage = call.query.get("usage") != "0"
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        events = await started(self._events(call.caller, usage=usage))
        return StreamingResponse(events, media_type=_SSE, headers=headers)

    async def _events(self, caller: Caller, *, usage: bool) -> AsyncIterator[bytes]:
        closed = asyncio.Event()
        self._streams.add(closed)
        try:
            # Watched before it is listed: what changes meanwhile is told after the list, as it is then.
            with self._changes.watched(caller) as feed:
                records = await self._instances.list(Selection(), caller)
                for first in range(0, len(records), _ROWS):
                    yield self._rows([ChangedInstance(one) for one in records[first : first + _ROWS]], caller)
                yield _event("ready", mcp.dumps({"at": timestamp(), "instances": len(records)}))
                async for event in self._go_on(feed, closed, usage=usage):
                    yield event
        finally:
            self._streams.discard(closed)

    async def _go_on(self, feed: ChangeFeed, closed: asyncio.Event, *, usage: bool) -> AsyncIterator[bytes]:
        due, is_first = time.monotonic(), True
        while not closed.is_set():
            if (now := time.monotonic()) >= due:
                due = now + _EVERY
                if not await self._may_look(feed.caller):
                    return
                try:
                    yield await self._used(feed.caller, is_first=is_first) if usage else _ALIVE
                    is_first = False
                except Unavailable:  # the store does not answer; changes here go on
                    yield _ALIVE
            await feed.wait(min(due - time.monotonic(), 1.0))
            if changed := feed.drain():
                yield self._rows(changed, feed.caller)
                await asyncio.sleep(_GATHERED)

    async def _may_look(self, caller: Caller) -> bool:
        """Whether its account is still good; while the store does not answer, nothing was revoked either."""
        if caller.account is None:
            return True
        try:
            return (await self._accounts.get(caller.account)).is_valid
        except Unavailable:
            return True
        except NotFound:
            return False

    def _rows(self, changed: Sequence[ChangedInstance], caller: Caller) -> bytes:
        rows = [one.encoded_as(self._instances.shown_id(one.record, caller)) for one in changed]
        return _event("instances", b"[" + b",".join(rows) + b"]")

    async def _used(self, caller: Caller, *, is_first: bool) -> bytes:
        records = await self._instances.list(Selection(limit=_MAX_MEASURED), caller)
        used = await self._instances.used(records)
        rows = {self._instances.shown_id(one, caller): asdict(used[one.id]) for one in records if one.id in used}
        frozen = [self._instances.shown_id(one, caller) for one in records if self._instances.is_frozen(one.id)]
        state = await self._state() if caller.is_admin else {}
        if state and is_first:
            state["history"] = self.history.moments()
        figures = self.history.figures()
        return _event(
            "usage", mcp.dumps({"at": timestamp(), "used": rows, "frozen": frozen, "figures": figures, **state})
        )

    async def _state(self) -> dict[str, Any]:
        """For administrators: how full the gateway is."""
        instances, cpu, memory = await self._store.totals("instances", "cpu", "memory")
        quotas = self._quotas
        return {
            "queue": self._queue.waiting,
            "totals": {"instances": instances, "cpu_milli": cpu, "memory_bytes": memory},
            "limits": {
                "instances": quotas.instances,
                "cpu_milli": quotas.cpu_milli,
                "memory_bytes": quotas.memory_bytes,
            },
        }


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
