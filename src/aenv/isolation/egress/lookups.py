"""Lookups of names, each in a thread of its own, so that a name server which never answers holds up one lookup.

The event loop's own `getaddrinfo` has few threads for everything in the process: four lookups that hang, of any
instances, and all others wait. A thread cannot be ended either: the resolver gives up after half a minute or so.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Sequence

_MOST = 1024  # at a time, of all instances: each is a thread that waits


class Lookups:
    """Called with a host and a port: the addresses, as the host's resolver has them. OSError when there are none.

    How many of them one instance may have under way is for the caller to say.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._running = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if self._running >= self._most:
            raise OSError(errno.EAGAIN, "too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def ended(addresses: list[str], error: OSError | None) -> None:
            self._running -= 1
            if found.done():  # its caller has given up
                return
            if error:
                found.set_exception(error)
            else:
                found.set_result(addresses)

        def look_up() -> None:
            outcome: tuple[list[str], OSError | None] = ([], None)
            try:
                infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                outcome = ([str(place[0]) for *_, place in infos], None)
            except (OSError, UnicodeError) as error:
                failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, os.strerror(errno.EINVAL))
                outcome = ([], failure)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(ended, *outcome)

        thread = threading.Thread(
            target=look_up, name="lookup", daemon=True
        )  # an end of ours does not wait for it
        self._running += 1
        try:
            thread.start()
        except RuntimeError:
            self._running -= 1
            raise OSError(errno.EAGAIN, "no thread can be started to look up a name") from None
        return await found
