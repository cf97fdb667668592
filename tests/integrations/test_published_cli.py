"""The published command line, 0.1.7, with our hub and gateway: from an empty folder to a running service.

Its ports are hard-wired, so everything here runs in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gateways import instance_processes, leftovers
from tests.judges.published_cli import User
from tests.judges.servers import gateway
from tests.netns import Namespace, namespace
from tests.system import require
from tests.venvs import judge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each of its commands takes seconds

SDK = Path(__file__).parent.parent / "judges" / "published_cli_sdk.py"
MakeUser = Callable[..., User]


@pytest.fixture
def space() -> Iterator[Namespace]:
    require("ip", "iproute2")
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    with namespace() as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The gateway's."""
    return tmp_path / "gateway"


@pytest.fixture
def user(space: Namespace, tmp_path: Path) -> MakeUser:
    def make(name: str, key: str = "") -> User:
        (tmp_path / name).mkdir()
        return User(space, judge("published"), tmp_path / name, key).configured()

    return make


def token(home: Path, user: str) -> str:
    """A new account's, made as an administrator makes it."""
    command = [sys.executable, "-m", "aenv.cli", "token", "create", "--user", user, "--home", str(home)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def pushed(user: User, name: str = "echo-env") -> Path:
    """A project that its `init` has made and its `push` has published."""
    made = user.aenv("init", name)
    assert made.code == 0, made.output
    project = user.home / name
    said = user.aenv("push", within=project)
    assert (said.code, "Push successfully" in said.output) == (0, True), said.output
    return project


def test_an_environment_is_made_pushed_and_found(
    space: Namespace, home: Path, user: MakeUser, tmp_path: Path
) -> None:
    alice = user("alice")
    with gateway(home, space=space):
        assert "No environment data" in alice.aenv("list").output
        project = pushed(alice)
        again = alice.aenv("init", "echo-env", "--work-dir", str(tmp_path))
        assert (again.code, "already exists in registry" in again.output) == (1, True)
        config = json.loads((project / "config.json").read_text())
        (project / "config.json").write_text(json.dumps({**config, "tags": ["linux", "demo"]}))
        said = alice.aenv("push", within=project)
        assert said.code == 0, said.output
        assert "already exists in remote aenv_hub" in said.output
        (row,) = alice.aenv("list", "--format", "json").json()
        assert (row["name"], row["version"], row["tags"]) == ("echo-env", "1.0.0", ["linux", "demo"])
        assert row["code_url"] == "oss://bucket/envs/echo-env-1.0.0.tar"
        assert "echo-env" in alice.aenv("list").output
        found = alice.aenv("get", "echo-env").json()
        assert (found["status"], found["deploy_config"]["memory"]) == (6, config["deployConfig"]["memory"])
        missing = alice.aenv("get", "nothing")
        assert (missing.code, "not found" in missing.output) == (1, True)


def test_instances_are_created_shown_and_deleted(space: Namespace, home: Path, user: MakeUser) -> None:
    alice = user("alice")
    with gateway(home, space=space):
        project = pushed(alice)
        created = alice.aenv("instance", "create", "--keep-alive", "-o", "json", within=project)
        assert created.code == 0, created.output
        info = created.json()
        id = info["instance_id"]
        assert (info["name"], info["status"], bool(info["ip"])) == ("echo-env@1.0.0", "Running", True)
        for which in ([], ["--name", "echo-env"], ["--name", "echo-env", "--version", "1.0.0"]):
            (row,) = alice.aenv("instance", "list", *which, "-o", "json").json()
            assert (row["id"], row["status"], row["env"]["version"]) == (id, "Running", "1.0.0")
        assert "No running instances found for other" in alice.aenv("instance", "list", "--name", "other").output
        shown = alice.aenv("instance", "get", id)
        assert (shown.code, id in shown.output, "Running" in shown.output) == (0, True, True)
        deleted = alice.aenv("instance", "delete", id, "-y")
        assert (deleted.code, "Instance deleted successfully" in deleted.output) == (0, True)
        assert leftovers(home) == []
        assert "Terminated" in alice.aenv("instance", "get", id).output
        missing = alice.aenv("instance", "get", "none")
        assert (missing.code, "Instance not found" in missing.output) == (1, True)


def test_an_instance_that_is_not_kept_alive_is_gone_though_the_client_says_otherwise(
    space: Namespace, home: Path, user: MakeUser
) -> None:
    """It sends its DELETE from another event loop than the one it connected in, and cannot read the answer."""
    alice = user("alice")
    with gateway(home, space=space):
        project = pushed(alice)
        for command in (["create"], ["info", "echo-env@1.0.0"]):  # `info` makes one, too
            said = alice.aenv("instance", *command, within=project)
            assert said.code == 0, said.output
            assert "Failed to delete environment instance: Event loop is closed" in said.output
        assert "No running instances found" in alice.aenv("instance", "list").output


def test_its_sdk_and_ours_use_what_its_command_line_pushed(space: Namespace, home: Path, user: MakeUser) -> None:
    alice = user("alice")
    with gateway(home, space=space):
        pushed(alice)
        for python in (alice.python, Path(sys.executable)):
            said = alice.runs(SDK, "echo-env@1.0.0", python=python)
            assert said.code == 0, said.output
            facts = json.loads(said.stdout.splitlines()[-1])
            assert facts["tools"] == ["echo-env@1.0.0/my_custom_echo_env"]
            assert facts["said"] == {"result": "hello"}
            assert facts["reward"]["score"] == 1.0
            assert "Terminated" in alice.aenv("instance", "get", facts["id"]).output
        assert leftovers(home) == []


def test_with_accounts_everybody_has_their_own(space: Namespace, home: Path, user: MakeUser) -> None:
    nobody, alice, bob = user("nobody"), *(user(name, token(home, name)) for name in ("alice", "bob"))
    with gateway(home, space=space):
        project = pushed(alice)
        for stranger, why in ((nobody, "missing Authorization header"), (bob, "is not yours to change")):
            said = stranger.aenv("push", within=project)
            assert (said.code, why in said.output) == (1, True), said.output
        assert "No environment data" in nobody.aenv("list").output
        assert "Authentication failed" in nobody.aenv("instance", "list").output
        # `instance create` reads its key from the variable, and all other commands theirs from the file.
        refused = alice.aenv("instance", "create", "--keep-alive", within=project)
        assert (refused.code, "missing Authorization header" in refused.output) == (1, True)
        created = alice.aenv(
            "instance", "create", "--keep-alive", "-o", "json", within=project, AENV_API_KEY=alice.key
        )
        assert created.code == 0, created.output
        id = created.json()["instance_id"]
        assert "No running instances found" in bob.aenv("instance", "list").output
        (row,) = alice.aenv("instance", "list", "-o", "json").json()
        assert (row["id"], row["owner"]) == (id, "alice")
        hidden = bob.aenv("instance", "get", id)
        assert (hidden.code, "Instance not found" in hidden.output) == (1, True)
        assert bob.aenv("instance", "delete", id, "-y").code == 1
        assert len(instance_processes(home)) == 1
        assert alice.aenv("instance", "delete", id, "-y").code == 0
        assert leftovers(home) == []
        said = bob.runs(SDK, "echo-env@1.0.0", AENV_API_KEY=bob.key)  # shared with the team, as pushed
        assert said.code == 0, said.output


def test_services_are_created_changed_and_deleted(space: Namespace, home: Path, user: MakeUser) -> None:
    alice = user("alice", token(home, "alice"))
    with gateway(home, space=space):
        project = pushed(alice)
        created = alice.aenv("service", "create", "-s", "svc", "-r", "2", "-o", "json", within=project)
        assert created.code == 0, created.output
        service = created.json()
        assert (service["id"], service["replicas"], service["owner"]) == ("svc", 2, "alice")
        assert service["service_url"] == "http://127.0.0.1:8081/services/svc"
        (row,) = alice.aenv("service", "list", "-n", "echo-env", "-o", "json").json()
        assert (row["id"], row["env"]["name"]) == ("svc", "echo-env")
        shown = alice.aenv("service", "get", "svc")
        assert (shown.code, "svc" in shown.output, "echo-env" in shown.output) == (0, True, True)
        updated = alice.aenv("service", "update", "svc", "-r", "1", "-e", "SECRET=hush", "-o", "json")
        assert updated.code == 0, updated.output
        assert updated.json()["replicas"] == 1
        assert "hush" not in updated.output
        deleted = alice.aenv("service", "delete", "svc", "-y")
        assert (deleted.code, "Service deleted successfully" in deleted.output) == (0, True)
        assert leftovers(home) == []
        missing = alice.aenv("service", "get", "svc")
        assert missing.code == 1
        assert "No running services found" in alice.aenv("service", "list").output


def test_a_service_with_storage_keeps_it_until_it_is_told_not_to(
    space: Namespace, home: Path, user: MakeUser
) -> None:
    alice = user("alice")
    with gateway(home, space=space):
        project = pushed(alice)
        for options, kept in (([], True), (["--delete-storage"], False)):
            created = alice.aenv(
                "service", "create", "-s", "svc", "--enable-storage", "-o", "json", within=project
            )
            assert created.code == 0, created.output
            name = created.json()["pvc_name"]
            assert (
                name == json.loads((project / "config.json").read_text())["deployConfig"]["service"]["storageName"]
            )
            refused = alice.aenv("service", "update", "svc", "-r", "2")
            assert (refused.code, "must be 1 with storage" in refused.output) == (1, True)
            assert alice.aenv("service", "delete", "svc", "-y", *options).code == 0
            assert bool(list((home / "storage").glob(f"*/{name}"))) is kept
