"""Which root a sidecar has that is made at its first use: the Dockerfile is found, and built."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aenv.base.config import Project, parse_deploy
from aenv.base.errors import InvalidRequest, StartFailed
from aenv.control.instances.declared_sidecar import lazy_sidecar
from aenv.engines.base import LazySidecar
from aenv.isolation.rootfs.resolver import RootfsResolver
from tests import docker
from tests.sidecars import image

pytestmark = pytest.mark.slow


def _project(second: object) -> Project:
    return Project(Path("/p"), "two", "1.0.0", deploy=parse_deploy({"sidecar": second}))


def test_the_first_dockerfile_that_exists_below_the_data_folder_is_taken(tmp_path: Path) -> None:
    asks = _project({"dockerfile": ["{TASK}/Dockerfile", "{TASK}/environment/Dockerfile"]})
    (tmp_path / "a" / "environment").mkdir(parents=True)
    file = tmp_path / "a" / "environment" / "Dockerfile"
    file.write_text("FROM x")
    assert lazy_sidecar(asks, {"TASK": "a"}, tmp_path) == LazySidecar(file)
    (tmp_path / "a" / "Dockerfile").write_text("FROM x")
    assert lazy_sidecar(asks, {"TASK": "a"}, tmp_path) == LazySidecar(tmp_path / "a" / "Dockerfile")
    for variables, data in (({"TASK": "b"}, tmp_path), ({}, tmp_path), ({"TASK": "a"}, None)):
        assert lazy_sidecar(asks, variables, data) == LazySidecar(None)
    assert lazy_sidecar(_project("host"), {}, None) == LazySidecar(None)
    assert lazy_sidecar(Project(Path("/p"), "two", "1.0.0"), {}, None) == ""


def test_what_scripts_of_the_data_would_install_is_required_with_what_the_environment_asks_for(
    tmp_path: Path,
) -> None:
    asks = _project(
        {
            "dockerfile": ["{TASK}/Dockerfile"],
            "requirements": ["pytest"],
            "installers": ["{TASK}/run-tests.sh", "{TASK}/tests/test.sh"],
        }
    )
    for name, text in {
        "a/Dockerfile": "FROM x",
        "a/tests/test.sh": "uvx -w pytest==8.4.1 -w numpy pytest\n",
        "b/Dockerfile": "FROM x",
        "b/run-tests.sh": "pip install -r $TEST_DIR/needs.txt -r ../../secret.txt\n",
        "b/tests/needs.txt": "pandas\n",
        "c/Dockerfile": "FROM x",
    }.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    (tmp_path / "secret.txt").write_text("secret\n")
    (tmp_path / "data" / "b" / "secret.txt").symlink_to(tmp_path / "secret.txt")

    def required(task: str) -> tuple[str, ...]:
        found = lazy_sidecar(asks, {"TASK": task}, tmp_path / "data")
        assert isinstance(found, LazySidecar)
        return found.requirements

    assert required("a") == ("pytest", "pytest==8.4.1", "numpy")
    assert required("b") == ("pytest", "pandas")
    assert required("c") == ("pytest",)
    assert required("none") == ()  # of no Dockerfile: the host's own system, as it is


@pytest.mark.parametrize("value", ["..", ".", "a/b", "/etc", "../x", "a\0b"])
def test_a_variable_is_one_component_of_the_path(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidRequest, match="'TASK'"):
        lazy_sidecar(_project({"dockerfile": ["{TASK}/Dockerfile"]}), {"TASK": value}, tmp_path)


def test_no_link_leads_out_of_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "Dockerfile").write_text("FROM x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "task").symlink_to(tmp_path / "outside")
    asks = _project({"dockerfile": ["{TASK}/Dockerfile"]})
    assert lazy_sidecar(asks, {"TASK": "task"}, tmp_path / "data") == LazySidecar(None)


@pytest.mark.parametrize(
    "second",
    [
        *("image", {}, {"dockerfile": []}, {"dockerfile": ["../x"]}, {"dockerfile": [1]}),
        {"dockerfile": ["x"], "requirements": "pytest"},
        {"dockerfile": ["x"], "requirements": [1]},
        {"dockerfile": ["x"], "installers": ["../x"]},
        {"dockerfile": ["x"], "others": []},
    ],
)
def test_what_it_cannot_be_is_refused_with_the_field(second: object) -> None:
    with pytest.raises(InvalidRequest, match=r"deployConfig\.sidecar"):
        _project(second)


# With Docker

_STAND_IN = """#!{python}
import json, os, shutil, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "build" and os.path.exists({broken!r}):
    sys.exit("step 3: no space left")
if sys.argv[1] == "save":
    shutil.copy({image!r}, sys.argv[sys.argv.index("--output") + 1])
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """A program in the place of docker, whose daemon answers; what it was asked."""
    tar = image(tmp_path / "tiny.tar")
    program, log = tmp_path / "bin" / "docker", tmp_path / "log"
    program.parent.mkdir()
    broken = str(tmp_path / "broken")
    text = _STAND_IN.format(python=sys.executable, log=str(log), broken=broken, image=str(tar))
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


async def _no_run(*_: object, **__: object) -> int:
    raise AssertionError("Docker was to build it")


async def test_docker_builds_it_where_its_daemon_answers_and_the_same_content_once(
    tmp_path: Path, stand_in: Callable[[], list[list[str]]]
) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "Dockerfile").write_text("FROM anything\nRUN true\n")
    roots = RootfsResolver(tmp_path / "home", run=_no_run, network=False)
    lines: list[str] = []
    root = await roots.sidecar(task / "Dockerfile", lines.append)
    assert (root.folder, root.variables["COLOUR"]) == ("/testbed", "blue")
    assert [words[0] for words in stand_in()] == ["version", "build", "save", "image"]
    assert {"--network", "none"} <= {*stand_in()[1]}
    assert await RootfsResolver(tmp_path / "home", run=_no_run, network=False).sidecar(task / "Dockerfile") == root
    assert len(stand_in()) == 4
    (task / "more").write_text("changed")
    await roots.sidecar(task / "Dockerfile")
    assert len(stand_in()) == 8


async def test_what_docker_says_when_it_fails_is_told(
    tmp_path: Path, stand_in: Callable[[], list[list[str]]]
) -> None:
    (tmp_path / "broken").touch()
    (tmp_path / "Dockerfile").write_text("FROM anything\n")
    with pytest.raises(StartFailed, match="no space left"):
        await RootfsResolver(tmp_path / "home", run=_no_run).sidecar(tmp_path / "Dockerfile")


async def test_a_real_docker_builds_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "hello").write_text("hi")
    (task / "Dockerfile").write_text("FROM scratch\nCOPY hello /app/hello\nENV COLOUR=red\nWORKDIR /app\n")
    with docker.engine(tmp_path_factory.mktemp("docker")) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        root = await RootfsResolver(tmp_path / "home", run=_no_run).sidecar(task / "Dockerfile")
        names = subprocess.run(
            [shutil.which("docker") or "docker", "images", "-q"], capture_output=True, text=True
        )
    assert (root.layers[0] / "app" / "hello").read_text() == "hi"
    assert (root.folder, root.variables["COLOUR"]) == ("/app", "red")
    assert names.stdout == ""
