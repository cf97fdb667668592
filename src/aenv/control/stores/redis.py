"""The store in Redis: for several gateways that share their records. Needs the extra `redis`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
)

from ...base.errors import InvalidRequest, Unavailable
from . import redis_scripts as scripts
from . import store_timeouts
from .base import Delete, Document, LimitReached, Page, PermitsLeft, Put, Stale
from .checks import check_changes, check_texts, check_window, cursor, dump, limits_of, position, spent

logger = logging.getLogger("aenv.control.stores.redis")

T = TypeVar("T")
RedisClient = Redis | RedisCluster

_CONNECTIONS = 64

MIGRATIONS: tuple[str, ...] = ("",)
"""The steps, in Lua, that bring the data to what this code expects. Each must bear being repeated, since Redis
does not undo what a script did before it failed. The first layout needs nothing to be made."""


class RedisStore:
    """Documents under `prefix` in a Redis server or cluster. Use it as an `async with`.

    Redis need not be there yet: calls raise Unavailable until it is. A write that raises Unavailable may have been
    made, when the connection broke behind it; it is never sent twice.
    """

    def __init__(
        self,
        url: str,
        prefix: str = "aenv",
        *,
        timeout: float = 5.0,
        migrations: Sequence[str] = MIGRATIONS,
    ) -> None:
        if not prefix or set(prefix) & set("{}\0"):
            raise InvalidRequest(f"the prefix {prefix!r} must have a character, and none of '{{', '}}' and NUL")
        self._tag = f"{{{prefix}}}"
        self._url = url
        self._name = _checked_name(url)
        self._timeout = timeout
        self._migrations = migrations
        self._client: RedisClient = self._connected_by(Redis)
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._preparing = asyncio.Lock()
        self._prepared = False
        self._lost: set[str] = set()
        """The kinds of documents of which some are listed and not there."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with contextlib.suppress(RedisError, OSError):  # what does not answer need not be told
            async with asyncio.timeout(self._timeout):
                await self._client.aclose()

    async def get(self, kind: str, *keys: str) -> list[Document | None]:
        check_texts(kind, *keys)
        found = await self._fields(f"{self._tag}:documents:{kind}", keys)
        return [text and _document(key, text) for key, text in zip(keys, found, strict=True)]

    async def write(self, *changes: Put | Delete, durable: bool = True, gather: bool = False) -> None:
        """See `Store`. How `durable` a write is, the server's `appendfsync` decides for all writes alike.

        There is nothing to `gather`: the server takes writes of one connection one after the other.
        """
        check_changes(*changes)
        limits = limits_of(*changes)
        asked = {"documents": [_change(change) for change in changes], "limits": [(n, str(x)) for n, x in limits]}
        values = [dump(change.key, change.value) if isinstance(change, Put) else "" for change in changes]
        text = json.dumps(asked, ensure_ascii=False)
        outcome, *details = await self._script(scripts.WRITE, len(self._migrations), text, *values)
        if outcome == "stale":
            stale = changes[details[0] - 1]
            raise Stale(stale.kind, stale.key)
        if outcome == "limit":
            name, limit = limits[details[0] - 1]
            raise LimitReached(name, int(details[1]), limit)
        if outcome == "version":
            self._prepared = False
            raise self._other_version(int(details[0]))

    async def page(
        self, kind: str, *terms: str, limit: int, offset: int = 0, after: str | None = None, reverse: bool = False
    ) -> Page:
        check_texts(kind, *terms)
        check_window(limit, offset)
        if not terms:
            return Page([], 0, None)
        start = "" if after is None else "\0".join(position(after))
        names = dict.fromkeys(terms)
        total, members, texts = await self._script(
            scripts.PAGE, kind, int(reverse), start, offset, limit + 1, *names
        )
        places = [member.split("\0") for member in json.loads(members)]
        found = [(key, text) for (_, key), text in zip(places, texts, strict=False)]
        if missing := [key for key, text in found if text is None]:
            self._warn_of_lost(kind, missing[0])
        documents = [_document(key, text) for key, text in found if text is not None]
        more = len(places) > limit > 0
        return Page(documents, total, cursor(*places[limit - 1]) if more else None)

    async def totals(self, *names: str) -> list[int]:
        check_texts(*names)
        return [int(amount or 0) for amount in await self._fields(f"{self._tag}:totals", names)]

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        check_texts(name, holder)
        milliseconds = max(1, round(seconds * 1000)) if seconds > 0 else 0
        return bool(await self._script(scripts.LEASE, name, holder, milliseconds))

    async def spend(self, bucket: str, *, rate: float, burst: int) -> PermitsLeft:
        check_texts(bucket)
        return spent(float(await self._script(scripts.SPEND, bucket, rate, burst)), rate, burst)

    async def _fields(self, key: str, fields: Sequence[str]) -> list[Any]:
        if not fields:
            return []
        return await self._ask(lambda client: _execute(client, "HMGET", key, *fields))

    async def _script(self, script: str, *arguments: str | float) -> Any:
        return await self._ask(lambda client: self._evaluate(client, script, *arguments))

    async def _evaluate(self, client: RedisClient, script: str, *arguments: str | float) -> Any:
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return await _execute(client, "EVALSHA", digest, 1, self._tag, *arguments)
        except NoScriptError:
            return await _execute(client, "EVAL", script, 1, self._tag, *arguments)

    async def _ask(self, question: Callable[[RedisClient], Awaitable[T]]) -> T:
        try:
            with store_timeouts.waiting(self._timeout) as seconds:
                return await self._asked(question, seconds)
        except (RedisError, RedisClusterException, OSError) as error:
            with contextlib.suppress(RedisError, OSError):
                await self._look_up_again(error)
            raise self._unavailable(self._reason(error)) from error

    async def _asked(self, question: Callable[[RedisClient], Awaitable[T]], seconds: float) -> T:
        async with asyncio.timeout(seconds), self._free:
            if not self._prepared:
                await self._prepare()
            return await question(self._client)

    async def _look_up_again(self, error: Exception) -> None:
        """Let the next call find out who serves now, when those that we know have told that they no longer do."""
        client = self._client
        if isinstance(client, Redis):
            if isinstance(error, ReadOnlyError):
                await client.connection_pool.disconnect(inuse_connections=False)
        elif isinstance(error, RedisClusterException):
            self._client, self._prepared = self._connected_by(Redis), False
            await client.aclose()

    async def _prepare(self) -> None:
        """Bring the data to this code's version, the first time that Redis answers."""
        async with self._preparing:
            if self._prepared:
                return
            if isinstance(self._client, Redis):
                about = await _execute(self._client, "INFO")
                self._check_eviction(about.get("maxmemory_policy", "noeviction"), about.get("maxmemory", 0))
                if not about.get("aof_enabled"):
                    logger.warning("redis has appendonly off: records written last are lost when it crashes")
                if about.get("cluster_enabled"):
                    await self._client.aclose()
                    self._client = self._connected_by(RedisCluster)
            await self._migrate()
            self._prepared = True

    def _check_eviction(self, policy: str, maxmemory: int) -> None:
        """Records are not a cache. With a "volatile" policy only what expires is evicted: leases and permits."""
        if maxmemory and policy.startswith("allkeys"):
            raise self._unavailable(f"may evict records (maxmemory-policy {policy}); set it to noeviction", 10)
        if policy != "noeviction":
            logger.warning("redis has maxmemory-policy %s: set it to noeviction", policy)

    def _warn_of_lost(self, kind: str, key: str) -> None:
        if kind not in self._lost:
            self._lost.add(kind)
            logger.warning(
                "redis has lost records of kind %r that it lists, such as %r; restore a backup, or go on without",
                kind,
                key,
            )

    async def _migrate(self) -> None:
        version = int(await _execute(self._client, "GET", f"{self._tag}:version") or 0)
        while version < len(self._migrations):
            script = scripts.MIGRATE % self._migrations[version]
            version = await self._evaluate(self._client, script, version)
        if version > len(self._migrations):
            raise self._other_version(version)

    def _connected_by(self, kind: type[RedisClient]) -> RedisClient:
        """A client, which connects when it is used."""
        return kind.from_url(
            self._url,
            decode_responses=True,
            protocol=2,
            # The time limit is that of the whole call, in `_ask`.
            socket_timeout=None,
            socket_connect_timeout=None,
            # Its own retries would send a write again whose reply was lost.
            retry=Retry(NoBackoff(), 0),
        )

    def _reason(self, error: Exception) -> str:
        match error:
            case ReadOnlyError():
                return "is a read-only replica now"
            case OutOfMemoryError():
                return "is out of memory; raise its maxmemory"
            case AuthenticationError():
                return f"refuses the credentials in its url: {error}"
            case TimeoutError():
                return f"did not answer within {self._timeout:g} s"
        return f"failed: {error}"

    def _unavailable(self, reason: str, retry_after: float = 1.0) -> Unavailable:
        return Unavailable(f"the store {self._name!r} {reason}", retry_after)

    def _other_version(self, version: int) -> Unavailable:
        known = len(self._migrations)
        return self._unavailable(f"has version {version} and this aenv knows {known}; upgrade aenv", 60)


