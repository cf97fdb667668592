"""An instance on this host, called by its own socket: no gateway is on the way.

A lease at the gateway keeps it from being frozen or ended meanwhile, and is let go of after some quiet seconds.
Whatever the gateway adds to a call is kept: limits, the words for an end, which headers an instance may not say.
What only the gateway can do goes through it: rewards with a self-check, and all calls while there is no lease.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ..base import origins, wire
from ..base.addresses import Origin
from ..base.errors import ConnectFailed, NetworkError, TooLarge, ToolServerError
from ..base.http1 import Headers, Pool, Response
from ..base.limits import spell_bytes
from .lease_holder import HeldLease, LeaseHolder

T = TypeVar("T")

_TRY_AGAIN = 30.0  # seconds after the socket could not be reached, or no lease was given
_REWARD = "/task/reward"
_OUR_PREFIX = b"aenvcore-"
_NAME = "socket"  # of the file, in the folder of each instance


class NotSent(Exception):
    """The call has to go through the gateway. Nothing of it was sent."""


class NearInstance:
    """The socket of one instance, used under a lease of `LeaseHolder.of(control, api_key)`."""

    def __init__(
        self,
        id: str,
        socket: str,
        control: Origin,
        api_key: str | None,
        pool: Callable[[], Pool],
        lease: HeldLease | None = None,
    ) -> None:
        self._id = id
        self._origin = Origin("localhost", socket=socket)
        self._control = control
        self._api_key = api_key
        self._pool = pool
        self._lease = lease
        self._not_before = 0.0

    async def exchange(
        self,
        method: str,
        target: str,
        rpc_method: str,
        headers: Headers,
        body: bytes,
        read: Callable[[Response], Awaitable[T]],
    ) -> T:
        """What `read` makes of the response. NotSent when the gateway has to be asked."""
        lease = self._lease
        if lease is None or not lease.is_held or lease.loop is not asyncio.get_running_loop():
            lease = await self._taken()
        path = target.partition("?")[0]
        if len(body) > lease.grant.max_body_bytes or (path == _REWARD and not _may_reward(lease, headers)):
            raise NotSent
        status, began = 0, time.perf_counter()
        lease.begin_call()
        try:
            response = await self._pool().request(self._origin, method, target, headers, body)
            status = response.status
            _check(response, lease.grant.max_body_bytes)
            return await read(response)
        except ConnectFailed:
            path = ""
            self._not_before = time.monotonic() + _TRY_AGAIN
            raise NotSent from None
        except TooLarge as error:
            status = error.status
            raise
        except NetworkError:
            status = ToolServerError.status
            raise await self._broken(lease) from None
        finally:
            lease.end_call()
            if path:  # else nothing was sent
                lease.tally.add(method, path, rpc_method, status, time.perf_counter() - began)

    def let_go(self) -> None:
        """The instance is called no more, at least for now."""
        if self._lease:
            self._lease.let_go()

    async def _taken(self) -> HeldLease:
        if time.monotonic() < self._not_before:
            raise NotSent
        # The connection meanwhile: the first call of an instance waits for both.
        taking = LeaseHolder.of(self._control, self._api_key).take(self._id)
        self._lease, _ = await asyncio.gather(taking, self._pool().open(self._origin))
        if self._lease is None:
            self._not_before = time.monotonic() + _TRY_AGAIN
            raise NotSent
        return self._lease

    async def _broken(self, lease: HeldLease) -> ToolServerError:
        """What the gateway says to a call that it has passed on, and that had no answer."""
        if reason := await lease.why_it_ended():
            return ToolServerError(f"instance {self._id!r} ended before it had answered: {reason}")
        return ToolServerError(f"instance {self._id!r} ended the connection before it had answered")


def is_open_to_us(socket: str, control: Origin) -> bool:
    """Whether the gateway's word about a socket is to be believed: it is on this host, and of this user.

    A folder that only this user can enter holds nothing that another one has put there.
    """
    if not control.socket and not origins.is_loopback(control.host):
        return False
    path = Path(socket)
    try:
        folder, found = path.parent.stat(), path.lstat()
    except OSError:
        return False
    is_private = folder.st_uid == os.geteuid() and not folder.st_mode & 0o077
    return path.name == _NAME and is_private and stat.S_ISSOCK(found.st_mode)


def _may_reward(lease: HeldLease, headers: Headers) -> bool:
    return lease.grant.rewards and not any(name == wire.SELF_CHECK_HEADER for name, _ in headers)


def _check(response: Response, most: int) -> None:
    """Hold the instance to what the gateway would let pass."""
    kept = []
    for pair in response.headers:
        if pair[0] == b"content-length" and int(pair[1]) > most:
            response.close()
            raise TooLarge(f"the body is larger than the limit of {spell_bytes(most)}")
        if not pair[0].startswith(_OUR_PREFIX):  # not for an instance to say
            kept.append(pair)
    response.headers = kept
