"""config.json: every field is typed, a wrong value names its line and its remedy, and the page tells the truth."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aenv.base.config import Amount, Deploy, Network, Project, SidecarSource, key_lines, load_project, parse_deploy
from aenv.base.config import values as kinds
from aenv.base.config.deploy import ServiceDefaults
from aenv.base.config.project import Build, Data, Grants, ProjectTest, UsedEnvironment
from aenv.base.config.sections import ConfigField, ConfigSection, ConfigText
from aenv.base.errors import InvalidRequest
from aenv.cli.commands import get
from aenv.client.hub_records import HubRuntime, HubVersion

ROOT = Path(__file__).resolve().parent.parent
SECTIONS: dict[str, type[ConfigSection]] = {
    "": Project,
    "buildConfig.": Build,
    "testConfig.": ProjectTest,
    "data.": Data,
    "uses.0.": UsedEnvironment,
    "grants.": Grants,
    "deployConfig.": Deploy,
    "deployConfig.service.": ServiceDefaults,
    "deployConfig.sidecar.": SidecarSource,
}
FIELDS = [
    pytest.param(where, told, id=f"{where}{told.key}")
    for where, section in SECTIONS.items()
    for _, told in section.entries().values()
]
# Values of the right JSON type that are wrong all the same, and a word of what the error says to write instead.
WRONG_VALUES: dict[str, tuple[Any, str]] = {
    kinds.CPU.words: ("many", "write it as '1', '0.5' or '500m'"),
    kinds.SIZE.words: ("2Qi", "write it as '512Mi', '2Gi' or '10G'"),
    kinds.COUNT.words: (0, "must be at least 1, got 0"),
    kinds.NUMBER.words: (-1, "must be at least 0, got -1"),
    kinds.DURATION.words: ("soon", "write it as '30s', '30m', '2h' or '1h30m'"),
    kinds.NETWORK.words: ("some", "use 'none', 'full', or"),
    kinds.VARIABLES.words: ({"A": {"secret": "b c"}}, "or a secret by its name"),
    kinds.ISOLATION.words: ("magic", "use 'gvisor', or leave it out"),
    kinds.MODULES.words: (["os; x"], "name a module, as in 'a.b'"),
    kinds.PACKAGES.words: ([""], "name a package, as in 'pytest'"),
    kinds.PATHS.words: (["../x"], "name a path below the data"),
    kinds.ALIASES.words: (["kit"], "write it as 'name@1.0.0'"),
    kinds.ENVIRONMENTS.words: (["a b"], "write it as 'name', 'name@^1' or 'name@1.0.0'"),
    kinds.ENVIRONMENT.words: ("a b", "write it as 'name', 'name@^1' or 'name@1.0.0'"),
    kinds.PART_NAME.words: ("1 x", "use letters, digits, '_' and '-'"),
    kinds.WORKSPACE.words: ("mine", "use 'shared', or leave it out"),
    kinds.DATA_NAME.words: ("../x", "use lower-case letters, digits and '-'"),
    kinds.DATA_VARIABLE.words: ("HOME", "write it as in 'NAME_DATA_DIR'"),
    kinds.FOLDER_VARIABLES.words: (["HOME"], "'NAME_DATA_DIR' or 'NAME_GIT_DIR'"),
    '`"host"` or object': ("image", 'use "host", or {"dockerfile":'),
}
# Any value of the right JSON type is right.
WITHOUT_WRONG_VALUES = {kind.words for kind in (kinds.TEXT, kinds.TEXTS, kinds.FLAG, kinds.OBJECT, kinds.OBJECTS)}


def write(folder: Path, fields: dict[str, Any]) -> Path:
    """A project whose config.json has each field on a line of its own."""
    text = json.dumps({"name": "env", "version": "1.0.0", **fields}, indent=2)
    (folder / "config.json").write_text(text)
    return folder


def nested(where: str, key: str, value: Any) -> dict[str, Any]:
    """The fields of a config.json in which one field has this value, and its neighbours what they must have."""
    section = SECTIONS[where]
    fields = {each: section.entries()[each][1].example for each in section.required}
    fields[key] = value
    for name in reversed(where.split(".")[:-1]):
        fields = [fields] if name == "0" else {name: fields}
    return fields


def refused(folder: Path, fields: dict[str, Any]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        load_project(write(folder, fields))
    return caught.value.message


def line_of(folder: Path, key: str) -> int:
    """The last line that begins with the key: what `nested` has added stands below the rest."""
    lines = (folder / "config.json").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.strip().startswith(f'"{key}":')][-1]


# Every field


@pytest.mark.parametrize(("where", "told"), FIELDS)
def test_a_value_of_another_type_is_refused_with_the_line_the_field_and_an_example(
    tmp_path: Path, where: str, told: ConfigField
) -> None:
    wrong = next(value for value in ({}, [], True, "x") if type(value) not in told.kind.types)
    message = refused(tmp_path, nested(where, told.key, wrong))
    line = line_of(tmp_path, told.key)
    assert message.startswith(f"config.json:{line}: {where}{told.key}: must be ")
    assert message.endswith(f", as in {json.dumps(told.example)}")


@pytest.mark.parametrize(
    ("where", "told"), [each for each in FIELDS if each.values[1].kind.words not in WITHOUT_WRONG_VALUES]
)
def test_a_wrong_value_is_refused_with_the_line_the_field_and_what_to_write(
    tmp_path: Path, where: str, told: ConfigField
) -> None:
    value, fix = WRONG_VALUES[told.kind.words]
    message = refused(tmp_path, nested(where, told.key, value))
    assert message.startswith(f"config.json:{line_of(tmp_path, told.key)}: {where}{told.key}: ")
    assert fix in message


@pytest.mark.parametrize(("where", "told"), FIELDS)
def test_the_example_of_a_field_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str, told: ConfigField
) -> None:
    load_project(write(tmp_path, nested(where, told.key, told.example)))
    assert caplog.records == []


def test_no_field_stands_for_two_attributes() -> None:
    for section in SECTIONS.values():
        declared = [name for name, _ in section.entries().values()]
        assert len(set(declared)) == len(declared) == len(section.entries())


# Lines


def test_the_line_is_that_of_the_field_and_not_of_another_with_its_name(tmp_path: Path) -> None:
    fields = {
        "description": '"ttl": {',
        "buildConfig": {"ttl": "x"},
        "deployConfig": {"memory": "1Gi", "ttl": "x"},
    }
    assert refused(tmp_path, fields).startswith("config.json:10: deployConfig.ttl: ")


def test_lines_are_told_by_path_whatever_strings_hold() -> None:
    text = '{\n"a": "}\\"{:",\n"b": [{"c": 1},\n{"c": 2}], "d": {"e\\n":\n3},\n"a": 4}'
    assert {key: line for key, line in key_lines(text).items() if "c" not in key} == {
        "a": 6,  # the last one is the one that counts
        "b": 3,
        "d": 4,
        "d.e\n": 4,
    }


def test_a_missing_field_is_named_with_the_object_and_an_example(tmp_path: Path) -> None:
    assert refused(tmp_path, {"data": {"name": "kit"}}) == (
        'config.json:4: data: lacks \'variable\'; add it as in "variable": "TAU2_DATA_DIR"'
    )
    assert (
        refused(tmp_path, {"version": ""}) == 'config.json:1: lacks \'version\'; add it as in "version": "1.0.0"'
    )


@pytest.mark.parametrize(("field", "value"), [("name", "../x"), ("version", "latest"), ("version", "^1")])
def test_a_bad_name_or_version_is_told_with_its_line(tmp_path: Path, field: str, value: str) -> None:
    message = refused(tmp_path, {field: value})
    assert message.startswith(f"config.json:{line_of(tmp_path, field)}: {field}: bad ")


def test_a_deploy_config_that_a_hub_has_stored_has_no_lines() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_deploy({"service": {"replicas": "two"}})
    assert caught.value.message == "deployConfig.service.replicas: must be a whole number, as in 1"


# Unknown, unused and empty fields


@pytest.mark.parametrize("where", ["", "buildConfig.", "testConfig.", "deployConfig.", "deployConfig.service."])
def test_an_unknown_field_is_kept_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    folder = write(tmp_path, nested(where, "colour", "red"))
    assert load_project(folder) == load_project(folder)
    line = line_of(tmp_path, "colour")
    assert [record.message for record in caplog.records] == [
        f"config.json:{line}: {where}colour: unknown field has no effect"
    ]


def test_an_unknown_field_is_told_with_the_one_that_is_meant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_project(write(tmp_path, nested("deployConfig.", "memroy", "1Gi")))
    assert caplog.records[-1].message.endswith(
        "deployConfig.memroy: unknown field has no effect; did you mean 'memory'?"
    )


@pytest.mark.parametrize("where", ["data.", "deployConfig.sidecar."])
def test_what_names_folders_and_builds_refuses_unknown_fields(tmp_path: Path, where: str) -> None:
    message = refused(tmp_path, nested(where, "colour", "red"))
    assert f"{where}colour: is not known here; use '" in message


def test_a_published_config_is_read_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deploy = {
        "cpu": "1",
        "memory": "2Gi",
        "os": "linux",
        "ephemeralStorage": "5Gi",
        "environmentVariables": {},
        "resource": "autoscale",
        "imagePrefix": "",
        "podTemplate": "",
        "arcaTemplateId": "t",
        "ttl": "30m",
        "service": {"replicas": 1, "port": 8081, "enableStorage": False, "storageName": "e", "pvcName": "e"},
        "cpuRequest": "1C",
        "cpuLimit": "2C",
        "memoryRequest": "1G",
        "memoryLimit": "2G",
        "pvcName": "e",
    }
    fields = {
        "status": "Ready",
        "codeUrl": "",
        "artifacts": [{"id": "", "type": "image", "content": "registry/env:1"}],
        "buildConfig": {"dockerfile": "", "context": ".", "image_name": "", "build_policy": "Always"},
        "testConfig": {"script": ""},
        "protocolVersion": "2025-06-18",
        "dependencies": {"environments": ["base@^1"]},
        "deployConfig": deploy,
    }
    project = load_project(write(tmp_path, fields))
    assert caplog.records == []
    assert (project.image, project.build.dockerfile, project.deploy.image_prefix, project.deploy.pod_template) == (
        "registry/env:1",
        "Dockerfile",
        "docker.io/library/aenv",
        "singleContainer",
    )
    assert (project.deploy.cpu_limit, project.deploy.memory_request) == (Amount(2, "2C"), Amount(10**9, "1G"))
    assert project.deploy.raw == deploy  # what hubs store, and replies show


def test_old_flat_fields_of_a_service_count_where_service_does_not_say_them() -> None:
    deploy = parse_deploy({"replicas": 3, "port": 80, "storageSize": "1Gi", "service": {"port": 8080}})
    assert (deploy.service.replicas, deploy.service.port, deploy.service.storage_size) == (3, 8080, "1Gi")
    with pytest.raises(InvalidRequest, match=r"^deployConfig\.replicas: must be a whole number"):
        parse_deploy({"replicas": "3"})


def test_a_project_checks_itself_where_it_is_for_evaluation_unless_it_says_otherwise(tmp_path: Path) -> None:
    for fields, checks in (
        ({}, False),
        ({"evalOnly": True}, True),
        ({"evalOnly": True, "selfCheck": False}, False),
    ):
        assert load_project(write(tmp_path, fields)).self_check is checks


def test_values_are_read_as_what_they_mean() -> None:
    deploy = parse_deploy(
        {
            "cpu": "500m",
            "ttl": "1h30m",
            "freezeAfter": 0,
            "network": {"egress": ["A.example:443"]},
            "environmentVariables": {"A": 1, "KEY": {"secret": "OPENAI"}},
        }
    )
    assert (deploy.cpu, deploy.ttl, deploy.freeze_after) == (Amount(0.5, "500m"), 5400.0, 0.0)
    assert deploy.network == Network("egress", ("a.example:443",))
    assert (deploy.environment_variables.texts, deploy.environment_variables.secrets) == (
        {"A": "1"},
        {"KEY": "OPENAI"},
    )


# The old name of the sidecar


def test_the_old_name_of_the_sidecar_is_read_with_one_warning_for_each_project(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = "config.json:5: deployConfig.secondPart: is now called 'sidecar'; rename it"
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        folder = write(tmp_path / name, {"deployConfig": {"secondPart": "host"}})
        for _ in range(3):
            assert load_project(folder).deploy.sidecar == SidecarSource()
    assert [record.message for record in caplog.records] == [told, told]


def test_a_stored_deploy_config_with_the_old_name_is_read_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    deploy = parse_deploy({"secondPart": {"dockerfile": ["{TASK}/Dockerfile"]}})
    assert deploy.sidecar == SidecarSource(("{TASK}/Dockerfile",))
    assert caplog.records == []


def test_both_names_of_the_sidecar_are_an_error(tmp_path: Path) -> None:
    message = refused(tmp_path, {"deployConfig": {"sidecar": "host", "secondPart": "host"}})
    assert message == (
        "config.json:6: deployConfig.secondPart: is the old name of 'sidecar', which is there too; "
        "remove 'secondPart'"
    )


def test_a_wrong_value_under_the_old_name_is_told_under_the_old_name(tmp_path: Path) -> None:
    assert refused(tmp_path, {"deployConfig": {"secondPart": {"dockerfile": []}}}).startswith(
        "config.json:5: deployConfig.secondPart: lacks 'dockerfile'; add it as in"
    )


# What other hubs have stored


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ({"cpu": 2, "memory": "2Gi", "os": "linux"}, "cpu 2, memory 2Gi"),
        ({"cpu": "many"}, "deployConfig.cpu: bad cpu amount 'many'; write it as '1', '0.5' or '500m'"),
        (None, ""),
    ],
)
def test_get_shows_the_resources_or_what_is_wrong_with_them(stored: dict[str, Any] | None, shown: str) -> None:
    record = {"name": "env", "version": "1.0.0", "status": 1, "deploy_config": stored}
    assert dict(get._fields(HubVersion.of(record), HubRuntime()))["resources"] == shown


# The page


def test_the_page_is_what_the_declarations_say() -> None:
    program = "import config_page; print(config_page.page(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "scripts" / "lib", check=True, capture_output=True, text=True
    )
    assert made.stdout == (ROOT / "docs" / "config.md").read_text(), "run scripts/fix"
    for where, section in SECTIONS.items():
        for key in section.entries():
            assert f"| `{key}` |" in made.stdout, f"{where}{key}"


def test_null_is_as_if_the_field_were_not_there(tmp_path: Path) -> None:
    assert parse_deploy({"ttl": None, "service": {"port": None}}) == parse_deploy({})


def test_a_pushed_bundle_keeps_loading_whatever_earlier_builds_did_not_check(tmp_path: Path) -> None:
    wrong = {
        "buildConfig": {"dockerfile": ["a"]},
        "testConfig": {"script": ["pytest"]},
        "dependencies": ["numpy"],
        "deployConfig": {"service": {"replicas": "2"}, "memory": "1Gi"},
    }
    folder = write(tmp_path, wrong)
    with pytest.raises(InvalidRequest, match=r"buildConfig\.dockerfile"):
        load_project(folder)
    project = load_project(folder, is_published=True)
    assert (project.build, project.test, project.dependencies) == (Build(), ProjectTest(), None)
    assert project.deploy.service.replicas is None and project.deploy.memory
    assert parse_deploy(wrong["deployConfig"], ConfigText(is_published=True)).service.replicas is None


def test_the_folder_above_is_named_where_it_is_the_project(tmp_path: Path) -> None:
    folder = write(tmp_path, {"name": "e", "version": "1.0.0"})
    (folder / "src").mkdir()
    with pytest.raises(InvalidRequest, match=re.escape(f"src'; {str(folder)!r} has one")):
        load_project(folder / "src")
