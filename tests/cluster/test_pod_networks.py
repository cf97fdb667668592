"""Network policies of Pods: what they say, and that the engine keeps them on a real cluster."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from aenv.engines.kubernetes.pod_network import GATEWAY_LABELS, peers_of, policy

from .conftest import LocalCluster
from .test_kubernetes_engine import options


def policies(cluster: LocalCluster, owner: str) -> dict[str, dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", "networkpolicies", "-l", f"aenv.owner={owner}", "-o", "json"))
    return {each["metadata"]["name"].rpartition("-")[2]: each["spec"] for each in found["items"]}


async def test_the_engine_makes_its_policies_and_puts_right_what_others_change(cluster: LocalCluster) -> None:
    owner = f"test-{secrets.token_hex(6)}"
    async with KubernetesEngine(options(cluster, owner, gateways="app=gateway")) as engine:
        made = policies(cluster, owner)
        assert made["none"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]}]
        assert (made["none"].get("egress"), made["none"]["policyTypes"]) == (None, ["Ingress", "Egress"])
        first = made["full"]["egress"][0]["to"][0]["ipBlock"]
        assert (first["cidr"], "169.254.0.0/16" in first["except"]) == ("0.0.0.0/0", True)
        cluster.kubectl("delete", "networkpolicy", f"aenv-{owner}-none")
        opened = json.dumps({"spec": {"ingress": [{}]}})
        cluster.kubectl("patch", "networkpolicy", f"aenv-{owner}-full", "--type=merge", "-p", opened)
        assert policies(cluster, owner) != made
        await engine.sweep()
        assert policies(cluster, owner) == made
    cluster.kubectl("delete", "networkpolicy", "-l", f"aenv.owner={owner}")


def test_gateways_are_known_by_labels_in_a_cluster_and_by_their_address_outside(tmp_path: Path) -> None:
    here = tmp_path / "namespace"
    assert peers_of("", "https://192.0.2.1:6443", "instances", here)[0]["ipBlock"]["cidr"].endswith("/32")
    here.write_text("control")
    (peer,) = peers_of("", "https://192.0.2.1", "instances", here)
    assert peer["podSelector"]["matchLabels"] == GATEWAY_LABELS
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "control"}
    assert "namespaceSelector" not in peers_of("", "https://192.0.2.1", "control", here)[0]
    assert [each["ipBlock"]["cidr"] for each in peers_of("10.0.0.0/8, 192.0.2.7", "", "x", here)] == [
        "10.0.0.0/8",
        "192.0.2.7/32",
    ]
    for wrong in ("10.0.0.1/8", "nonsense", "app=,tier=x"):
        with pytest.raises(InvalidRequest, match="kube_gateways"):
            peers_of(wrong, "", "x", here)


def test_no_policy_lets_an_instance_reach_a_metadata_service() -> None:
    closed = policy("full", "here", [])["spec"]["egress"][0]["to"]
    listed = {block for peer in closed if "ipBlock" in peer for block in peer["ipBlock"]["except"]}
    assert {"169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32"} <= listed
    assert "egress" not in policy("none", "here", [])["spec"]
