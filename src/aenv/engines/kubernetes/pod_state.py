"""What the status of a Pod says: whether it can still become ready, where it serves, and why it has ended.

Pure: a Pod is the JSON object that the API server sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

Pod = dict[str, Any]

_PULL_FAILURES = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)
_START_FAILURES = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
    "PreStartHookError",
    "PostStartHookError",
)
_WORDS = {
    "DeadlineExceeded": "it lived longer than the cluster lets it (activeDeadlineSeconds)",
    "Evicted": "it was evicted from its node",
    "NodeLost": "its node was lost",
    "NodeShutdown": "its node was shut down",
    "Shutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Preempting": "it was preempted by a Pod of higher priority",
    "PreemptionByScheduler": "it was preempted by a Pod of higher priority",
    "EvictionByEvictionAPI": "it was evicted from its node",
    "DeletionByTaintManager": "its node was lost or drained",
    "DeletionByPodGC": "its node was removed",
    "TerminationByKubelet": "it was evicted from its node",
}
_OUT_OF_MEMORY = "it used more memory than its limit"
_DELETED = "its Pod was deleted"
_SILENT = "its node does not answer, and the cluster gave it up"


def end_reason(pod: Pod) -> str | None:
    """Why the instance has ended, or can never start; None while it lives or may still start."""
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        return _failure(status)
    if pod["metadata"].get("deletionTimestamp"):
        silent = _SILENT if _node_is_silent(status) else ""
        return _disruption(status) or silent or _WORDS.get(status.get("reason", ""), _DELETED)
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting")
        if waiting and (problem := _start_problem(waiting, container)):
            return problem
    if reason := _sidecar_end(status):
        return reason
    main = next(_main(status), {})
    if terminated := main.get("state", {}).get("terminated"):
        return _how_it_ended(terminated)
    if status.get("phase") == "Succeeded":
        return "it ended by itself, with exit code 0"
    return None


def is_started(pod: Pod, container: str = "main") -> bool:
    """Whether the container runs, and the Pod has an address."""
    status = pod.get("status", {})
    running = any(each.get("state", {}).get("running") for each in _named(status, container))
    return bool(running and status.get("podIP"))


def is_ready(pod: Pod) -> bool:
    """Whether the cluster would send it requests."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def container_id(pod: Pod) -> str:
    """Names the main container that runs, and no other one that ran before; empty while none does."""
    status = pod.get("status", {})
    return next((each["containerID"] for each in _main(status) if each.get("containerID")), "")


def address(pod: Pod) -> str:
    """The address of its network; empty while it has none."""
    return str(pod.get("status", {}).get("podIP") or "")


def age(pod: Pod) -> float:
    """Seconds since it was made, by our clock."""
    made = pod["metadata"].get("creationTimestamp")
    return time.time() - datetime.fromisoformat(str(made)).timestamp() if made else 0.0


def cannot_run(pod: Pod) -> bool:
    """Whether nothing of it has run, nor can, because its node cannot pull an image."""
    found = [*_containers(pod.get("status", {}))]
    waiting = [each.get("state", {}).get("waiting", {}).get("reason") for each in found]
    return any(reason in _PULL_FAILURES for reason in waiting) and not any(
        each.get("containerID") for each in found
    )


def end_judge() -> Callable[[Pod | None], str | None]:
    """Why a Pod has ended, asked again and again as it changes: of one that is gone, by what was seen last."""
    seen: list[Pod] = []

    def judge(pod: Pod | None) -> str | None:
        if pod is None:
            return _SILENT if seen and _node_is_silent(seen[0].get("status", {})) else _DELETED
        seen[:] = [pod]
        return end_reason(pod)

    return judge


def waits_for(pod: Pod | None) -> str:
    """What a Pod that does not become ready waits for, in words; empty when it only needs more time."""
    if pod is None:
        return "the cluster has not shown its Pod"
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"no node takes it: {_sentence(condition.get('message') or condition.get('reason'))}"
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
            return _sentence(f"{waiting.get('reason')}: {waiting.get('message', '')}")
    if not is_started(pod):
        return "its container was being created"
    return ""


def _failure(status: dict[str, Any]) -> str:
    for container in _containers(status):
        terminated = container.get("state", {}).get("terminated")
        if terminated and terminated.get("reason") == "OOMKilled":
            return _OUT_OF_MEMORY
    if disrupted := _disruption(status):
        return disrupted
    if reason := status.get("reason"):
        message = _sentence(status.get("message"))
        words = _WORDS.get(reason, f"the cluster ended it: {reason}")
        return f"{words}; {message}" if message else words
    for container in _main(status):
        if terminated := container.get("state", {}).get("terminated"):
            return _how_it_ended(terminated)
    return "its Pod failed"


def _disruption(status: dict[str, Any]) -> str | None:
    for condition in status.get("conditions", ()):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            words = _WORDS.get(condition.get("reason", ""), "the cluster ended it")
            message = _sentence(condition.get("message"))
            return f"{words}; {message}" if message else words
    return None


def _sidecar_end(status: dict[str, Any]) -> str | None:
    """Why an instance has ended whose second container has, or whose runtime could not be copied for that."""
    for container in status.get("initContainerStatuses") or ():
        terminated = container.get("state", {}).get("terminated")
        if terminated and terminated.get("exitCode"):
            return f"its container {container.get('name', '')!r} failed: {_how_it_ended(terminated)}"
    main_ended = any(each.get("state", {}).get("terminated") for each in _main(status))
    for container in _named(status, "second"):
        terminated = container.get("state", {}).get("terminated")
        if terminated and not main_ended:
            is_full = terminated.get("reason") == "OOMKilled"
            return "its sidecar used more memory than its limit" if is_full else "its sidecar ended"
    return None


def _node_is_silent(status: dict[str, Any]) -> bool:
    """Whether the cluster, and not the node, has said that it is not ready: the node then gives no reason.

    Clusters before 1.26 do not tell it otherwise.
    """
    found = {each.get("type"): each for each in status.get("conditions", ())}
    ready, containers = found.get("Ready", {}), found.get("ContainersReady", {})
    return ready.get("status") == "False" and not ready.get("reason") and containers.get("status") == "True"


def _start_problem(waiting: dict[str, Any], container: dict[str, Any]) -> str | None:
    reason, message = waiting.get("reason", ""), _sentence(waiting.get("message"))
    if reason in _PULL_FAILURES:
        return f"its image {container.get('image', '')!r} cannot be pulled: {message or reason}"
    if reason in _START_FAILURES:
        return f"its container {container.get('name', '')!r} cannot start: {message or reason}"
    return None


def _how_it_ended(terminated: dict[str, Any]) -> str:
    if terminated.get("reason") == "OOMKilled":
        return _OUT_OF_MEMORY
    code = terminated.get("exitCode", 0)
    if code > 128:
        return f"it was ended by signal {code - 128}"
    if terminated.get("reason") in ("ContainerCannotRun", "StartError"):
        return f"its container cannot start: {_sentence(terminated.get('message'))}"
    return f"it ended by itself, with exit code {code}"


def _containers(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _main(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return _named(status, "main")


def _named(status: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    return (each for each in status.get("containerStatuses") or () if each.get("name") == name)


def _sentence(text: str | None) -> str:
    """A message of the cluster as a part of one of our lines."""
    return " ".join((text or "").split()).rstrip(".:")[:500]
