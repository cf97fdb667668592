"""One watch over all Pods of our gateways: what is known of each, and who waits for a change.

However many instances there are, this is one list and one open request. When the server has forgotten where we
were (410), when it ends the request, and every few minutes in any case, the list is read again: a change that was
missed is then found. Not here: what a Pod's status means (`pod_state.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ...base.errors import AEnvError
from ...base.supervision import Tasks
from .cluster_client import Cluster, Gone, Pods, answer_of, asked_pause
from .pod_state import Pod

logger = logging.getLogger("aenv.engines.kubernetes")

Result = TypeVar("Result")
_RESYNC = 300  # seconds after which everything is listed again
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0
_rest = asyncio.sleep


class PodWatch:
    """The Pods with these labels, by name. `async with` watches them; before the first list it knows none."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str], *, resync: int = _RESYNC) -> None:
        self.pods: dict[str, Pod] = {}
        self.lists = 0
        """How often everything was listed, for tests and metrics."""
        self.cluster = self._cluster = cluster
        self.kind = Pods
        self._labels = labels
        self._resync = resync
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._listed = asyncio.Event()
        self._failure: AEnvError | None = None
        self._tasks = Tasks()
        self.on_change: Callable[[str], None] = lambda name: None

    async def __aenter__(self) -> PodWatch:
        await self._tasks.__aenter__()
        self._tasks.keep("the watch of Pods", self._run)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.__aexit__(asyncio.CancelledError)  # its loops never end by themselves

    async def until(self, name: str, judge: Callable[[Pod | None], Result | None]) -> Result:
        """What `judge` says of the Pod, as soon as that is not None. None stands for a Pod that is gone."""
        while True:
            verdict = judge(self.pods.get(name))
            if verdict is not None:
                return verdict
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(name, set())
            waiting.add(changed)
            try:
                await changed
            finally:
                waiting.discard(changed)
                if not waiting:
                    self._waiting.pop(name, None)

    async def listed(self) -> None:
        """Return when all Pods are known."""
        await self._listed.wait()

    def learn(self, pod: Pod) -> None:
        """What an answer to a request of ours said, unless the watch knows better."""
        name = pod["metadata"]["name"]
        if name not in self.pods or _version(pod) > _version(self.pods[name]):
            self.pods[name] = pod
            self._tell(name)

    def forget(self, name: str) -> None:
        """The server has said that there is no such Pod."""
        if self.pods.pop(name, None):
            self._tell(name)

    async def _run(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            try:
                version = await self._list()
                async for change, pod in self._cluster.watch(Pods, self._labels, version, self._resync):
                    self._take(change, pod)
                    pause = 0.0
            except Gone:
                logger.info("the watch of Pods begins again: its version is too old")
            except AEnvError as error:
                logger.warning("the watch of Pods was interrupted: %s", error)
                named = asked_pause(answer_of(error.__cause__)) if isinstance(error.__cause__, Exception) else 0.0
                pause = max(pause, named, _FIRST_PAUSE)
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = 0.0
            # Again at once the first time; a server that ends each watch without a word is not asked without end.
            await _rest(pause)
            pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    async def _list(self) -> str:
        found, version = await self._cluster.list_with_version(Pods, self._labels)
        known = {pod["metadata"]["name"]: pod for pod in found}
        # A Pod that was made while the list was on its way is newer than the list, and not gone.
        newer = {
            name: pod for name, pod in self.pods.items() if name not in known and _version(pod) > int(version)
        }
        before = self.pods
        self.pods = {**known, **newer}
        self.lists += 1
        self._listed.set()
        for name in {*before, *self.pods}:
            if before.get(name) != self.pods.get(name):
                self._tell(name)
        return version

    def _take(self, change: str, pod: Pod) -> None:
        name = pod["metadata"]["name"]
        if change == "DELETED":
            self.pods.pop(name, None)
        elif change in ("ADDED", "MODIFIED"):
            self.pods[name] = pod
        self._tell(name)

    def _tell(self, name: str) -> None:
        for waiting in self._waiting.get(name, ()):
            if not waiting.done():
                waiting.set_result(None)
        self.on_change(name)


def _version(pod: Pod) -> int:
    with contextlib.suppress(KeyError, ValueError):
        return int(pod["metadata"]["resourceVersion"])
    return 0


def with_label(pods: Iterable[Pod], label: str, value: str) -> list[Pod]:
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get(label) == value]
