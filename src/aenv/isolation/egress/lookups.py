"""Lookups of names, each in a thread of its own, so that a name server which never answers holds up one lookup.

The event loop's own `getaddrinfo` has few threads for everything in the process: four lookups that hang, of any
instances, and all others wait. A thread cannot be ended either: the resolver gives up after half a minute or so.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future

_MOST = 1024  # at a time, of all instances: each is a thread that waits


class Lookups:
    """Called with a host and a port: the addresses, as the host's resolver has them. OSError when there are none.

    How many of them one instance may have under way is for the caller to say.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._free = threading.Semaphore(most)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if not self._free.acquire(blocking=False):
            raise OSError(errno.EAGAIN, "too many names are being looked up")
        found: Future[list[str]] = Future()
        found.set_running_or_notify_cancel()  # a caller who gives up does not end it

        def look_up() -> None:
            try:
                infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found.set_result([str(place[0]) for *_, place in infos])
            except OSError as error:
                found.set_exception(error)
            except UnicodeError:
                found.set_exception(OSError(errno.EINVAL, os.strerror(errno.EINVAL)))
            finally:
                self._free.release()

        try:
            # A daemon: an end of ours does not wait for it.
            threading.Thread(target=look_up, name="lookup", daemon=True).start()
        except RuntimeError:
            self._free.release()
            raise OSError(errno.EAGAIN, "no thread can be started to look up a name") from None
        return await asyncio.wrap_future(found)
