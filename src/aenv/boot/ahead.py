"""Namespaces that are made ahead, while nobody asks for an instance.

A network and a root that is built but for /proc take the kernel a millisecond and a half. One instance enters
them, and they go with it.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from dataclasses import dataclass

from ..sandbox import mounts, namespaces, system

logger = logging.getLogger("aenv.boot.ahead")

_SPARES = 4


@dataclass(frozen=True)
class Spare:
    """What was made for one instance."""

    root: int
    network: int | None

    def enter(self) -> None:
        """Be in them; and on the stage, where the root is built."""
        system.setns(self.root, "mount")
        if self.network is not None:
            system.setns(self.network, "network")

    def close(self) -> None:
        """Whoever is in them keeps them."""
        os.close(self.root)
        if self.network is not None:
            os.close(self.network)


class Ahead:
    """The spares of a zygote: for instances like the last one."""

    def __init__(self, stage: mounts.Stage, *, host_network: bool) -> None:
        self._stage = stage
        self._kinds = {"mount": "mnt"} if host_network else {"mount": "mnt", "network": "net"}
        self._own = {kind: _namespace(file) for kind, file in self._kinds.items()}
        self._view: mounts.View | None = None
        self._spares: deque[Spare] = deque()
        self._can_make = True

    @property
    def wants_more(self) -> bool:
        return self._view is not None and self._can_make and len(self._spares) < _SPARES

    def take(self, view: mounts.View) -> Spare | None:
        """One with such a root, for the caller to close; None when there is none."""
        if view != self._view:
            while self._spares:
                self._spares.pop().close()
            self._view = view
        self._can_make = True
        return self._spares.popleft() if self._spares else None

    def make(self) -> None:
        """Make one."""
        assert self._view is not None, "wanted"
        try:
            system.unshare(*self._kinds)
            if "network" in self._kinds:
                namespaces.bring_up_loopback()
            mounts.build_root(self._stage, self._view)
            made = {kind: _namespace(file) for kind, file in self._kinds.items()}
            self._spares.append(Spare(made["mount"], made.get("network")))
        except OSError as error:
            self._can_make = False  # until the next instance, which will say what is wrong
            logger.debug("no namespaces can be made ahead: %s", error)
        finally:
            for kind, descriptor in self._own.items():
                system.setns(descriptor, kind)


def _namespace(file: str) -> int:
    return os.open(f"/proc/self/ns/{file}", os.O_RDONLY | os.O_CLOEXEC)
