"""What the attack tests share: an ordinary user, an engine of root's and one of theirs, a host worth attacking."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.attacks import ground
from tests.attacks.engines import AttackedEngine, attacked_engine
from tests.attacks.outside import Outside
from tests.ordinary import OrdinaryUser, ordinary_user


@pytest.fixture(scope="session")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user() as user:
        yield user


@pytest.fixture(scope="package", params=["root", "user"])
def engine(request: pytest.FixtureRequest, user: OrdinaryUser) -> Iterator[AttackedEngine]:
    with attacked_engine(user if request.param == "user" else None) as engine:
        yield engine


@pytest.fixture(scope="module")
def instance(engine: AttackedEngine) -> Iterator[str]:
    """For attacks that leave no traces when they are contained."""
    id = engine.ask("create")["id"]
    yield id
    engine.ask("destroy", id=id)


@pytest.fixture
def instances(engine: AttackedEngine) -> Iterator[Any]:
    """`instances(**arguments)` makes one; all are ended with the test."""
    made: list[str] = []

    def make(**arguments: Any) -> str:
        made.append(engine.ask("create", **arguments)["id"])
        return made[-1]

    yield make
    for id in made:
        engine.ask("destroy", id=id)


@pytest.fixture(scope="module")
def host(engine: AttackedEngine, user: OrdinaryUser) -> Iterator[dict[str, Any]]:
    """A host with something to find: a secret file, a process, servers. What the attack programs are told of it.

    Everything is the engine's own user's, so that only isolation is in the way.
    """
    with contextlib.ExitStack() as stack:
        folder = user.make_folder("host", 0o700)
        secret = folder / "secret"
        secret.write_text(engine.token)
        os.chown(folder, engine.owner, engine.owner)
        os.chown(secret, engine.owner, engine.owner)
        secret.chmod(0o600)
        name = f"victim-{engine.token[-8:]}"
        become = ["setpriv", "--reuid", str(engine.owner), "--regid", str(engine.owner), "--clear-groups"]
        victim = stack.enter_context(ground.victim(name, become))
        ports = stack.enter_context(ground.servers(engine.token, user.folder / f"unix-{engine.token[-8:]}"))
        yield {
            "token": engine.token,
            "secret": str(secret),
            "victim": victim.pid,
            "victim_name": name,
            "gateway_home": str(engine.home),
            "proxy": 3128,
            "open_files": 4097,
            **ports,
        }
        assert victim.poll() is None, "the victim on the host was ended"
        assert secret.read_text() == engine.token


@pytest.fixture(scope="module")
def given(host: dict[str, Any]) -> dict[str, Any]:
    """What the programs are told inside."""
    return {
        **host,
        "own_folder": "/workspace",
        "private": "/opt/secret",
        "setuid": "/opt/setuid-cat",
        "system_file": "/usr/lib/os-release",
        "project_file": "/environment/src/environment.py",
    }


@pytest.fixture(scope="module")
def outside(engine: AttackedEngine, host: dict[str, Any], user: OrdinaryUser, tmp_path_factory: Any) -> Outside:
    """The same attacks without the sandbox, as root."""
    folder: Path = tmp_path_factory.mktemp("outside")
    told = {
        **host,
        "own_folder": str(folder),
        "private": str(engine.private / "secret"),
        "setuid": str(engine.private / "setuid-cat"),
        "system_file": "/usr/lib/os-release",
        "project_file": str(engine.project / "src" / "environment.py"),
    }
    return Outside(str(user.python), told)


if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each alone is quick; hundreds of them, in several engines and as several users, are not for every day."""
    for item in items:
        if "tests/attacks/" in item.path.as_posix():
            item.add_marker(pytest.mark.slow)