async def _execute(client: RedisClient, *words: str | float) -> Any:
    return await client.execute_command(*words)


def _change(change: Put | Delete) -> dict[str, Any]:
    """A change as the write script reads it; a key that is missing is nil in Lua, which null would not be."""
    put = change if isinstance(change, Put) else Put(change.kind, change.key, {})
    asked = {
        "kind": change.kind,
        "key": change.key,
        "delete": isinstance(change, Delete),
        "terms": dict(put.terms),
        "counts": {name: str(amount) for name, amount in put.counts.items()},
    }
    return asked if change.revision is None else {**asked, "revision": change.revision}


def _document(key: str, text: str) -> Document:
    revision, _, value = text.partition(" ")
    return Document(key, json.loads(value), int(revision))


def _checked_name(url: str) -> str:
    """The address in `url`, for messages: without user, password and options. Refuses a url with a mistake."""
    try:
        parts = urlsplit(url)
        name = f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
        pool: Any = Redis.from_url(url).connection_pool
        pool.make_connection()  # connects nothing yet, but finds options that do not exist
        sound = "@" not in parts.path + parts.query + parts.fragment
    except (TypeError, ValueError):
        sound = False
    if not sound:
        # Without the url, and without the first error: either could show a part of the password.
        raise InvalidRequest(
            "the store's url must be redis[s]://[user:password@]host[:port][/number]; "
            "in the password write '/', '@', '#', '?' and ':' as %2F, %40, %23, %3F and %3A"
        )
    return name
