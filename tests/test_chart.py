"""The Helm chart as helm renders it: every combination is legal in Kubernetes, and a bad value is named."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from aenv import __version__
from aenv.cli.main import cli
from aenv.engines.containers.container_plan import BASE_IMAGE
from aenv.engines.kubernetes.pod_templates import PodTemplates
from tests.command_line import AENV, environ
from tests.redis_server import RedisServer
from tests.system import require

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "chart"
HELM = Path(sys.executable).with_name("helm")
POD = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main"}]}}
SHARED: dict[str, Any] = {"bundles": {"url": "s3://bucket/prefix?region=x"}}
MONITOR = "monitoring.coreos.com/v1"
Manifest = dict[str, Any]

COMBINATIONS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "one gateway on SQLite": {"redis": {"mode": "none"}, "gateway": {"persistence": {"keep": True}}},
    "several gateways": {**SHARED, "gateway": {"replicas": 3, "publicUrl": "https://a.example.com"}},
    "as many gateways as are needed": {**SHARED, "gateway": {"autoscaling": {"enabled": True}}},
    "a hub of its own": {"hub": {"separate": True}, "bundles": {"claim": "shared"}},
    "a Redis elsewhere": {
        "redis": {
            "mode": "external",
            "existingSecret": "mine",
            "key": "secret",
            "external": {"host": "r.example.com", "port": 6380, "database": 2, "username": "aenv", "tls": True},
        }
    },
    "a Redis elsewhere without a password": {"redis": {"mode": "external", "external": {"host": "10.0.0.7"}}},
    "instances in a namespace of their own": {
        "instances": {"namespace": "sandboxes", "allowNetwork": "egress", "maxInstances": 100},
        "podTemplates": {"gpu": POD, "singleContainer": POD},
        "baseImage": "registry.example.com/aenv-base:1",
    },
    "the fewest rights": {
        "rbac": {"exec": False, "services": False, "networkPolicies": False},
        "cleanup": {"enabled": False},
        "gateway": {"keepInstances": False, "requireDataToken": True, "persistence": {"enabled": False}},
        "redis": {"bundled": {"persistence": {"enabled": False}}},
    },
    "everything else": {
        "ingress": {"enabled": True, "host": "aenv.example.com", "className": "nginx", "annotations": {"a": "b"}},
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "image": {"tag": "2", "pullSecrets": [{"name": "login"}]},
        "admin": {"existingSecret": "mine", "key": "admin"},
        "networkPolicy": {
            "from": [{"namespaceSelector": {}}],
            "metricsFrom": [{"podSelector": {}}],
            "blocked": [],
        },
        "serviceAccount": {"annotations": {"role": "x"}},
        "gateway": {
            "extraArgs": ["--rate-limit=50"],
            "env": [{"name": "AWS_REGION", "value": "x"}],
            "envFrom": [{"secretRef": {"name": "s3"}}],
            "labels": {"team": "a"},
            "annotations": {"b": "c"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "aenv", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "priorityClassName": "high",
            "service": {"type": "LoadBalancer", "clusterIP": "10.96.0.9", "annotations": {"d": "e"}},
        },
    },
}


def helm(*arguments: str | Path, values: Any = None) -> subprocess.CompletedProcess[str]:
    given = ("--values", "-") if values is not None else ()
    command = [HELM, *arguments, *given]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, env=environ())


@cache
def _rendered(values: str, release: str) -> str:
    words = ("template", release, CHART, "--namespace", "ns", "--api-versions", MONITOR)
    done = helm(*words, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: dict[str, Any], release: str = "aenv") -> list[Manifest]:
    return [found for found in yaml.safe_load_all(_rendered(json.dumps(values), release)) if found]


def one(found: list[Manifest], kind: str, name: str) -> Manifest:
    (manifest,) = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    return manifest


def pods(found: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for manifest in found:
        if "template" in manifest.get("spec", {}):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def variables(container: Manifest) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_each_combination_is_legal_in_kubernetes(name: str) -> None:
    found = render(COMBINATIONS[name])
    for manifest in found:
        if manifest["kind"] != "ServiceMonitor":  # which is not Kubernetes' own
            kubernetes_validate.validate(manifest, "1.34", strict=True)
    named = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
    assert len(named) == len(set(named))


def test_helm_finds_nothing_to_complain_about() -> None:
    done = helm("lint", "--strict", CHART, values=COMBINATIONS["several gateways"])
    assert (done.returncode, "0 chart(s) failed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_on_a_new_cluster_no_version_is_one_that_was_removed() -> None:
    # On an old one: tests/cluster/test_chart.py. helm, without a cluster, always takes it for a new one.
    made = {each["kind"]: each["apiVersion"] for each in render(COMBINATIONS["as many gateways as are needed"])}
    assert made["PodDisruptionBudget"] == "policy/v1"
    assert made["HorizontalPodAutoscaler"] == "autoscaling/v2"


@pytest.mark.parametrize("name", COMBINATIONS)
def test_no_pod_has_rights_on_its_node(name: str) -> None:
    for owner, pod in pods(render(COMBINATIONS[name])):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] >= 999, owner
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, owner
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            own = container["securityContext"]
            assert own["capabilities"] == {"drop": ["ALL"]} and own["readOnlyRootFilesystem"], owner
            assert own["allowPrivilegeEscalation"] is False, owner
            assert "memory" in container["resources"]["limits"], owner
        assert not [volume for volume in pod.get("volumes", ()) if "hostPath" in volume]


class TestBadValues:
    @pytest.mark.parametrize(
        ("values", "said"),
        [
            ({"gateway": {"replica": 2}}, "gateway: Additional property replica is not allowed"),
            ({"gatway": {}}, "Additional property gatway is not allowed"),
            ({"gateway": {"replicas": 0}}, "gateway.replicas: Must be greater than or equal to 1"),
            ({"gateway": {"replicas": "two"}}, "gateway.replicas: Invalid type"),
            ({"gateway": {"publicUrl": "aenv.example.com"}}, "gateway.publicUrl: Does not match pattern"),
            ({"gateway": {"extraArgs": ["serve"]}}, "gateway.extraArgs.0: Does not match pattern"),
            ({"redis": {"mode": "sentinel"}}, "redis.mode: redis.mode must be one of the following"),
            ({"redis": {"mode": "external"}}, "redis.external.host: name the Redis"),
            ({"redis": {"external": {"host": "h:1/x@y"}}}, "redis.external.host: Does not match pattern"),
            ({"bundles": {"url": "https://b"}}, "bundles.url: Does not match pattern"),
            ({"podTemplates": {"../x": POD}}, "podTemplates"),
            ({"podTemplates": {"gpu": {**POD, "kind": "Job"}}}, "podTemplates.gpu.kind"),
            ({"instances": {"startTimeout": "soon"}}, "instances.startTimeout: Does not match pattern"),
            ({"ingress": {"enabled": True}}, "ingress.host: name the host"),
            (
                {"gateway": {"replicas": 2}, "redis": {"mode": "none"}},
                "gateway.replicas: several gateways need Redis",
            ),
            ({"gateway": {"replicas": 2}}, "gateway.replicas: several gateways need the same bundles"),
            (
                {"gateway": {"autoscaling": {"enabled": True}}, "redis": {"mode": "none"}},
                "gateway.autoscaling.enabled: several gateways need Redis",
            ),
            ({"hub": {"separate": True}}, "hub.separate: a hub of its own and the gateway need the same bundles"),
            ({"metrics": {"serviceMonitor": {"enabled": True}}}, "install the Prometheus operator"),
        ],
        ids=lambda given: given if isinstance(given, str) else "",
    )
    def test_a_bad_value_is_refused_by_the_name_of_its_field(self, values: dict[str, Any], said: str) -> None:
        done = helm("template", "aenv", CHART, values=values)
        assert done.returncode != 0 and done.stdout == ""
        assert said in done.stderr

    def test_the_schema_knows_every_value_and_the_page_tells_of_it(self) -> None:
        schema = json.loads((CHART / "values.schema.json").read_text())
        names = set(_leaves(yaml.safe_load((CHART / "values.yaml").read_text()), schema))
        page = (ROOT / "docs" / "helm.md").read_text()
        assert names and {name for name in names if f"`{name}`" not in page} == set()


def _leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Names of values; KeyError for one that the schema does not know."""
    for name, value in values.items():
        told = schema["properties"][name]
        if isinstance(value, dict) and "properties" in told:
            assert told["additionalProperties"] is False, f"{path}{name}"
            yield from _leaves(value, told, f"{path}{name}.")
        else:
            yield f"{path}{name}"


