"""The pure parts of the Kubernetes engine: templates, manifests, and what the status of a Pod means."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra 'kubernetes' is not installed")

from aenv.base.errors import InvalidRequest
from aenv.engines.base import InstanceSpec, ResourceLimits
from aenv.engines.containers.container_plan import plan
from aenv.engines.kubernetes import pod_notes, pod_state
from aenv.engines.kubernetes.pod_manifest import PodNames, manifest, merged_variables
from aenv.engines.kubernetes.pod_sidecar import add_sidecar
from aenv.engines.kubernetes.pod_templates import PodTemplates, parse

SPEC = InstanceSpec(
    "x-1", "x@1.0", Path("/nowhere"), limits=ResourceLimits(cpus=0.5, memory_bytes=1 << 30, gpus=1)
)

NOTHING_SAID = "{kind: Pod, apiVersion: v1, spec: {containers: [{name: main, resources: {}}]}}"
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


def test_what_a_template_says_of_node_runtime_and_registry_stays() -> None:
    text = """
    {kind: Pod, apiVersion: v1, metadata: {labels: {team: a}}, spec: {
      runtimeClassName: gvisor, nodeSelector: {pool: sandboxes}, tolerations: [{key: sandbox, operator: Exists}],
      imagePullSecrets: [{name: registry}], containers: [{name: main, env: [{name: A, value: old}]}]}}
    """
    spec = InstanceSpec("x-1", "x@1.0", Path("/nowhere"), image="own:1", environment_variables={"A": "new"})
    template = PodTemplates({"mine.yaml": text}, "ConfigMap 'own'").get("mine")
    made = manifest(template, plan(spec), spec, PodNames("x-1", "here", ""))
    inside = made["spec"]
    assert (inside["runtimeClassName"], inside["nodeSelector"]) == ("gvisor", {"pool": "sandboxes"})
    assert inside["tolerations"] == [{"key": "sandbox", "operator": "Exists"}]
    assert inside["imagePullSecrets"] == [{"name": "registry"}]
    (main,) = inside["containers"]
    assert [each for each in main["env"] if each["name"] == "A"] == [{"name": "A", "value": "new"}]
    labels = made["metadata"]["labels"]
    assert (labels["team"], labels["business/aenv-name"], labels["app.kubernetes.io/managed-by"]) == (
        "a",
        "x",
        "aenv",
    )


def test_a_small_instance_with_a_sidecar_requests_no_more_than_its_limits() -> None:
    small = ResourceLimits(cpus=0.005, memory_bytes=32 << 20, storage_bytes=16 << 20)
    spec = replace(SPEC, sidecar="other:1", limits=small)
    made = pod(spec)
    add_sidecar(made, plan(spec), spec, "base:py{python}")
    asked = {each["name"]: each["resources"] for each in made["spec"]["containers"]}["second"]
    assert asked["requests"] == {"cpu": "5m", "memory": str(32 << 20), "ephemeral-storage": str(16 << 20)}
    assert asked["limits"] == asked["requests"]


def test_a_sidecar_has_the_rights_of_a_package_manager_and_no_way_to_the_node() -> None:
    spec = replace(SPEC, sidecar="other:1", environment_variables={"KEY": "hidden"}, image="own:1")
    made = manifest(PodTemplates().get("", is_dual=True), plan(spec), spec, PodNames("x-1", "here", ""))
    add_sidecar(made, plan(spec), spec, "base:py{python}")
    (copying,) = made["spec"]["initContainers"]
    main, second = made["spec"]["containers"]
    assert (second["name"], second["image"], copying["image"][:7]) == ("second", "other:1", "base:py")
    assert second["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert second["securityContext"]["allowPrivilegeEscalation"] is False
    assert (
        main["securityContext"]["capabilities"] == copying["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    )
    assert ("hidden" in str(main), "hidden" in str(second)) == (True, False)
    writable = {each["mountPath"] for each in second["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/shared", "/run/aenv-sidecar"}
    assert all("emptyDir" in volume for volume in made["spec"]["volumes"])


def test_what_was_asked_for_is_both_limit_and_request() -> None:
    resources = pod()["spec"]["containers"][0]["resources"]
    for part in ("limits", "requests"):
        assert resources[part]["cpu"] == "500m"
        assert resources[part]["memory"] == str(1 << 30)
        assert resources[part]["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize(("request_", "limit"), [("6Gi", "6Gi"), ("1Gi", str(4 << 30)), ("9e9", "9e9")])
def test_a_template_that_requests_more_than_the_usual_limit_has_that_as_its_limit(
    request_: str, limit: str
) -> None:
    text = f"""
        apiVersion: v1
        kind: Pod
        spec: {{containers: [{{name: main, resources: {{requests: {{memory: "{request_}"}}}}}}]}}
    """
    spec = replace(SPEC, limits=ResourceLimits())
    made = manifest(parse(text, "it"), plan(spec), spec, PodNames("x-1", "here", "t"))
    resources = made["spec"]["containers"][0]["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == (request_, limit)


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
        *(
            (f"{{kind: Pod, apiVersion: v1, {text}}}", f"field '{field}' of the template must be a {kind}, not ")
            for text, field, kind in (
                ("metadata: [], spec: {containers: [{name: main}]}", "metadata", "mapping"),
                ("spec: {volumes: x, containers: [{name: main}]}", "spec.volumes", "list"),
                ("spec: {volumes: [x], containers: [{name: main}]}", "spec.volumes", "mapping"),
                ("spec: {containers: [{name: main, env: {A: b}}]}", "spec.containers.env", "list"),
                (
                    "spec: {containers: [{name: main, resources: {limits: 2Gi}}]}",
                    "spec.containers.resources.limits",
                    "mapping",
                ),
            )
        ),
    ],
)
def test_a_template_that_is_not_a_pod_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        parse(text, "ConfigMap 'templates', entry 'mine'")
    assert "\n" not in caught.value.message


def test_a_field_of_a_template_without_a_value_is_as_if_it_was_not_there() -> None:
    text = """
    {kind: Pod, apiVersion: v1, metadata: , spec: {volumes: , initContainers: , containers: [
      {name: main, env: , ports: , volumeMounts: , securityContext: , resources: {limits: , requests: }}]}}
    """
    names = PodNames("x-1", "here", "t")
    made = [manifest(parse(one, "it"), plan(SPEC), SPEC, names) for one in (text, NOTHING_SAID)]
    assert made[0] == made[1]


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


def test_a_pod_cannot_run_whose_image_is_missing_unless_another_part_of_it_has_run() -> None:
    missing = container(waiting={"reason": "ImagePullBackOff"})
    ran = [{**each, "containerID": "containerd://1"} for each in container(running={"startedAt": "now"})]
    assert pod_state.cannot_run(status(containerStatuses=missing))
    assert not pod_state.cannot_run(status(containerStatuses=[*missing, *ran]))
    assert not pod_state.cannot_run(status(containerStatuses=container(waiting={"reason": "ContainerCreating"})))
    assert not pod_state.cannot_run(status())


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


def test_a_token_may_begin_with_a_hyphen() -> None:
    assert "--token=-x" in pod(token="-x")["spec"]["containers"][0]["command"]


async def test_a_relay_in_a_pod_answers_only_who_brings_its_token() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard " + await reader.read())
        writer.write_eof()
        writer.close()

    async def said(text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        writer.write_eof()
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        own = server.sockets[0].getsockname()[1]
        pipe = asyncio.subprocess.PIPE
        command = ("-P", "-m", "aenv.inside.runtime.port_relay", str(own))
        relay = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe)
        assert relay.stdin
        assert relay.stdout
        relay.stdin.write(b"secret\n")
        port = int((await relay.stdout.readline()).split()[1])
        assert await said(b"secrethello") == b"heard hello"
        assert await said(b"secreT" + b"hello") == b""
        assert await said(b"") == b""
        relay.stdin.close()
        assert await relay.wait() == 0
