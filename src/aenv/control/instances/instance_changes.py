"""Changes of instances, as they happen, for those who watch. Only of those that this gateway looks after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ...base import mcp
from ...base.wire import EnvStatus, timestamp
from ..serving.accounts import Caller
from .records import Record


class ChangedInstance:
    """One instance as a table shows it. All viewers of a change share it, so it is encoded once."""

    def __init__(self, record: Record) -> None:
        self.record = record
        running = record.status is EnvStatus.RUNNING
        self.row: dict[str, Any] = {
            "id": record.id,
            "env": record.environment,
            "owner": record.owner,
            "status": record.status.value,
            "labels": record.labels,
            "reason": record.reason,
            "created_at": timestamp(record.created_at),
            "expires_at": timestamp(record.expires_at) if running else None,
        }

    @cached_property
    def encoded(self) -> bytes:
        return mcp.dumps(self.row)

    def encoded_as(self, shown_id: str) -> bytes:
        """With its id as lists show it to this viewer."""
        return self.encoded if shown_id == self.record.id else mcp.dumps({**self.row, "id": shown_id})


class ChangeFeed:
    """What one viewer has not been told yet: the last state of each instance, however often it changed."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._pending: dict[str, ChangedInstance] = {}
        self._some = asyncio.Event()

    def take(self, change: ChangedInstance) -> None:
        if self.caller.owns(change.record.owner):
            self._pending[change.record.id] = change
            self._some.set()

    async def wait(self, seconds: float) -> None:
        """Return when there is something to tell, or after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._some.wait()

    def drain(self) -> list[ChangedInstance]:
        told = list(self._pending.values())
        self._pending.clear()
        self._some.clear()
        return told


class InstanceChanges:
    """Where transitions tell of changes, and viewers watch."""

    def __init__(self) -> None:
        self._feeds: set[ChangeFeed] = set()

    def tell(self, record: Record) -> None:
        if self._feeds and record.self_check != "own":
            change = ChangedInstance(record)
            for feed in self._feeds:
                feed.take(change)

    @contextlib.contextmanager
    def watched(self, caller: Caller) -> Iterator[ChangeFeed]:
        """A feed that gets all changes of the caller's instances inside."""
        feed = ChangeFeed(caller)
        self._feeds.add(feed)
        try:
            yield feed
        finally:
            self._feeds.discard(feed)
