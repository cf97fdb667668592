"""Instances run on the Python that their environment asks for, where this host has it, and else on ours."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.artifacts.pythons.choosing import Pythons
from aenv.artifacts.pythons.interpreters import Found
from aenv.artifacts.pythons.wanted import spelled
from aenv.attacks import projects
from aenv.attacks.table import names
from aenv.base import settings
from aenv.base.config import load_project
from aenv.base.http1 import Pool
from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox import probe
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.command_line import aenv, environ
from tests.gateways import Gateway, make_project, running_gateway
from tests.interpreters import OURS, made_runtime, other_python

# uv installs a runtime and several gateways are started; on a busy host that takes longer than other tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CODE = '''
import os
import subprocess
import sys

from aenv import register_tool


@register_tool
def version() -> str:
    """Which Python this is."""
    return "%d.%d" % sys.version_info[:2]


@register_tool
def run(words: list[str]) -> str:
    """What a program prints."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@register_tool
def listed(path: str) -> list[str]:
    """What is in a folder."""
    return sorted(os.listdir(path))
'''
COMPILED = '''
from aenv import register_tool
import markupsafe._speedups


@register_tool
def compiled() -> str:
    """Where a compiled package comes from."""
    return markupsafe._speedups.__file__
'''


@pytest.fixture(scope="module")
def other(home: Path) -> Found:
    found = other_python(home)
    asyncio.run(made_runtime(found, home))
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests here: the runtime is made once in it."""
    return tmp_path_factory.mktemp("aenv")


@pytest.fixture
def native() -> None:
    if missing := probe.missing_isolation():
        pytest.skip(f"cannot run on this host: {missing}")


def asking(folder: Path, name: str, minor: tuple[int, int], code: str = CODE) -> Path:
    """A project whose pyproject.toml asks for one Python and no other."""
    project = make_project(folder, name, code=code)
    (project / "pyproject.toml").write_text(f'[project]\nrequires-python = "=={spelled(minor)}.*"\n')
    return project


async def push(gateway: Gateway, project: Path, *options: str) -> str:
    """What `aenv push` says besides its result."""
    variables = environ(AENV_HOME=str(gateway.home), HUB_BACKEND=f"http://127.0.0.1:{gateway.address.port}")
    done = await asyncio.to_thread(lambda: aenv("push", project, *options, env=variables))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pushed ")
    return done.stderr


async def told(gateway: Gateway, name: str) -> dict[str, str]:
    status, reply = await gateway.ask("GET", f"/env/{name}/1.0.0/root")
    assert status == 200, reply
    data: dict[str, str] = reply["data"]
    return data


async def test_a_pushed_dockerfile_chooses_the_python_of_processes(
    other: Found, home: Path, tmp_path: Path
) -> None:
    # Its syntax or its packages may be of that version alone, so that push loads it there as well.
    checked = f"import sys\nassert sys.version_info[:2] == {other.minor}\n{CODE}"
    project = make_project(tmp_path, "by-dockerfile", code=checked)
    (project / "Dockerfile").write_text(f"FROM python:{spelled(other.minor)}-slim\n")
    async with running_gateway(home) as gateway:
        assert await push(gateway, project) == ""
        id = (await gateway.create("by-dockerfile@1.0.0"))["id"]
        assert await gateway.call(id, "version") == spelled(other.minor)
        assert (await told(gateway, "by-dockerfile"))["python"] == (
            f"{other.version}: its Dockerfile asks for Python {spelled(other.minor)}"
        )


@pytest.mark.usefixtures("native")
async def test_an_isolated_instance_runs_on_it_with_compiled_requirements(
    other: Found, home: Path, tmp_path: Path
) -> None:
    project = asking(tmp_path, "compiled", other.minor, CODE + COMPILED)
    (project / "requirements.txt").write_text("markupsafe\n")
    async with running_gateway(home, engine="native") as gateway:
        assert await push(gateway, project) == ""
        id = (await gateway.create("compiled@1.0.0"))["id"]
        assert await gateway.call(id, "version") == spelled(other.minor)
        assert other.platform.partition(" ")[0] in await gateway.call(id, "compiled")
        # What it starts by name is the same Python, and knows aenv.
        code = "import aenv, sys; print('%d.%d' % sys.version_info[:2])"
        assert await gateway.call(id, "run", words=["python", "-c", code]) == f"{spelled(other.minor)}\n"
        asked = json.dumps({"command": ["python", "-V"]}).encode()
        target = f"/env-instance/{id}/exec"
        response = await gateway.pool.request(gateway.control, "POST", target, (), asked)
        assert f"Python {other.version}" in (await response.read()).decode()


@pytest.mark.usefixtures("native")
async def test_a_dockerfile_chooses_the_python_of_an_isolated_instance(
    other: Found, home: Path, tmp_path: Path
) -> None:
    project = make_project(tmp_path, "isolated", code=CODE)
    (project / "Dockerfile").write_text(f"FROM python:{spelled(other.minor)}-slim\n")
    plain = make_project(tmp_path, "plain", code=CODE)
    async with running_gateway(home, project, plain, engine="native") as gateway:
        id = (await gateway.create("isolated@1.0.0"))["id"]
        assert await gateway.call(id, "version") == spelled(other.minor)
        said = await told(gateway, "plain")
        assert said["python"] == f"{spelled(OURS)}, which runs aenv"
        assert "note" not in said


@pytest.mark.usefixtures("native")
async def test_attacks_from_it_are_contained_and_it_sees_no_other_interpreter(
    other: Found, home: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a token that is nowhere else")
    attacked = projects.make_project(tmp_path / "attacked")
    (attacked / "pyproject.toml").write_text(f'[project]\nrequires-python = "=={spelled(other.minor)}.*"\n')
    given = {
        "token": secret.read_text(),
        "secret": str(secret),
        "gateway_home": str(home / "run"),
        "own_folder": "/workspace",
        "private": "/etc/shadow",
        "setuid": "/usr/bin/su",
        "system_file": "/usr/lib/os-release",
        "project_file": "/environment/src/environment.py",
    }
    seen = asking(tmp_path, "seen", other.minor)
    async with running_gateway(home, attacked, seen, engine="native") as gateway:
        id = (await gateway.create("attacked@1.0.0"))["id"]
        for family in ("files", "kernel"):
            for name in names(family):
                verdict = await gateway.call(id, "attack", family=family, name=name, given=given)
                assert verdict["succeeded"] is False, (name, verdict)
        id = (await gateway.create("seen@1.0.0"))["id"]
        (runtime,) = (await gateway.call(id, "listed", path=str(home / "requirements")))["result"]
        assert runtime in {path.name for path in (home / "requirements").iterdir()}
        assert await gateway.call(id, "listed", path=str(home)) == {"result": ["requirements"]}
        if not other.prefix.is_relative_to("/usr"):
            beside = await gateway.call(id, "listed", path=str(other.prefix.parent))
            assert beside == {"result": [other.prefix.name]}


@pytest.mark.usefixtures("native")
async def test_instances_of_the_same_code_on_two_pythons_share_nothing(
    other: Found, home: Path, tmp_path: Path
) -> None:
    root, python = host_root(home), await made_runtime(other, home)

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    plain = InstanceSpec("ours-1", "plain@1.0.0", make_project(tmp_path, "plain", code=CODE))
    async with NativeEngine(home, root_of) as engine, Pool() as pool:
        for id, on in (("ours-1", None), ("other-1", python), ("ours-2", None), ("other-2", python)):
            spec = replace(plain, id=id, python=on)
            await engine.keep_warm(spec, 1)
            address = await engine.create(spec)
            response = await pool.request(address.origin, "POST", "/tools/version", (), b"{}")
            said = (await response.read()).decode()
            await engine.destroy(id)
            assert spelled(other.minor if on else OURS) in said


@pytest.mark.usefixtures("native")
async def test_an_image_without_a_system_of_its_own_runs_on_it_too(
    other: Found, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "image").mkdir()
    root, python = Rootfs("an empty image", (tmp_path / "image",)), await made_runtime(other, home)

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    spec = InstanceSpec("empty-1", "plain@1.0.0", make_project(tmp_path, "plain", code=CODE), python=python)
    async with NativeEngine(home, root_of) as engine, Pool() as pool:
        address = await engine.create(spec)
        response = await pool.request(address.origin, "POST", "/tools/version", (), b"{}")
        said = (await response.read()).decode()
        await engine.destroy(spec.id)
        assert spelled(other.minor) in said


async def test_one_that_is_missing_is_told_at_push_and_once_in_the_log(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project = make_project(tmp_path, "future", code=CODE)
    (project / "Dockerfile").write_text("FROM python:3.99-slim\n")
    said = (
        "its Dockerfile asks for Python 3.99, which this host does not have ('uv python install 3.99' brings it, "
        f"as the user who runs the gateway); its instances run on Python {spelled(OURS)}, which runs aenv"
    )
    async with running_gateway(home) as gateway:
        assert await push(gateway, project) == f"note: {said}\n"
        for _ in range(2):
            id = (await gateway.create("future@1.0.0"))["id"]
            assert await gateway.call(id, "version") == spelled(OURS)
    logged = [record.getMessage() for record in caplog.records if record.name == "aenv.control.instances.catalog"]
    assert logged == [f"future@1.0.0: {said}"]


async def test_without_packages_for_it_instances_run_on_ours(
    other: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_FIND_LINKS", "")
    project = load_project(asking(tmp_path, "offline", other.minor))
    chosen = await Pythons(tmp_path / "home", settings.variables()).choose(project)
    assert chosen.python is None
    assert f"and {other.executable} cannot be prepared for it: cannot install what the runtime" in chosen.problem
    assert chosen.problem.endswith(f"; its instances run on Python {spelled(OURS)}, which runs aenv")
    assert "\n" not in chosen.problem
    assert [path.name for path in (tmp_path / "home" / "requirements").iterdir()] == ["resolved"]


async def test_a_runtime_that_was_removed_is_made_again(other: Found, home: Path, tmp_path: Path) -> None:
    project = load_project(asking(tmp_path, "again", other.minor))
    pythons = Pythons(home, settings.variables())
    first, second = await asyncio.gather(pythons.choose(project), pythons.choose(project))
    assert first == second
    assert first.python
    first.python.folders[0].rename(tmp_path / "removed")
    again = await pythons.choose(project)
    assert again.python == first.python
    assert again.python.executable.exists()
    # A fact about everything in it, which instances see as a user who is nobody there.
    modes = {path.lstat().st_mode & 0o004 for path in again.python.folders[0].rglob("*")}
    assert modes == {0o004}


async def test_nothing_is_looked_for_where_our_own_python_will_do(tmp_path: Path) -> None:
    class NoLook(dict[str, str]):
        def get(self, *_: Any) -> Any:
            raise AssertionError("a look for interpreters")

    pythons = Pythons(tmp_path / "home", NoLook())
    plain, ours = make_project(tmp_path, "plain"), asking(tmp_path, "ours", OURS)
    for project in (load_project(plain), load_project(ours)):
        assert (await pythons.choose(project)).python is None
        for file in project.path.iterdir():  # nor on the disk, the second time
            if file.is_file():
                file.unlink()
        assert (await pythons.choose(project)).problem == ""
    assert not (tmp_path / "home").exists()
