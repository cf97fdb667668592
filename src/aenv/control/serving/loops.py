"""Event loops: uvloop's, or one that goes on when the kernel gives its user no more epoll watches.

The kernel counts the watches of all epoll descriptors by user (`fs.epoll.max_user_watches`). Where a gateway and
its instances have the same user, one instance can take them all. libuv calls `abort()` when epoll refuses a
descriptor, and the process ends; the loop here waits for such a descriptor with poll instead.
"""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
from collections.abc import Callable, Mapping
from typing import Any

_Ready = list[tuple[selectors.SelectorKey, int]]


def factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """How a server of this user makes its loop: only root's instances have users of their own."""
    if os.geteuid() != 0:
        return new_steady_loop
    import uvloop

    return uvloop.new_event_loop


def new_steady_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(SteadySelector())


class SteadySelector(selectors.BaseSelector):
    """Waits with epoll; for what epoll refuses, with poll, which nothing but memory limits.

    Nothing is moved back: what comes later is asked of epoll again, so the other set empties by itself.
    """

    def __init__(self) -> None:
        self._epoll = selectors.EpollSelector()
        self._poll = selectors.PollSelector()
        self._inner = self._poll.register(self._epoll.fileno(), selectors.EVENT_READ)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if fileobj in self._poll.get_map():
            raise KeyError(f"{fileobj!r} is registered already")
        try:
            return self._epoll.register(fileobj, events, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            return self._poll.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._of(fileobj).unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._of(fileobj).modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._of(fileobj).get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        refused = {fd: key for fd, key in self._poll.get_map().items() if key is not self._inner}
        return {**self._epoll.get_map(), **refused} if refused else self._epoll.get_map()

    def select(self, timeout: float | None = None) -> _Ready:
        if len(self._poll.get_map()) == 1:  # nearly always
            return self._epoll.select(timeout)
        ready = self._poll.select(timeout)
        others = [one for one in ready if one[0] is not self._inner]
        return others if len(others) == len(ready) else [*others, *self._epoll.select(0)]

    def close(self) -> None:
        self._epoll.close()
        self._poll.close()

    def _of(self, fileobj: Any) -> selectors.BaseSelector:
        return self._poll if fileobj in self._poll.get_map() else self._epoll
