"""`aenv data prepare swebench`: interpreters, releases and packages, made ready for instances."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv import Context
from aenv.artifacts.data.prepare import preparable
from aenv.artifacts.requirements import find_uv
from tests.command_line import aenv, environ
from tests.envs.shells import post
from tests.envs.swebench_data import PROJECT, wheels
from tests.envs.swebench_places import SOLUTION, added
from tests.gateways import Gateway, running_gateway

# isort: split
import _swebench_confine as confine
import swebench_bases as bases
import swebench_pythons as pythons
from swebench_bench import Bench
from swebench_prepare import NotPrepared, Preparation, _copy_interpreter, noted
from swebench_records import record_of
from swebench_sources import records as read_records

pytestmark = pytest.mark.slow  # packages are built, and tests run

ID = "own__pkg-1"
# A build that needs no network, and leaves a file in the tree as that of many projects does.
BACKEND = """\
import os, pathlib, zipfile


def build_editable(folder, *_, **__):
    version = os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"]
    pathlib.Path("pkg/_version.py").write_text(f"version = {version!r}\\n")
    name = f"pkg-{version}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        info = f"pkg-{version}.dist-info"
        wheel.writestr("__editable__pkg.pth", str(pathlib.Path.cwd()))
        metadata = f"Metadata-Version: 2.1\\nName: pkg\\nVersion: {version}\\nRequires-Dist: iniconfig\\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name


build_wheel = build_editable
"""
FILES = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    '[project]\nname = "pkg"\ndynamic = ["version"]\n',
    "backend.py": BACKEND,
    "pkg/__init__.py": "",
    "pkg/core.py": "def double(n):\n    return n\n",
}
TESTS = """\
from importlib.metadata import version

from pkg._version import version as written
from pkg.core import double


def test_double():
    assert double(2) == 4


def test_version():
    assert version("pkg") == written == "1.2.dev0"
"""
RECORD: dict[str, Any] = {
    "instance_id": ID,
    "repo": "own/pkg",
    "version": "1.2",
    "sdist": "pkg-1.1",
    "patch": SOLUTION,
    "test_patch": added("tests/test_core.py", TESTS),
    "FAIL_TO_PASS": ["tests/test_core.py::test_double"],
    "PASS_TO_PASS": ["tests/test_core.py::test_version"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Our record and its release; the wheels of pytest, for uv to find."""
    assert request.config.cache is not None
    folder = tmp_path_factory.mktemp("swebench") / "data"
    for name in ("sdists", "wheels"):
        (folder / name).mkdir(parents=True)
    for wheel in wheels(request.config.cache):
        shutil.copy(wheel, folder / "wheels")
    pins = [(*wheel.name.split("-")[:2],) for wheel in (folder / "wheels").iterdir()]
    # One that pytest needs is not pinned: the release requires it, and the commit did not.
    lines = "".join(f"      - {name}=={version}\n" for name, version in pins if name != "iniconfig")
    record = {**RECORD, "environment": f"dependencies:\n  - pip:\n{lines}"}
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    with tarfile.open(folder / "sdists" / "pkg-1.1.tar.gz", "w:gz") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"pkg-1.1/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return folder


def offline(data: Path, **more: str) -> dict[str, str]:
    """Variables with which uv finds the wheels of the data, and nothing else."""
    return environ(UV_OFFLINE="1", UV_NO_INDEX="1", UV_FIND_LINKS=str(data / "wheels"), **more)


def test_a_task_is_prepared_once(data: Path, tmp_path: Path) -> None:
    env = offline(data, AENV_HOME=str(tmp_path), SWEBENCH_DATA_DIR=str(data))
    words = ("data", "prepare", "swebench", "--no-self-check", "--json", "--instances")
    first = aenv(*words, f"{ID},nowhere-1", env=env)
    assert first.returncode == 1
    ready, missing = json.loads(first.stdout)
    assert ready == {"id": ID, "base": "sdist variant: pkg-1.1.tar.gz", "check": "", "reason": ""}
    assert "has no such instance" in missing["reason"]
    assert f"{ID}: installing pkg for development" in first.stderr

    venv = tmp_path / "data" / "swebench-prepared" / "venvs" / ID
    assert (venv / "tree" / "pkg" / "_version.py").read_text() == "version = '1.2.dev0'\n"
    packages = venv / "lib" / f"python{pythons.own().minor}" / "site-packages"
    assert (packages / "pytest" / "__init__.py").is_file()
    assert (packages / "pkg-1.2.dev0.dist-info").is_dir()
    assert (packages / "iniconfig" / "__init__.py").is_file()
    assert not [*packages.glob("__editable__*")]  # it would name a tree that is gone

    made = (venv / "prepared.json").stat()
    again = aenv(*words, ID, env=env)
    assert (again.returncode, again.stderr) == (0, f"{ID}: ready\n")
    assert (venv / "prepared.json").stat() == made


