"""The pure parts of the Kubernetes engine: templates, manifests, and what the status of a Pod means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra 'kubernetes' is not installed")

from aenv.base.errors import InvalidRequest
from aenv.engines.base import InstanceSpec, ResourceLimits
from aenv.engines.containers.container_plan import plan
from aenv.engines.kubernetes import pod_notes, pod_state
from aenv.engines.kubernetes.pod_manifest import PodNames, manifest, merged_variables
from aenv.engines.kubernetes.pod_templates import PodTemplates, parse

SPEC = InstanceSpec(
    "x-1", "x@1.0", Path("/nowhere"), limits=ResourceLimits(cpus=0.5, memory_bytes=1 << 30, gpus=1)
)

SILENT = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
"""As the cluster, and not the node, writes it."""


def pod(spec: InstanceSpec = SPEC, token: str = "t", template: str = "") -> dict[str, Any]:
    names = PodNames("x-1", "here", token, 3600)
    return manifest(PodTemplates().get(template), plan(spec), spec, names)


def status(**given: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "status": given}


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "img:1", "state": state}]


def test_an_instance_has_no_privileges_and_no_way_to_the_api_server() -> None:
    inside = pod()["spec"]
    assert inside["automountServiceAccountToken"] is False
    assert inside["securityContext"]["runAsNonRoot"] is True
    assert inside["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = inside["containers"][0]["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not any("hostPath" in volume for volume in inside["volumes"])


def test_what_was_asked_for_is_both_limit_and_request() -> None:
    resources = pod()["spec"]["containers"][0]["resources"]
    for part in ("limits", "requests"):
        assert resources[part]["cpu"] == "500m"
        assert resources[part]["memory"] == str(1 << 30)
        assert resources[part]["nvidia.com/gpu"] == "1"


def test_the_cluster_ends_an_instance_that_no_gateway_ends() -> None:
    assert pod()["spec"]["activeDeadlineSeconds"] == 3900


def test_a_variable_stands_in_a_manifest_once() -> None:
    old = [{"name": "A", "value": "old"}, {"name": "B", "value": "kept"}]
    assert merged_variables(old, {"A": "new"}) == [{"name": "B", "value": "kept"}, {"name": "A", "value": "new"}]


def test_variables_of_an_instance_that_is_claimed_are_in_no_manifest() -> None:
    secret = InstanceSpec("x-1", "x@1.0", Path("/nowhere"), environment_variables={"KEY": "hidden"})
    assert "hidden" not in str(pod(secret))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Deployment\napiVersion: apps/v1", "not 'Deployment'"),
        ("- a list", "not 'list'"),
        ("{", "not YAML"),
        ("kind: Pod\napiVersion: v1\nspec: {containers: [{name: other}]}", "no container 'main'"),
        ("kind: Pod\napiVersion: v1", "no spec.containers"),
        (
            "{kind: Pod, apiVersion: v1, spec: {restartPolicy: Always, containers: [{name: main}]}}",
            "must be Never",
        ),
    ],
)
def test_a_template_that_is_not_a_pod_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        parse(text, "ConfigMap 'templates', entry 'mine'")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["../etc/passwd", "/x", "a b", "", "none"])
def test_a_template_is_found_by_its_name_alone(name: str) -> None:
    if name:
        with pytest.raises(InvalidRequest, match="podTemplate"):
            PodTemplates().get(name)
    assert PodTemplates().get("DualContainer") == PodTemplates().get("dualContainer")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (status(containerStatuses=container(waiting={"reason": "ErrImagePull"})), "'img:1' cannot be pulled"),
        (status(containerStatuses=container(terminated={"reason": "OOMKilled", "exitCode": 137})), "more memory"),
        (status(containerStatuses=container(terminated={"exitCode": 3})), "exit code 3"),
        (status(containerStatuses=container(terminated={"exitCode": 139})), "signal 11"),
        (
            status(phase="Failed", reason="Evicted", message="low on memory."),
            "evicted from its node; low on memory",
        ),
        (status(phase="Failed", reason="DeadlineExceeded"), "activeDeadlineSeconds"),
        ({"metadata": {"deletionTimestamp": "now"}, "status": {}}, "was deleted"),
        ({"metadata": {"deletionTimestamp": "now"}, "status": {"conditions": SILENT}}, "node does not answer"),
    ],
)
def test_the_end_of_a_pod_has_a_reason(seen: dict[str, Any], words: str) -> None:
    assert words in (pod_state.end_reason(seen) or "")


def test_a_pod_that_is_gone_has_the_reason_that_was_seen_last() -> None:
    judge = pod_state.end_judge()
    assert judge(status(conditions=SILENT)) is None  # its node may come back
    assert judge(None) == "its node does not answer, and the cluster gave it up"
    assert pod_state.end_judge()(None) == "its Pod was deleted"


def test_a_pod_that_starts_or_runs_has_not_ended() -> None:
    starting = status(phase="Pending", containerStatuses=container(waiting={"reason": "ContainerCreating"}))
    running = status(phase="Running", podIP="10.0.0.1", containerStatuses=container(running={"startedAt": "now"}))
    assert pod_state.end_reason(starting) is None
    assert pod_state.end_reason(running) is None
    assert (pod_state.is_started(starting), pod_state.is_started(running)) == (False, True)


def test_tools_are_noted_unless_they_are_too_many_or_were_changed() -> None:
    tools = [{"name": "a", "inputSchema": {}}]
    assert pod_notes.unpack(pod_notes.pack(tools)) == tools
    assert pod_notes.unpack("not a note") is None
