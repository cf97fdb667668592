"""The only HTTP client of the SDK and the CLI: control routes, envelopes, retries.

Retried are requests that are safe to repeat: those that never reached the server, those it refused with 429 or
503, and the control routes, which are idempotent by the client's choice of id. A tool call never is.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from ..base import errors, mcp, wire
from ..base.addresses import Origin
from ..base.errors import AEnvError, NetworkError, TooManyRequests, Unavailable
from ..base.http1 import Body, Headers, Pool, Response
from ..base.replies import unwrap
from .instance_replies import Instance, value_of

if TYPE_CHECKING:
    from ..base.models import WarmPool

logger = logging.getLogger("aenv.client.api")

_MAX_BACKOFF = 10.0
_MAX_ERROR_BYTES = 1 << 20


class SharedPool:
    """One connection pool per event loop, shared by every client on it and closed with the last of them."""

    def __init__(self) -> None:
        self.pool = Pool()
        self._users = 0

    @classmethod
    def acquire(cls) -> SharedPool:
        """The pool of the running loop. Give it back with `release`."""
        loop = asyncio.get_running_loop()
        shared = _pools.get(loop)
        if shared is None:
            shared = _pools[loop] = cls()
        shared._users += 1
        return shared

    async def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            _pools.pop(asyncio.get_running_loop(), None)
            await self.pool.close()


_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, SharedPool] = weakref.WeakKeyDictionary()


class Api:
    """The control routes of a gateway."""

    def __init__(
        self, origin: Origin, *, api_key: str | None = None, timeout: float = 60.0, max_retries: int = 10
    ) -> None:
        self.origin = origin
        self._api_key = api_key
        self._timeout = timeout
        self._max_retries = max_retries
        self._shared: SharedPool | None = None

    async def __aenter__(self) -> Api:
        self.pool()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared:
            await shared.release()

    def pool(self) -> Pool:
        """The connections of the running loop."""
        if self._shared is None:
            self._shared = SharedPool.acquire()
        return self._shared.pool

    async def create_instance(
        self,
        id: str,
        body: Mapping[str, Any],
        *,
        timeout: float | None = None,
        patience: float | None = None,
        leases: str = "",
    ) -> Instance:
        """The new instance. Safe to repeat: the same id is the same instance.

        `leases` is the key of the request that shall hold a lease on it.
        """
        headers = [(wire.LEASES_HEADER, leases)] if leases else []
        made = await self.call("PUT", _path(id), body, timeout=timeout, patience=patience, headers=headers)
        return Instance.of(made)

    async def get_instance(self, id: str) -> Instance:
        return Instance.of(await self.call("GET", _path(id)))

    async def list_instances(self, which: str = "*", **filters: str | int) -> list[Instance]:
        """The instances of "*", "name" or "name@version"; filters are owner, label, status, limit, cursor."""
        query = f"?{urlencode(filters)}" if filters else ""
        found = await self.call("GET", f"/env-instance/{quote(which, safe='*@')}/list{query}")
        return [Instance.of(each) for each in found or ()]

    async def delete_instance(self, id: str, *, missing_ok: bool = True) -> None:
        """End an instance; one that is gone already is fine unless told."""
        with suppress(errors.NotFound) if missing_ok else nullcontext():
            await self.call("DELETE", _path(id))

    async def delete_instances(self, label: str) -> int:
        """End all instances with the label "key=value", and say how many."""
        gone = await self.call("DELETE", f"/env-instances?{urlencode({'label': label})}")
        return value_of(gone, "deleted", int)

    async def renew_instance(self, id: str, ttl: str) -> Instance:
        """The instance, which lives for `ttl` from now."""
        return Instance.of(await self.call("PUT", f"{_path(id)}/ttl", {"ttl": ttl}))

    async def keep_warm(self, name: str, version: str, count: int) -> WarmPool:
        """The spare instances of an environment, of which `count` shall be ready."""
        from ..base.models import WarmPool  # here, since programs of agents do without pydantic

        path = f"/env/{quote(name, safe='')}/{quote(version, safe='')}/warm"
        return WarmPool.model_validate(await self.call("PUT", path, {"count": count}))

    async def presign_url(self, id: str, port: int, minutes: float) -> str:
        """A URL of a port inside the instance, which works for so many minutes."""
        body = {"port": port, "expiration_time_in_minutes": minutes}
        return value_of(await self.call("POST", f"{_path(id)}/presign-url", body), "url", str)

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        patience: float | None = None,
        whole: bool = False,
        headers: Headers = (),
    ) -> Any:
        """The `data` of the reply's envelope, after retries. Raises the error that the server named.

        With `whole` the envelope itself, for what stands beside `data`.

        `patience` is for how many seconds a 429 is not a reason to give up; None leaves that to `max_retries`.
        """
        attempt = 0
        gives_up = time.monotonic() + (math.inf if patience is None else patience)
        while True:
            try:
                reply = await self._once(method, path, body, timeout or self._timeout, headers)
                return reply if whole else reply.get("data")
            except (NetworkError, TooManyRequests, Unavailable) as error:
                if not self._may_repeat(method, error) or attempt >= self._max_retries:
                    raise
                delay = backoff(attempt, error)
                if isinstance(error, TooManyRequests) and time.monotonic() + delay > gives_up:
                    raise
                await asyncio.sleep(delay)
                attempt += 1

    async def raw(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: Body = b"",
        *,
        timeout: float | None = None,
    ) -> Response:
        """A response whose body is still to be read, for what is streamed or no envelope. Never repeated.

        Any status but 2xx is raised as the error that it carries. `timeout` is that of the response's head.
        """
        async with in_time(self.origin, method, path, timeout or self._timeout):
            response = await self.pool().request(
                self.origin, method, path, [*headers, *self._authorization()], body
            )
            if 200 <= response.status < 300:
                return response
            reply = await response.read(_MAX_ERROR_BYTES)
        with self._told_of_keys():
            unwrap(response, reply, self.origin)
        raise NetworkError(f"{self.origin} answered {method} {path} with {response.status}")

    def _may_repeat(self, method: str, error: AEnvError) -> bool:
        if isinstance(error, errors.ConnectFailed):
            return self.origin.socket is None  # a unix socket does not come back while we wait
        return method != "POST" or not isinstance(error, NetworkError)

    async def _once(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float, more: Headers
    ) -> Any:
        headers = [("accept", "application/json"), ("content-type", "application/json"), *more]
        headers += self._authorization()
        payload = mcp.dumps(body) if body is not None else b""
        async with in_time(self.origin, method, path, timeout):
            response = await self.pool().request(self.origin, method, path, headers, payload)
            reply = await response.read()
        with self._told_of_keys():
            return unwrap(response, reply, self.origin, whole=True)

    @contextmanager
    def _told_of_keys(self) -> Iterator[None]:
        """A server that wants a key says so in terms of HTTP; who has none is told how to give one."""
        try:
            yield
        except errors.Unauthenticated as error:
            if self._api_key or self.origin.socket:
                raise
            why = error.message.partition(";")[0]
            raise errors.Unauthenticated(f"{why}; set AENV_API_KEY, or run 'aenv login {self.origin}'") from None

    def _authorization(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._api_key}")] if self._api_key else []


def _path(id: str) -> str:
    return f"/env-instance/{quote(id, safe='')}"


@asynccontextmanager
async def in_time(origin: Origin, method: str, target: str, timeout: float) -> AsyncIterator[None]:
    """NetworkError when the request in the block takes longer than `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise NetworkError(f"{origin} did not answer {method} {target} within {timeout:g} s") from None


def backoff(attempt: int, error: AEnvError) -> float:
    """Seconds until the next attempt: what the server asked for, else doubling, with jitter."""
    if isinstance(error, TooManyRequests | Unavailable):
        return error.retry_after
    return min(0.05 * 2.0**attempt, _MAX_BACKOFF) * random.uniform(0.5, 1.0)