def test_what_cannot_be_prepared_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    preparation = Preparation(data, tmp_path, "sdist", find_uv(), offline(data))
    record = record_of({**RECORD, "environment": "dependencies:\n  - pip:\n      - absent==9.9\n"})
    with pytest.raises(NotPrepared, match=r"absent"):
        preparation.prepare(record, lambda step: None)
    assert [*(tmp_path / "venvs").iterdir()] == []
    unseen = record_of({**RECORD, "environment": "dependencies:\n  - python=2.1\n"})
    with pytest.raises(NotPrepared, match=r"no Python 2\.1 on this machine; install it with 'pyenv install 2\.1'"):
        preparation.prepare(unseen, lambda step: None)
    nameless = record_of({**RECORD, "sdist": "", "created_at": ""})
    with pytest.raises(NotPrepared, match="names no 'sdist', and has no 'created_at'"):
        preparation.prepare(nameless, lambda step: None)


def mirrored(data: Path, work: Path, mirrors: Path) -> str:
    """Make a mirror of a repository whose only commit is our release; the commit."""
    bases.from_sdist(record_of(RECORD), data / "sdists", work)

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *words]
        return subprocess.run(command, cwd=work, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    git("clone", "-q", "--mirror", ".", str(mirrors / "own__pkg.git"))
    return git("rev-parse", "HEAD").strip()


def test_a_mirror_that_is_there_is_taken(data: Path, tmp_path: Path) -> None:
    mirrors = tmp_path / "git"
    commit = mirrored(data, tmp_path / "work", mirrors)
    variables = offline(data, SWEBENCH_GIT_DIR=str(mirrors))
    preparation = Preparation(data, tmp_path / "target", "git", find_uv(), variables)
    record = record_of({**RECORD, "base_commit": commit})
    assert preparation.prepare(record, lambda step: None) == f"git {commit[:12]}"
    assert noted(tmp_path / "target" / "venvs" / ID)["base"] == "git"


@pytest.mark.skipif(confine.landlock_version() < 2, reason="this kernel has no landlock")
async def test_a_mirror_that_was_prepared_is_found_beside_those_that_a_variable_names(
    data: Path, tmp_path: Path
) -> None:
    prepared, others = tmp_path / "prepared", tmp_path / "others"
    others.mkdir()
    commit = mirrored(data, tmp_path / "work", prepared / "git")
    variables = {
        "SWEBENCH_DATA_DIR": str(data),
        "SWEBENCH_PREPARED_DATA_DIR": str(prepared),
        "SWEBENCH_GIT_DIR": str(others),
    }
    bench = Bench(Context(workspace=tmp_path / "workspace", variables=variables))
    place = await bench.place(record_of({**RECORD, "base_commit": commit}))
    assert place.variant == f"git {commit[:12]}"
    assert (place.base / "pkg" / "core.py").is_file()


@pytest.mark.skipif(
    pythons.own().prefix == Path("/usr"), reason="this Python is the system's, which is never copied"
)
def test_a_copied_interpreter_needs_nothing_of_where_it_was(tmp_path: Path) -> None:
    own = pythons.own()
    new = tmp_path / "copy"
    _copy_interpreter(own, new)
    program = new / "bin" / f"python{own.minor}"
    assert pythons.probed(program, {}) == pythons.Interpreter(program, own.version, new)
    code = "import ssl, sqlite3, ctypes; print(open('/proc/self/maps').read())"
    done = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert str(own.prefix) not in done.stdout


def test_what_is_checked_has_the_name_that_it_is_evaluated_by() -> None:
    assert str(preparable("swebench").ref) == "swebench@1.0.0"  # and not that of its alias


def test_without_data_it_is_said_how_to_get_some(tmp_path: Path) -> None:
    done = aenv("data", "prepare", "swebench", env=environ(AENV_HOME=str(tmp_path)))
    assert done.returncode == 1
    assert "no data for swebench: aenv data pull swebench, or set SWEBENCH_DATA_DIR" in done.stderr


@pytest_asyncio.fixture
async def gateway(tmp_path: Path, data: Path) -> AsyncIterator[Gateway]:
    """Its home has records, and what was prepared for them: neither releases nor wheels are among the data."""
    records, prepared = tmp_path / "data" / "swebench", tmp_path / "data" / "swebench-prepared"
    records.mkdir(parents=True)
    shutil.copy(data / "records.jsonl", records)
    [record] = read_records(records)
    Preparation(data, prepared, "sdist", find_uv(), offline(data)).prepare(record, lambda step: None)
    shutil.copytree(data / "sdists", prepared / "sdists")
    async with running_gateway(tmp_path, PROJECT, engine="native") as running:
        yield running


@pytest.mark.skipif(confine.landlock_version() < 2, reason="this kernel has no landlock")
@pytest.mark.timeout(120)  # four verdicts: the self-check of the task comes before its first reward
async def test_what_was_prepared_is_all_that_an_instance_needs(gateway: Gateway) -> None:
    created = await gateway.create("swebench@1.0.0", environment_variables={"AENV_VALIDATION": "1"})
    try:
        assert (await post(gateway, created["id"], "/task/reward"))["resolved"] is False
        await post(gateway, created["id"], "/functions/play_gold")
        reward = await post(gateway, created["id"], "/task/reward")
        assert (reward["resolved"], reward["variant"]) == (True, "sdist variant: pkg-1.1.tar.gz")
    finally:
        await gateway.ask("DELETE", f"/env-instance/{created['id']}")
