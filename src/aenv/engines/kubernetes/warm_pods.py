"""Spare Pods: they have loaded an environment, and wait to be told which instance they are.

They belong to all gateways of an installation. A gateway takes one by a change of its labels that names the
version which it has seen: of two that want the same Pod, the cluster refuses the second.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.errors import AEnvError, Conflict, NotFound
from ...base.supervision import Tasks
from ..base import InstanceSpec
from ..containers.container_labels import USER_PREFIX, labels, safe_value
from . import pod_state
from .pod_manifest import INSTANCE, KIND, SPARE, STARTING, STATE
from .pod_state import Pod
from .pod_watch import PodWatch, with_label

logger = logging.getLogger("aenv.engines.kubernetes")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_STALE = 3600.0  # seconds after which a spare Pod that no gateway here wants belongs to none

MakeSpare = Callable[[InstanceSpec, str, str], Coroutine[Any, Any, None]]
Remove = Callable[[str], Coroutine[Any, Any, None]]


@dataclass
class _Wanted:
    spec: InstanceSpec
    count: int
    making: int = 0
    pause: float = _FIRST_PAUSE


class WarmPods:
    """Keeps as many of each kind as were asked for, while it is open."""

    def __init__(self, watch: PodWatch, make: MakeSpare, remove: Remove, salt: str) -> None:
        self._watch = watch
        self._make = make
        self._remove = remove
        self._salt = salt
        self._wanted: dict[str, _Wanted] = {}
        self._tasks = Tasks()
        self._woken = asyncio.Event()

    async def __aenter__(self) -> WarmPods:
        await self._tasks.__aenter__()
        self._tasks.keep("spare Pods", self._run)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.__aexit__(asyncio.CancelledError)  # its loops never end by themselves

    def changed(self, name: str) -> None:
        """Something has happened to a Pod."""
        if self._wanted:
            self._woken.set()

    def keep(self, spec: InstanceSpec, count: int) -> None:
        kind = kind_of(spec, self._salt)
        wanted = self._wanted.setdefault(kind, _Wanted(spec, count))
        wanted.spec, wanted.count = spec, count
        self._woken.set()

    def ready(self) -> Mapping[str, int]:
        """By environment."""
        found: dict[str, int] = {}
        for kind, wanted in self._wanted.items():
            if spares := self._spares(kind):
                environment = wanted.spec.environment
                found[environment] = found.get(environment, 0) + len(spares)
        return found

    async def take(self, spec: InstanceSpec) -> Pod | None:
        """A spare Pod that is the instance's from now on; None when there is none."""
        if spec.image or not self._wanted:
            return None
        kind = kind_of(replace(spec, environment_variables={}, arguments=()), self._salt)
        own = {key: safe_value(value) for key, value in labels(spec).items() if not key.startswith(USER_PREFIX)}
        for pod in self._spares(kind):
            name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
            change = {**own, INSTANCE: spec.id, STATE: STARTING, KIND: None}
            self._watch.pods.pop(name, None)  # until the answer: others here must not ask for the same one
            try:
                taken = await self._watch.cluster.patch(
                    self._watch.kind, name, {"metadata": {"resourceVersion": version, "labels": change}}
                )
            except (Conflict, NotFound):  # another gateway was faster
                continue
            self._watch.learn(taken)
            return taken
        return None

    async def sweep(self, pods: Iterable[Pod]) -> None:
        """Remove spare Pods of kinds that no gateway has wanted for long."""
        for pod in pods:
            kind = pod["metadata"].get("labels", {}).get(KIND)
            if kind and kind not in self._wanted and pod_state.age(pod) > _STALE:
                await self._remove(pod["metadata"]["name"])

    def _spares(self, kind: str) -> list[Pod]:
        found = with_label(self._watch.pods.values(), KIND, kind)
        ready = [pod for pod in with_label(found, STATE, SPARE) if not pod_state.end_reason(pod)]
        return sorted(ready, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            for kind, wanted in list(self._wanted.items()):
                self._settle(kind, wanted)
            await self._woken.wait()

    def _settle(self, kind: str, wanted: _Wanted) -> None:
        mine = with_label(self._watch.pods.values(), KIND, kind)
        for pod in mine:
            if pod_state.end_reason(pod) and not pod["metadata"].get("deletionTimestamp"):
                self._tasks.create_task(self._remove(pod["metadata"]["name"]))
        spares = self._spares(kind)
        starting = [pod for pod in with_label(mine, STATE, STARTING) if not pod_state.end_reason(pod)]
        for _ in range(wanted.count - len(spares) - max(wanted.making, len(starting))):
            wanted.making += 1
            self._tasks.create_task(self._make_one(kind, wanted))
        for pod in spares[wanted.count :]:
            self._watch.pods.pop(pod["metadata"]["name"], None)
            self._tasks.create_task(self._remove(pod["metadata"]["name"]))
        if not wanted.count and not mine:
            self._wanted.pop(kind, None)

    async def _make_one(self, kind: str, wanted: _Wanted) -> None:
        try:
            await self._make(wanted.spec, f"spare-{secrets.token_hex(10)}", kind)
            wanted.pause = _FIRST_PAUSE
        except (AEnvError, TimeoutError, OSError) as error:
            logger.warning("no spare instance of %s: %s", wanted.spec.environment, str(error).partition("\n")[0])
            await asyncio.sleep(wanted.pause)  # a pause that grows, and not a wait: what is wrong may stay so
            wanted.pause = min(2 * wanted.pause, _LONGEST_PAUSE)
        finally:
            wanted.making -= 1
            self._woken.set()


def kind_of(spec: InstanceSpec, salt: str) -> str:
    """The same for instances that one spare Pod could become."""
    parts = [
        salt,
        spec.environment,
        spec.tenant,
        spec.pod_template,
        spec.requirements.name if spec.requirements else "",
        str(spec.data or ""),
        repr(sorted((name, str(folder)) for name, folder in spec.folders.items())),
        str(spec.storage or ""),
        repr(spec.sidecar),
        repr(spec.limits),
        repr(spec.network),
        repr(spec.keep_history),
        repr(spec.preload),
        _content(spec.project),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def _content(folder: Path) -> str:
    """What the project's files are: two gateways have the same in different folders."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(folder)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()
