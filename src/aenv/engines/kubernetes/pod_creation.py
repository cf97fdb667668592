"""Creating a Pod once, whatever becomes of the answer.

A Pod has the name of its instance, so the cluster refuses a second one. Where the answer to a request was lost,
or the API server was away for a while, the note of the attempt on the Pod tells whether it is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from ...base.errors import AEnvError, Conflict, NotFound, Unavailable
from ...base.supervision import to_the_end
from .cluster_client import Cluster, Pods
from .pod_state import Pod
from .pod_watch import PodWatch

logger = logging.getLogger("aenv.engines.kubernetes")

ATTEMPT = "aenv/attempt"
"""An annotation: which create has made the Pod."""
_PAUSE = 0.5
_UNSURE_FOR = 60.0  # seconds for which it is tried to remove what a cancelled create may have made


async def create_once(cluster: Cluster, watch: PodWatch, manifest: Mapping[str, Any]) -> Pod:
    """The Pod that this call has made. Conflict when there is one of this name that another call has made.

    One that is being removed is waited for. While no API server answers it is tried again, until cancelled, which
    then has a note that says so; when cancelled, or on failure, no Pod of this call is left.
    """
    attempt = secrets.token_hex(8)
    wanted = {**manifest, "metadata": _noted(manifest["metadata"], attempt)}
    name = str(wanted["metadata"]["name"])
    away = ""  # why no server has taken it so far
    while True:
        asking = asyncio.ensure_future(cluster.create(Pods, wanted))
        try:
            return await asyncio.shield(asking)
        except Conflict:
            found = await _found(cluster, name)
            if found and _attempt(found) == attempt:
                return found
            if found and not found["metadata"].get("deletionTimestamp"):
                raise
            if found:  # the same id as before, and what had it is not quite gone
                watch.learn(found)
                await watch.until(name, lambda pod: True if pod is None else None)
        except Unavailable as error:
            logger.warning("Pod %s is asked for again: %s", name, error)
            away = error.message
            try:
                await asyncio.sleep(_PAUSE)
            except asyncio.CancelledError as cancelled:
                cancelled.add_note(away)
                await to_the_end(_remove(cluster, name, attempt))
                raise
        except asyncio.CancelledError as cancelled:
            if away:
                cancelled.add_note(away)
            await to_the_end(_undo(asking, cluster, name, attempt))
            raise


async def _undo(asking: asyncio.Future[Pod], cluster: Cluster, name: str, attempt: str) -> None:
    """The request is under way: what it makes must be known before it can be removed."""
    await asyncio.wait({asking})
    if not asking.cancelled() and not isinstance(asking.exception(), Conflict):
        await _remove(cluster, name, attempt)


async def _remove(cluster: Cluster, name: str, attempt: str) -> None:
    with contextlib.suppress(AEnvError, TimeoutError):  # then upkeep ends it: it has no record
        async with asyncio.timeout(_UNSURE_FOR):
            found = await _found(cluster, name)
            if found and _attempt(found) == attempt:
                await cluster.delete(Pods, name, grace=1)


async def _found(cluster: Cluster, name: str) -> Pod | None:
    try:
        return await cluster.get(Pods, name)
    except NotFound:
        return None


def _attempt(pod: Pod) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(ATTEMPT, ""))


def _noted(metadata: Mapping[str, Any], attempt: str) -> dict[str, Any]:
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), ATTEMPT: attempt}}
