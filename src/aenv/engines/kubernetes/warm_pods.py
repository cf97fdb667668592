"""Spare Pods: they have loaded an environment, and wait to be told which instance they are.

They belong to all gateways of an installation, which keep as many of a kind as the one that wants most. Their
names are numbered: of two gateways that would make the same one, the cluster refuses the second. A gateway takes
one by a change of its labels that names the version which it has seen: of two that want the same Pod, the cluster
refuses the second. In the same way one is marked before it is removed, so none is removed that was just taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...base.errors import AEnvError, Conflict, NotFound
from ...base.supervision import Tasks, to_the_end
from ..base import InstanceSpec
from ..containers.container_labels import labels
from . import pod_state
from .gateway_leases import GatewayLeases
from .pod_manifest import DEADLINE_MARGIN, INSTANCE, KIND, SPARE, STARTING, STATE, pod_labels
from .pod_state import Pod
from .pod_watch import PodWatch, with_label

logger = logging.getLogger("aenv.engines.kubernetes")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_STALE = 600.0  # seconds after which a spare Pod that no living gateway wants will not be wanted again
_SHOWN_WITHIN = 10.0  # seconds within which the watch shows a Pod that another gateway has made
MAKER = "aenv/maker"
"""An annotation: the Lease of the gateway that makes a spare Pod."""
_UNWANTED = "unwanted"
"""The state of a spare Pod that is about to be removed."""

MakeSpare = Callable[[InstanceSpec, str, str], Coroutine[Any, Any, None]]
Remove = Callable[[str], Coroutine[Any, Any, None]]


@dataclass
class _Wanted:
    spec: InstanceSpec
    count: int
    making: set[str] = field(default_factory=set)
    """The names of those that this gateway makes now, or tries to."""
    pause: float = _FIRST_PAUSE


class WarmPods:
    """Keeps as many of each kind as were asked for, while it is open."""

    def __init__(self, watch: PodWatch, leases: GatewayLeases, make: MakeSpare, remove: Remove, salt: str) -> None:
        self._watch = watch
        self._leases = leases
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
        try:
            # In this order: of several gateways that stop at the same time, one sees that no other wants any.
            await self._leases.want(self._counts())
            for kind, wanted in self._wanted.items():
                if not wanted.count:
                    await self._let_go(kind)
        except AEnvError as error:
            logger.warning("spare instances are left: %s", error)

    def changed(self, name: str = "") -> None:
        """Something has happened to a Pod, or to another gateway."""
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

    async def take(self, spec: InstanceSpec, life: float | None) -> Pod | None:
        """A spare Pod that is the instance's from now on, for so many seconds; None when there is none."""
        if spec.image or not self._wanted:
            return None
        kind = kind_of(replace(spec, environment_variables={}, arguments=()), self._salt)
        for pod in self._spares(kind):
            name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
            change = {**pod_labels(labels(spec)), INSTANCE: spec.id, STATE: STARTING, KIND: None}
            wanted: dict[str, Any] = {"metadata": {"resourceVersion": version, "labels": change}}
            if life is not None and not pod["spec"].get("activeDeadlineSeconds"):  # counted from its start
                wanted["spec"] = {"activeDeadlineSeconds": int(pod_state.age(pod) + life) + DEADLINE_MARGIN}
            self._watch.pods.pop(name, None)  # until the answer: others here must not ask for the same one
            taking = asyncio.ensure_future(self._take(name, wanted, spec.id))
            try:
                taken = await to_the_end(taking)
            except asyncio.CancelledError:
                if not taking.cancelled() and not taking.exception() and taking.result():
                    await to_the_end(self._remove(name))
                raise
            if taken:
                self._watch.learn(taken)
                return taken
        return None

    async def _take(self, name: str, wanted: Mapping[str, Any], id: str) -> Pod | None:
        cluster, kind = self._watch.cluster, self._watch.kind
        try:
            return await cluster.patch(kind, name, wanted)
        except NotFound:
            return None
        except Conflict:  # another gateway was faster, or the answer to a first attempt of ours was lost
            with contextlib.suppress(NotFound):
                found = await cluster.get(kind, name)
                return found if found["metadata"].get("labels", {}).get(INSTANCE) == id else None
            return None

    async def sweep(self, pods: Iterable[Pod]) -> None:
        """Remove spare Pods that no living gateway wants, or that a killed one has begun."""
        await self._leases.look()
        for pod in pods:
            if not (kind := pod["metadata"].get("labels", {}).get(KIND)):
                continue
            maker = pod["metadata"].get("annotations", {}).get(MAKER, "")
            is_begun = pod["metadata"]["labels"].get(STATE) == STARTING and self._leases.lives(maker)
            is_wanted = bool(self._target(kind)) or pod_state.age(pod) < _STALE
            if not is_begun and (not is_wanted or pod["metadata"]["labels"].get(STATE) != SPARE):
                await self._remove_unused(pod)

    def _target(self, kind: str) -> int:
        """How many there shall be, as far as is known of the other gateways."""
        own = self._wanted[kind].count if kind in self._wanted else 0
        return max(own, self._leases.wanted(kind))

    def _spares(self, kind: str) -> list[Pod]:
        found = with_label(self._watch.pods.values(), KIND, kind)
        ready = [pod for pod in with_label(found, STATE, SPARE) if not pod_state.end_reason(pod)]
        return sorted(ready, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                # Before any is made: another gateway that does not know would remove it as one too many.
                await self._leases.want(self._counts())
                for kind, wanted in list(self._wanted.items()):
                    await self._settle(kind, wanted)
            except AEnvError as error:
                logger.warning("spare instances wait: %s", error)
                await asyncio.sleep(_FIRST_PAUSE)
                continue
            await self._woken.wait()

    def _counts(self) -> dict[str, int]:
        return {kind: wanted.count for kind, wanted in self._wanted.items()}

    async def _settle(self, kind: str, wanted: _Wanted) -> None:
        mine = with_label(self._watch.pods.values(), KIND, kind)
        for pod in mine:
            if pod_state.end_reason(pod) and not pod["metadata"].get("deletionTimestamp"):
                self._tasks.create_task(self._remove(pod["metadata"]["name"]))
        spares, target = self._spares(kind), self._target(kind)
        if wanted.count:  # else others make them
            starting = {pod["metadata"]["name"] for pod in mine if _starts(pod)}
            for _ in range(target - len(spares) - len(starting | wanted.making)):
                name = self._free_name(kind, wanted)
                wanted.making.add(name)
                self._tasks.create_task(self._make_one(kind, name, wanted))
        if len(spares) > target:
            await self._let_go(kind)
        if not wanted.count and not wanted.making and not self._spares(kind):
            self._wanted.pop(kind, None)

    async def _let_go(self, kind: str) -> None:
        """Remove those that are too many, once it is known what the other gateways want at this moment."""
        await self._leases.look()
        surplus = self._spares(kind)[self._target(kind) :]
        await asyncio.gather(*(self._remove_unused(pod) for pod in surplus))

    async def _remove_unused(self, pod: Pod) -> None:
        name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version, "labels": {STATE: _UNWANTED}}}
        with contextlib.suppress(Conflict, NotFound):  # another gateway has taken it, or removed it
            self._watch.learn(await self._watch.cluster.patch(self._watch.kind, name, change))
            await self._remove(name)

    def _free_name(self, kind: str, wanted: _Wanted) -> str:
        """The first that no Pod has, that of an instance which was a spare one included."""
        number = 0
        while (name := f"spare-{kind}-{number}") in self._watch.pods or name in wanted.making:
            number += 1
        return name

    async def _make_one(self, kind: str, name: str, wanted: _Wanted) -> None:
        try:
            await self._make(wanted.spec, name, kind)
            wanted.pause = _FIRST_PAUSE
        except Conflict:
            # Another gateway makes it. It counts as ours until the watch shows it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SHOWN_WITHIN):
                    await self._watch.until(name, lambda pod: True if pod else None)
        except (AEnvError, TimeoutError, OSError) as error:
            logger.warning("no spare instance of %s: %s", wanted.spec.environment, str(error).partition("\n")[0])
            await asyncio.sleep(wanted.pause)  # a pause that grows, and not a wait: what is wrong may stay so
            wanted.pause = min(2 * wanted.pause, _LONGEST_PAUSE)
        finally:
            wanted.making.discard(name)
            self._woken.set()


def _starts(pod: Pod) -> bool:
    return pod["metadata"]["labels"].get(STATE) == STARTING and not pod_state.end_reason(pod)


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
