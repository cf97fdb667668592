"""The published package and ours, each with the other's other half: the same program finds the same facts.

Its ports are hard-wired, so everything here runs in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.servers import ENVIRONMENTS, gateway, local_run, published_runtime, runtime
from tests.netns import Namespace, namespace
from tests.system import require
from tests.venvs import judge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each of its processes takes seconds to start

PORTABLE = ENVIRONMENTS / "portable"
USAGE = Path(__file__).parent.parent / "judges" / "usage.py"
DIRECT = {"DUMMY_INSTANCE_IP": "127.0.0.1"}
REMOTE = {"AENV_SYSTEM_URL": "http://127.0.0.1:8080"}


@pytest.fixture(scope="module")
def published() -> Path:
    return judge("published")


@pytest.fixture(scope="module")
def may_make_namespaces() -> None:
    require("ip", "iproute2")
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")


@pytest.fixture
def space(may_make_namespaces: None) -> Iterator[Namespace]:
    with namespace() as made:
        yield made


@pytest.fixture(scope="module")
def expected(may_make_namespaces: None, published: Path) -> dict[str, Any]:
    """What a user of the published package finds: its SDK on its runtime."""
    with namespace() as made, published_runtime(published, PORTABLE, made):
        return _facts(made, published, "environment", DIRECT)


def test_its_sdk_finds_the_same_on_our_runtime(
    space: Namespace, published: Path, expected: dict[str, Any]
) -> None:
    with runtime(PORTABLE, space=space):
        assert _facts(space, published, "environment", DIRECT) == expected


def test_our_sdk_finds_the_same_on_its_runtime(
    space: Namespace, published: Path, expected: dict[str, Any]
) -> None:
    with published_runtime(published, PORTABLE, space):
        assert _facts(space, Path(sys.executable), "environment", DIRECT) == expected


def test_our_sdk_finds_the_same_on_our_runtime(space: Namespace, expected: dict[str, Any]) -> None:
    with runtime(PORTABLE, space=space):
        assert _facts(space, Path(sys.executable), "environment", DIRECT) == expected


def test_its_sdk_finds_the_same_through_our_gateway(
    space: Namespace, published: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    with gateway(tmp_path, PORTABLE, space=space):
        assert _facts(space, published, "environment", REMOTE) == expected


def test_its_sdk_finds_the_same_through_aenv_run(
    space: Namespace, published: Path, expected: dict[str, Any]
) -> None:
    with local_run(PORTABLE, space):
        assert _facts(space, published, "environment", DIRECT) == expected
        assert _facts(space, published, "environment", REMOTE) == expected


def test_its_scheduler_client_creates_finds_and_deletes_on_our_gateway(
    space: Namespace, published: Path, tmp_path: Path
) -> None:
    with gateway(tmp_path, PORTABLE, space=space):
        facts = _facts(space, published, "scheduler", REMOTE)
        assert facts == {
            "status": "Running",
            "same id": True,
            "begins with its name": True,
            "has an ip": True,
            "deleted": True,
            "afterwards": "Terminated",
        }
        assert _facts(space, Path(sys.executable), "scheduler", REMOTE) == facts


def _facts(space: Namespace, python: Path, what: str, variables: dict[str, str]) -> dict[str, Any]:
    """What `usage.py` prints last, run with `python` inside `space`."""
    done = subprocess.run(
        space.command(str(python), str(USAGE), what),
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