class TestContents:
    def test_every_option_of_the_servers_exists(self) -> None:
        for values in COMBINATIONS.values():
            for _, pod in pods(render(values)):
                for container in [*pod["containers"], *pod.get("initContainers", ())]:
                    if container["command"][0] == "aenv":
                        accepted(container["command"])

    def test_the_password_of_redis_and_the_token_stand_in_secrets_alone(self) -> None:
        found = render({})
        secrets = [each for each in found if each["kind"] == "Secret"]
        values = [value for secret in secrets for value in secret["data"].values()]
        assert len(values) == 2
        rest = json.dumps([each for each in found if each["kind"] != "Secret"])
        assert not [value for value in values if value in rest]
        gateway = one(found, "Deployment", "aenv")["spec"]["template"]["spec"]["containers"][0]
        assert variables(gateway)["AENV_STORE"] == "redis://:$(REDIS_PASSWORD)@aenv-redis:6379"

    def test_a_redis_elsewhere_is_reached_with_its_user_over_tls(self) -> None:
        found = render(COMBINATIONS["a Redis elsewhere"])
        gateway = one(found, "Deployment", "aenv")["spec"]["template"]["spec"]["containers"][0]
        assert variables(gateway)["AENV_STORE"] == "rediss://aenv:$(REDIS_PASSWORD)@r.example.com:6380/2"
        assert not [each for each in found if each["metadata"]["name"].endswith("-redis")]

    def test_rights_are_in_the_namespace_of_the_instances_and_follow_the_values(self) -> None:
        values = COMBINATIONS["instances in a namespace of their own"]
        found = render(values)
        assert {each["kind"] for each in found} & {"ClusterRole", "ClusterRoleBinding"} == set()
        role = one(found, "Role", "aenv")
        assert role["metadata"]["namespace"] == "sandboxes"
        rights = {
            (group, what) for rule in role["rules"] for group in rule["apiGroups"] for what in rule["resources"]
        }
        assert rights >= {("", "pods"), ("", "pods/exec"), ("apps", "deployments"), ("", "configmaps")}
        assert not {what for _, what in rights} & {"secrets", "nodes", "*"}
        few = one(render(COMBINATIONS["the fewest rights"]), "Role", "aenv")["rules"]
        assert [rule["resources"] for rule in few] == [["pods"], ["pods/log"], ["leases"]]

    def test_policies_of_instances_are_made_by_the_gateway_or_by_the_chart_and_never_by_both(self) -> None:
        def policies(values: dict[str, Any]) -> set[str]:
            return {each["metadata"]["name"] for each in render(values) if each["kind"] == "NetworkPolicy"}

        assert policies({}) == {"aenv", "aenv-redis"}
        parts = ("", "-without-network", "-with-network")
        added = {f"aenv-instances{part}" for part in parts}
        assert policies(COMBINATIONS["the fewest rights"]) == {"aenv", "aenv-redis"} | added

    def test_the_gateway_has_the_labels_by_which_its_own_policies_know_it(self) -> None:
        labels = one(render({}, release="prod"), "Deployment", "prod-aenv")["spec"]["template"]["metadata"][
            "labels"
        ]
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/component"]) == ("aenv", "gateway")

    def test_the_rights_are_those_that_the_page_of_the_engine_lists(self) -> None:
        page = (ROOT / "docs" / "kubernetes.md").read_text().split("## Rights\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `([\w/]+)`[^|]*\| ([^|]*) \|", page, re.MULTILINE)
        role = one(render(COMBINATIONS["instances in a namespace of their own"]), "Role", "aenv")
        given = {(what, tuple(rule["verbs"])) for rule in role["rules"] for what in rule["resources"]}
        assert given == {(what, tuple(re.findall(r"`(\w+)`", verbs))) for what, verbs in rows}

    def test_templates_of_pods_are_such_as_the_gateway_reads(self) -> None:
        found = render(COMBINATIONS["instances in a namespace of their own"])
        texts = one(found, "ConfigMap", "aenv-templates")["data"]
        assert PodTemplates(texts).get("gpu")["spec"]["containers"] == [{"name": "main"}]
        command = one(found, "Deployment", "aenv")["spec"]["template"]["spec"]["containers"][0]["command"]
        assert "--kube-templates=aenv-templates" in command

    def test_behind_an_ingress_everything_goes_to_the_control_port(self) -> None:
        found = render(COMBINATIONS["everything else"])
        (rule,) = one(found, "Ingress", "aenv")["spec"]["rules"]
        assert [path["backend"]["service"]["port"]["name"] for path in rule["http"]["paths"]] == ["control"]
        command = one(found, "Deployment", "aenv")["spec"]["template"]["spec"]["containers"][0]["command"]
        assert {"--public-url=https://aenv.example.com", "--allow-origin=https://aenv.example.com"} <= set(command)

    def test_names_follow_the_release(self) -> None:
        assert one(render({}, release="prod"), "Deployment", "prod-aenv")
        assert one(render({"nameOverride": "gate"}, release="prod"), "Deployment", "gate-redis")


