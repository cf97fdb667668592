"""The floor: references, quantities, config.json, settings, errors, origins."""

from __future__ import annotations

import json
import logging

import pytest

from aenv.base import config, errors, origins, quantities, refs, settings, wire
from aenv.base.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("my-env", "my-env", None),
        ("my-env@1.0.0", "my-env", "1.0.0"),
        ("my-env@latest", "my-env", None),
        ("a@1.0.0-rc.1+build", "a", "1.0.0-rc.1+build"),
    ],
)
def test_a_reference_is_a_name_and_perhaps_a_version(text, name, version):
    assert refs.parse(text) == refs.Ref(name, version)


@pytest.mark.parametrize("text", ["", "@1", "a@", "a@b@c", "../x", "a/b", "a b", "-a", "x" * 254])
def test_a_bad_reference_is_refused(text):
    with pytest.raises(InvalidRequest, match="bad"):
        refs.parse(text)


@pytest.mark.parametrize("name", ["My-Env", "a_b", "-a", "a-", "", "a.b"])
def test_a_new_environment_needs_a_name_that_is_legal_everywhere(name):
    with pytest.raises(InvalidRequest):
        refs.check_new_name(name)


def test_versions_order_as_semantic_versioning_says():
    ordered = ["nightly", "1.0.0-alpha", "1.0.0-alpha.2", "1.0.0-alpha.10", "1.0.0", "1.2.0", "1.10.0", "2"]
    shuffled = [*ordered[4:], *ordered[3::-1]]
    assert sorted(shuffled, key=refs.Version) == ordered


def test_the_latest_version_is_a_release_if_there_is_one():
    assert refs.latest(["1.0.0", "1.1.0", "2.0.0-rc.1"]) == "1.1.0"
    assert refs.latest(["2.0.0-rc.1"]) == "2.0.0-rc.1"
    assert refs.latest([]) is None


@pytest.mark.parametrize(
    ("text", "value"), [("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("250ms", 0.25), ("90", 90), (5, 5)]
)
def test_durations_are_read_in_seconds(text, value):
    assert quantities.seconds(text) == value


@pytest.mark.parametrize("text", ["", "abc", "10x", "1h x", "-5m"])
def test_a_bad_duration_is_refused_with_an_example(text):
    with pytest.raises(InvalidRequest, match="write it as '30s'"):
        quantities.seconds(text)


@pytest.mark.parametrize("value", [1800.0, 5400.0, 86400.0, 0.25, 61.0])
def test_a_spelled_duration_reads_back(value):
    assert quantities.seconds(quantities.spell_seconds(value)) == value


def test_sizes_and_cpus_are_read_in_bytes_and_cores():
    assert quantities.size_bytes("2Gi") == 2 << 30
    assert quantities.size_bytes("5G") == 5_000_000_000
    assert quantities.size_bytes("512") == 512
    assert quantities.cpus("500m") == 0.5
    assert quantities.cpus("1C") == 1.0
    for bad in ("2Qi", "", "x"):
        with pytest.raises(InvalidRequest):
            quantities.size_bytes(bad)
    with pytest.raises(InvalidRequest):
        quantities.cpus("0")


def write_config(folder, **fields):
    text = json.dumps({"name": "env", "version": "1.0.0", **fields}, indent=2)
    (folder / "config.json").write_text(text)
    return folder


def test_a_project_is_read_with_its_legacy_fields(tmp_path):
    deploy = {"ttl": "2h", "callTimeout": "5m", "cpuRequest": "1C", "environmentVariables": {"A": 1}}
    project = config.load_project(write_config(tmp_path, description="d", tags=["x"], deployConfig=deploy))
    assert (str(project.ref), project.deploy.ttl, project.deploy.call_timeout) == ("env@1.0.0", 7200, 300)
    assert project.deploy.environment_variables.texts == {"A": "1"}


def test_an_unknown_field_is_kept_and_named_with_its_line(tmp_path, caplog):
    project = config.load_project(write_config(tmp_path, colour="red"))
    assert project.raw["colour"] == "red"
    assert "config.json:4: colour: unknown field has no effect" in caplog.text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tags": "linux"}, "config.json:4: tags: must be a list"),
        ({"deployConfig": {"os": 3}}, "config.json:5: deployConfig.os: must be a string"),
        ({"deployConfig": {"pids": True}}, "deployConfig.pids: must be a whole number"),
        ({"version": ""}, "lacks 'version'"),
        ({"name": "../x"}, "bad environment name"),
        ({"deployConfig": {"ttl": "soon"}}, "config.json:5: deployConfig.ttl: bad duration 'soon'"),
        ({"deployConfig": {"memory": "2Qi"}}, "deployConfig.memory: bad size '2Qi'"),
        ({"deployConfig": {"cpuLimit": "0"}}, "deployConfig.cpuLimit: bad cpu amount '0'"),
    ],
)
def test_a_wrong_field_is_an_error_with_its_line(tmp_path, fields, message):
    with pytest.raises(InvalidRequest, match=message):
        config.load_project(write_config(tmp_path, **fields))


