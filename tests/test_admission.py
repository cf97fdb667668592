"""What an instance is asked to be: its environment's wishes, the request's, and what the operator allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aenv.artifacts.pythons.runtimes import Python
from aenv.base import masks
from aenv.base.addresses import Origin
from aenv.base.config import Project, load_project
from aenv.base.errors import AEnvError, Forbidden, InvalidRequest, Unsupported
from aenv.base.models import CreateInstance
from aenv.control.instances.admission import Rules, check_request
from aenv.control.instances.catalog import PreparedProject
from aenv.control.instances.records import Record
from aenv.control.instances.secret_variables import GivenSecrets
from aenv.control.instances.specs import Conditions, instance_spec, spare_spec
from aenv.control.serving.accounts import LOCAL
from aenv.engines.base import Address, InstanceSpec, Network, ResourceLimits
from aenv.engines.process import ProcessEngine
from tests.gateways import composed, make_project, running_gateway
from tests.test_gateway_races import ended


def spec(project: Project, rules: Rules | None = None, **asked: Any) -> InstanceSpec:
    request = CreateInstance.model_validate({"envName": "echo", **asked})
    checked = check_request(request, project, rules or Rules())
    return instance_spec(
        "id", checked, PreparedProject(None, None), Conditions(start_timeout=60.0, keep_history=True)
    )


def refused(project: Project, rules: Rules | None = None, **asked: Any) -> AEnvError:
    with pytest.raises(AEnvError) as caught:
        spec(project, rules, **asked)
    return caught.value


def project_with(tmp_path: Path, **deploy: Any) -> Project:
    return load_project(make_project(tmp_path, **deploy))


# Limits


def test_the_environments_limits_are_the_instances(tmp_path: Path) -> None:
    project = project_with(
        tmp_path, cpu="500m", memory="256Mi", ephemeralStorage="1Gi", pids=100, openFiles=512, callTimeout="5s"
    )
    made = spec(project)
    assert made.limits == ResourceLimits(0.5, 256 << 20, 1 << 30, 100, 512)
    assert made.call_timeout == 5.0


def test_an_environment_that_says_nothing_leaves_its_limits_to_the_engine(tmp_path: Path) -> None:
    made = spec(project_with(tmp_path))
    assert (made.limits, made.network, made.image, made.data, made.sidecar) == (
        ResourceLimits(),
        Network(),
        "",
        None,
        "",
    )


def test_the_old_flat_limits_count_too(tmp_path: Path) -> None:
    made = spec(project_with(tmp_path, cpuLimit="2", memoryLimit="1Gi", memoryRequest="1Mi"))
    assert made.limits == ResourceLimits(cpus=2.0, memory_bytes=1 << 30)


def test_a_request_may_ask_for_less(tmp_path: Path) -> None:
    project = project_with(tmp_path, cpu=2, memory="1Gi", pids=100)
    made = spec(project, resources={"cpu": "250m", "memory": "64Mi", "pids": 10, "openFiles": 64})
    assert made.limits == ResourceLimits(cpus=0.25, memory_bytes=64 << 20, pids=10, open_files=64)


@pytest.mark.parametrize(
    ("name", "amount"), [("cpu", "2.5"), ("memory", "2Gi"), ("ephemeralStorage", 2**40), ("pids", 101)]
)
def test_a_request_for_more_is_refused_and_names_the_field(tmp_path: Path, name: str, amount: Any) -> None:
    project = project_with(tmp_path, cpu=2, memory="1Gi", ephemeralStorage="1Gi", pids=100)
    error = refused(project, resources={name: amount})
    assert isinstance(error, InvalidRequest)
    assert f"field 'resources.{name}': environment 'echo@1.0.0' allows" in error.message


def test_more_is_had_where_the_environments_owner_allows_it(tmp_path: Path) -> None:
    project = project_with(tmp_path, memory="1Gi", allowMoreResources=True)
    assert spec(project, resources={"memory": "8Gi"}).limits.memory_bytes == 8 << 30


@pytest.mark.parametrize(
    "resources",
    [
        {"cpu": "0"},
        {"memory": "0"},
        {"memory": -5},
        {"memory": "much"},
        {"pids": 0},
        {"pids": "1.5"},
        {"gpu": "0"},
        {"tpu": "1"},
    ],
)
def test_an_amount_that_is_none_is_refused(tmp_path: Path, resources: dict[str, Any]) -> None:
    assert (
        f"field 'resources.{next(iter(resources))}'"
        in refused(project_with(tmp_path), resources=resources).message
    )


# The network

EGRESS = {"egress": ["pypi.example:443", "*.data.example", "Files.example"]}


@pytest.mark.parametrize(
    ("own", "asked", "had"),
    [
        ("none", None, Network()),
        ("full", None, Network("full")),
        (EGRESS, None, Network("egress", ("pypi.example:443", "*.data.example", "files.example"))),
        ("full", "none", Network()),
        ("full", {"egress": ["a:1"]}, Network("egress", ("a:1",))),
        (EGRESS, "none", Network()),
        (EGRESS, {"egress": ["pypi.example:443"]}, Network("egress", ("pypi.example:443",))),
        (EGRESS, {"egress": ["files.example:80"]}, Network("egress", ("files.example:80",))),
        (EGRESS, {"egress": ["a.b.data.example:1"]}, Network("egress", ("a.b.data.example:1",))),
        (EGRESS, {"egress": ["*.b.data.example"]}, Network("egress", ("*.b.data.example",))),
    ],
)
def test_a_request_narrows_the_environments_network(tmp_path: Path, own: Any, asked: Any, had: Network) -> None:
    assert spec(project_with(tmp_path, network=own), network=asked).network == had


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("none", "full"),
        ("none", {"egress": ["a"]}),
        (EGRESS, "full"),
        (EGRESS, {"egress": ["pypi.example"]}),  # any port is more than one
        (EGRESS, {"egress": ["pypi.example:80"]}),
        (EGRESS, {"egress": ["data.example"]}),  # the domain itself is not below it
        (EGRESS, {"egress": ["evildata.example"]}),
        (EGRESS, {"egress": ["*.example"]}),
        (EGRESS, {"egress": ["files.example", "other.example"]}),
    ],
)
def test_a_request_cannot_widen_the_environments_network(tmp_path: Path, own: Any, asked: Any) -> None:
    error = refused(project_with(tmp_path, network=own), network=asked)
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith("field 'network': environment 'echo@1.0.0' has ")


@pytest.mark.parametrize(
    "bad",
    ["some", {"egress": []}, {"egress": ["a b"]}, {"egress": ["a:0"]}, {"egress": ["*"]}, {"ingress": ["a"]}],
)
def test_a_network_that_is_none_is_refused(tmp_path: Path, bad: Any) -> None:
    assert refused(project_with(tmp_path, network="full"), network=bad).message.startswith("field 'network': bad ")


def test_the_operator_can_cap_the_network(tmp_path: Path) -> None:
    project, rules = project_with(tmp_path, network="full"), Rules(network="egress")
    error = refused(project, rules)
    assert isinstance(error, Forbidden)
    assert (
        "asks for the network 'full', and this gateway allows 'egress' at most (--allow-network)" in error.message
    )
    assert spec(project, rules, network={"egress": ["a"]}).network.kind == "egress"
    assert isinstance(refused(project, Rules(network="none"), network={"egress": ["a"]}), Forbidden)


# The image, and what else an environment says


def test_the_image_is_the_first_artifact_that_is_one(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    artifacts = [
        {"type": "bundle", "content": "sha256:0"},
        {"type": "docker-image", "content": "registry/echo:1"},
        {"type": "image", "content": "registry/echo:2"},
    ]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "artifacts": artifacts}))
    assert spec(load_project(folder)).image == "registry/echo:1"


def test_preload_and_isolation_are_passed_on(tmp_path: Path) -> None:
    made = spec(project_with(tmp_path, preload=["numpy", "a.b"], isolation="gvisor"))
    assert (made.preload, made.isolation) == (("numpy", "a.b"), "gvisor")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("pids", 0, "deployConfig.pids: must be at least 1, got 0"),
        ("openFiles", -1, "deployConfig.openFiles: must be at least 1, got -1"),
        ("openFiles", "many", "deployConfig.openFiles: must be a whole number"),
        ("memory", 0, "deployConfig.memory: must be at least 1, got 0"),
        ("warmPool", -1, "deployConfig.warmPool: must be at least 0, got -1"),
        ("warmPool", True, "deployConfig.warmPool: must be a whole number"),
        ("network", "some", "deployConfig.network: bad network 'some'"),
        ("network", {"egress": ["http://a"]}, "deployConfig.network: bad host 'http://a'"),
        ("preload", "numpy", "deployConfig.preload: must be a list"),
        ("preload", ["os; x"], "deployConfig.preload: bad value 'os; x'; name a module"),
        ("reclaim", "yes", "deployConfig.reclaim: must be true or false"),
        ("freezeAfter", "soon", "deployConfig.freezeAfter: bad duration 'soon'"),
        ("allowMoreResources", 1, "deployConfig.allowMoreResources: must be true or false"),
        ("isolation", "magic", "deployConfig.isolation: bad value 'magic'; use 'gvisor'"),
    ],
)
def test_a_bad_field_is_found_when_the_project_is_read(
    tmp_path: Path, field: str, value: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        project_with(tmp_path, **{field: value})
    assert caught.value.message.startswith(f"config.json:1: {message}")


# The spec


def test_a_spec_is_complete_when_it_is_made(tmp_path: Path) -> None:
    project = project_with(tmp_path, environmentVariables={"A": "config", "B": "config"}, callTimeout="5s")
    request = CreateInstance(envName="echo", environment_variables={"B": "request"}, arguments=["x"])
    python = Python(tmp_path / "python", "", tmp_path, (tmp_path,))
    made = instance_spec(
        "an-id",
        check_request(request, project, Rules()),
        PreparedProject(python, tmp_path / "packages"),
        Conditions(
            start_timeout=7.0,
            keep_history=False,
            tenant="ada",
            secrets=GivenSecrets({"KEY": "hidden"}, ("OPENAI",)),
            service="echo-svc-1",
            storage=tmp_path / "storage",
            storage_place="/kept",
        ),
    )
    assert made == InstanceSpec(
        id="an-id",
        environment="echo@1.0.0",
        project=project.path,
        environment_variables={
            "envNAME": "echo",
            "envversion": "1.0.0",
            "A": "config",
            "B": "request",
            "KEY": "hidden",
            masks.NAMES: "KEY",
            "AENV_SERVICE_ID": "echo-svc-1",
        },
        arguments=("x",),
        start_timeout=7.0,
        call_timeout=5.0,
        python=python,
        requirements=tmp_path / "packages",
        storage=tmp_path / "storage",
        storage_place="/kept",
        keep_history=False,
        tenant="ada",
    )


def test_spare_instances_have_nothing_of_the_instance_that_they_were_first_wanted_for(tmp_path: Path) -> None:
    project = project_with(tmp_path, memory="1Gi")
    one = spec(project, environment_variables={"A": "1"}, arguments=["x"])
    other = spec(project, environment_variables={"A": "2"})
    assert one != other
    assert spare_spec(one) == spare_spec(other)
    assert (spare_spec(one).environment_variables, spare_spec(one).arguments) == ({}, ())
    assert spare_spec(one).limits == one.limits


# Datasources


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "set").mkdir(parents=True)
    (tmp_path / "data" / "file").touch()
    (tmp_path / "secret").mkdir()
    (tmp_path / "data" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data" / "loop")
    (tmp_path / "data" / "also").symlink_to("set")
    (tmp_path / "way-in").symlink_to(tmp_path / "data")
    return tmp_path / "data"


def test_a_folder_below_a_data_root_is_the_instances_data(tmp_path: Path, root: Path) -> None:
    project, rules = project_with(tmp_path), Rules(data_roots=(tmp_path / "secret", root))
    for given in (str(root / "set"), "./set", str(root / "also"), str(tmp_path / "way-in" / "set")):
        made = spec(project, rules, datasource=given)
        assert (made.data, made.sidecar) == (root / "set", "")  # the folder itself, with no link on the way


@pytest.mark.parametrize(
    "given", ["out", "out/..", "../secret", "none", "file", "loop", "set/../../secret", "set\0", "../data-2"]
)
def test_no_path_and_no_link_leads_out_of_a_data_root(tmp_path: Path, root: Path, given: str) -> None:
    (tmp_path / "data-2").mkdir()
    project, rules = project_with(tmp_path), Rules(data_roots=(root,))
    for spelled in (f"./{given}", f"{root}/{given}"):
        error = refused(project, rules, datasource=spelled)
        assert isinstance(error, InvalidRequest)
        assert error.message.endswith("is not a folder below a data root of this gateway")


def test_without_a_data_root_no_folder_is_offered(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    for given in ("/", "./x", "~", "~nobody-of-this-name/x"):
        assert "names them with --data-root" in refused(project, datasource=given).message


@pytest.mark.parametrize(
    ("prefix", "given", "image"),
    [
        (None, "task-1", "docker.io/library/aenv:task-1"),
        ("registry/swe", "task-1", "registry/swe:task-1"),
        ("registry/swe:", "task-1", "registry/swe:task-1"),
        ("registry/swe/", "task-1", "registry/swe/task-1"),
        ("registry/swe", "other/image", "other/image"),
        ("registry/swe", "image:1", "image:1"),
        ("registry/swe", "image@sha256:00", "image@sha256:00"),
        ("registry/swe", "", ""),
    ],
)
def test_any_other_datasource_is_the_second_image(
    tmp_path: Path, prefix: str | None, given: str, image: str
) -> None:
    project = project_with(tmp_path, **({"imagePrefix": prefix} if prefix else {}))
    made = spec(project, datasource=given)
    assert (made.data, made.sidecar) == (None, image)


# Through a gateway


async def test_a_create_that_may_not_be_leaves_no_trace(tmp_path: Path) -> None:
    project = make_project(tmp_path, network="full", memory="1Gi")
    async with running_gateway(tmp_path / "home", project, allow_network="none") as gateway:
        for asked, status in (({}, 403), ({"network": "many"}, 400), ({"datasource": "/"}, 400)):
            code, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo", **asked})
            assert (code, reply["data"]) == (status, None)
        assert (await gateway.create(network="none"))["status"] == "Running"
        assert len((await gateway.ask("GET", "/env-instance/*/list"))[1]["data"]) == 1
        service = await gateway.ask("POST", "/env-service", {"envName": "echo"})
        assert service[0] == 403


async def test_replies_say_what_is_not_enforced_also_after_a_restart(tmp_path: Path) -> None:
    project, home = make_project(tmp_path, memory="1Gi"), tmp_path / "home"
    unlimited = ["memory_bytes: the process engine limits nothing", "network: the process engine limits nothing"]
    said = ([], unlimited, "the host's own, all of it")

    def told(instance: dict[str, Any]) -> tuple[Any, ...]:
        return instance["isolation"], instance["not_enforced"], instance["root"]

    async with composed(home, project, keep_instances=True) as made:
        record = await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
    async with ended(made), running_gateway(home, project) as gateway:
        assert told((await gateway.ask("GET", f"/env-instance/{record.id}"))[1]["data"]) == said
        assert told(await gateway.create()) == said


def test_a_record_keeps_what_its_engine_said() -> None:
    record = Record(id="a", node="n", gateway="g", fingerprint="f", freeze_after=3.0, reclaim=True)
    own = Address(Origin("localhost"), 1, root="an image", not_enforced=("cpu: no",), isolation=("gVisor",))
    record = record.started(own, ["namespaces"])
    kept = Record.load(json.loads(json.dumps(record.dump())), 1)
    assert (kept.isolation, kept.not_enforced, kept.root) == (["gVisor"], ["cpu: no"], "an image")
    assert (kept.freeze_after, kept.reclaim) == (3.0, True)
    assert record.started(Address(Origin("localhost"), 1), ["namespaces"]).isolation == ["namespaces"]


async def test_the_process_engine_refuses_an_isolation_that_it_has_not(tmp_path: Path) -> None:
    engine = ProcessEngine(tmp_path / "home")
    with pytest.raises(Unsupported, match="cannot isolate by 'gvisor'"):
        await engine.create(spec(project_with(tmp_path, isolation="gvisor")))
    assert await engine.leftovers() == []