def accepted(command: list[str]) -> None:
    """As `aenv` reads it; nothing is run."""
    words = command[1:]
    found: click.Command = cli
    context = click.Context(cli)
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(found, parent=context)
        next_one = found.get_command(context, words[0])
        assert next_one, command
        found, words = next_one, words[1:]
    options = {flag for each in found.params for flag in (*each.opts, *each.secondary_opts)}
    unknown = {word.partition("=")[0] for word in words if word.startswith("-")} - options
    assert unknown == set(), f"{' '.join(command)}: no option {', '.join(unknown)}"


class TestOtherHosts:
    """`deploy/compose.yaml` and `deploy/systemd`."""

    def test_the_compose_file_starts_the_gateway_with_options_that_exist(self) -> None:
        file = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
        commands = [each["command"] for each in file["services"].values() if each["command"][0] == "aenv"]
        assert commands
        for command in commands:
            accepted(command)

    def test_the_compose_file_and_the_page_name_the_base_image_of_the_gateways_python(self) -> None:
        dockerfile = (ROOT / "deploy" / "gateway.Dockerfile").read_text()
        (python,) = re.findall(r"^ARG BASE=python:([\d.]+)-slim$", dockerfile, re.MULTILINE)
        words = f"--from python:{python}-slim --tag {BASE_IMAGE.replace('{python}', python)}"
        for page in (ROOT / "deploy" / "compose.yaml", ROOT / "docs" / "docker.md"):
            assert words in page.read_text()

    def test_docker_compose_reads_the_file(self, tmp_path: Path) -> None:
        program = require("docker-compose", "docker-compose")
        command = [program, "--file", ROOT / "deploy" / "compose.yaml", "config"]
        done = subprocess.run(command, capture_output=True, text=True, env=environ(AENV_IMAGE="mine:1"))
        assert done.returncode == 0, done.stderr
        gateway = yaml.safe_load(done.stdout)["services"]["gateway"]
        assert gateway["image"] == "mine:1"
        assert (ROOT / "deploy" / "gateway.Dockerfile").samefile(
            Path(gateway["build"]["context"], gateway["build"]["dockerfile"])
        )

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (["-I", "-S"], "has no aenv; run this with the Python that has"),
            ([], "No such file or directory: 'no-such-engine'"),
        ],
    )
    def test_a_base_image_that_cannot_be_made_is_one_line(self, words: list[str], why: str) -> None:
        command = [sys.executable, *words, ROOT / "deploy" / "base-image", "--docker", "no-such-engine"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1
        assert (done.stderr.count("\n"), why in done.stderr) == (1, True), done.stderr

    def test_systemd_reads_the_units(self, tmp_path: Path) -> None:
        program = require("systemd-analyze", "systemd")
        for unit in (ROOT / "deploy" / "systemd").glob("*.service"):
            installed = tmp_path / unit.name
            installed.write_text(unit.read_text().replace("/opt/aenv/bin/aenv", str(AENV)))
            done = subprocess.run([program, "verify", installed], capture_output=True, text=True)
            told = [line for line in done.stderr.splitlines() if unit.name in line]
            assert (done.returncode, told) == (0, [])

    def test_the_units_start_the_gateway_with_options_that_exist(self) -> None:
        for unit in (ROOT / "deploy" / "systemd").glob("*.service"):
            lines = re.findall(r"^Exec\w+=[-+!@]*\S*/(aenv .*)$", unit.read_text(), re.MULTILINE)
            assert lines
            for line in lines:
                accepted([word for word in line.split() if not word.startswith("$")])


@pytest.mark.slow
def test_the_account_is_made_as_soon_as_the_store_answers(tmp_path: Path) -> None:
    """What the container `admin` of the chart does while Redis starts beside it."""
    token = f"aenv-{'a' * 16}-{'b' * 32}"
    (tmp_path / "token").write_text(f"{token}\n")
    with socket.create_server(("127.0.0.1", 0)) as nothing:
        server = RedisServer(tmp_path)
        server.port = nothing.getsockname()[1]
        words = ["token", "create", "--user", "root", "--role", "admin", "--token-file", tmp_path / "token"]
        command = [AENV, *words, "--store", server.url]
        process = subprocess.Popen([*command, "--wait", "90s"], stdout=subprocess.PIPE, text=True, env=environ())
        nothing.accept()[0].close()  # it has asked, and got no answer
    try:
        server.start()
        assert process.communicate()[0].strip() == "a" * 16 and process.returncode == 0
        again = subprocess.run(command, capture_output=True, text=True, env=environ())
        assert (again.returncode, again.stdout.strip()) == (0, "a" * 16)
        assert token not in again.stdout + again.stderr
    finally:
        process.kill()
        process.wait()
        server.kill()
    refused = subprocess.run(command, capture_output=True, text=True, env=environ())
    assert refused.returncode == 1  # it waits only where it was asked to