@pytest.mark.parametrize("text", ["{", "[]", "", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidRequest):
        config.load_project(tmp_path)


def test_a_folder_without_config_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(InvalidRequest, match="aenv init NAME"):
        config.load_project(tmp_path)


def test_an_unknown_setting_is_one_warning_with_a_suggestion(caplog):
    for _ in range(2):
        settings.client_settings({"AENV_SYSTEM_URLS": "x", "HOME": "/"})
    assert caplog.record_tuples == [
        ("aenv.base.settings", logging.WARNING, "unknown variable AENV_SYSTEM_URLS; did you mean AENV_SYSTEM_URL?")
    ]


def test_an_error_is_raised_again_from_its_code():
    for kind in (errors.NotFound, errors.Conflict, errors.ToolTimeoutError, errors.NetworkError):
        assert type(errors.from_code(kind.code, "m")) is kind
    assert type(errors.from_code("", "m", status=404)) is errors.NotFound
    assert type(errors.from_code("unheard_of", "m", status=418)) is errors.EnvironmentError
    limited = errors.from_code("too_many_requests", "m", retry_after=7)
    assert isinstance(limited, errors.TooManyRequests)
    assert limited.retry_after == 7


def test_instance_ids_are_unguessable_and_legal_pod_names():
    ids = {wire.new_instance_id("My.Env_with-a-very-long-name-that-must-be-cut") for _ in range(100)}
    assert len(ids) == 100
    for id in ids:
        prefix, _, random = id.rpartition("-")
        assert prefix == "my-env-with-a-very-long-name-t"
        assert len(random) == 26
        assert len(id) <= 63


@pytest.mark.parametrize(
    ("host", "origin", "loopback_only", "passes"),
    [
        ("127.0.0.1:8081", None, True, True),
        ("localhost", "http://localhost", True, True),
        ("localhost:8080", "http://localhost:8080", True, True),
        ("localhost:8080", "http://LOCALHOST:8080", True, True),
        ("[::1]:8080", "http://[::1]:8080", True, True),
        ("localhost:443", "https://localhost", True, True),
        ("localhost:8080", "http://localhost:3000", True, False),
        ("localhost:8080", "http://127.0.0.1:8080", True, False),
        ("localhost", "http://localhost:3000", True, False),
        (None, "http://localhost:3000", True, False),
        ("localhost", "http://localhost:x", True, False),
        ("[::1]:8081", None, True, True),
        (None, None, True, True),
        ("evil.example:8081", None, True, False),
        ("localhost", "http://evil.example", True, False),
        ("localhost", "null", True, False),
        ("10.0.0.5:8081", "http://10.0.0.5:8081", False, True),
        ("10.0.0.5:8081", "http://10.0.0.5:3000", False, False),
        ("env.cluster.local", None, False, True),
        ("env.cluster.local", "http://env.cluster.local", False, False),
        ("[::bad", None, True, False),
    ],
)
def test_a_rebound_name_may_not_call_a_local_server(host, origin, loopback_only, passes):
    assert (origins.refusal(host, origin, loopback_only=loopback_only) is None) is passes
