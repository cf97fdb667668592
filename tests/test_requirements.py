"""Requirements: the packages of an environment are installed once, from wherever uv is told to look."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

import psutil
import pytest

from aenv.artifacts import requirements
from aenv.artifacts.requirements import RUNTIME_PACKAGES, collect, folder_for
from aenv.base.errors import InvalidRequest, StartFailed
from conformance.engine import opened
from tests.wheels import make_wheel

pytestmark = pytest.mark.slow  # uv resolves and installs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where uv finds packages: no test needs a network unless it says so."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "tiny", "1.0", "value = 1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def require(tmp_path: Path):
    def write(*lines: str) -> Path:
        path = tmp_path / "project" / "requirements.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines))
        return path

    return write


@pytest.fixture
def without_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "uv", None)


def kept(home: Path) -> list[str]:
    """What is in the folder of folders, besides the answers that are remembered."""
    return sorted(path.name for path in (home / "requirements").iterdir() if path.name != "resolved")


# What is required


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n# only a comment\n   \n",
        "aenvironment",
        "AEnvironment[agents, fastmcp] >= 0.1, < 99 ; python_version > '3'  # ourselves",
        "aenvironment==0.1.7 \\\n    --hash=sha256:00",
        "aenvironment @ https://host.invalid/aenvironment.whl",
    ],
)
async def test_nothing_is_made_when_nothing_is_required(text, require, home, without_uv):
    assert await folder_for(require(text), home) is None
    assert not home.exists()


async def test_a_missing_file_requires_nothing(tmp_path, home):
    assert await folder_for(tmp_path / "none.txt", home) is None


async def test_a_folder_can_be_imported_by_an_environment(require, wheels, home, project, start):
    said: list[str] = []
    packages = await folder_for(require("aenvironment", "tiny  # small"), home, said.append)
    assert any("tiny==1.0" in line for line in said)
    assert packages.parent == home / "requirements"
    assert kept(home) == [packages.name]
    code = "import tiny\nfrom aenv import *\n@register_function\ndef look(): return [tiny.value, tiny.__file__]"
    runtime = await start(project(code), "--requirements", str(packages))
    assert (await runtime.call("POST", "/functions/look"))[1]["data"] == [1, str(packages / "tiny.py")]


async def test_what_depends_on_aenv_gets_the_one_that_runs(require, wheels, home):
    make_wheel(wheels, "dependent", "1.0", "", ("aenvironment>=99", "tiny"))
    packages = await folder_for(require("dependent"), home)
    assert (packages / "tiny.py").exists()
    assert list(packages.glob("aenv*")) == []


async def test_what_the_runtime_needs_is_in_no_folder(require, home):
    packages = await folder_for(require("six", "pydantic", "typing_extensions>=4"), home)
    assert sorted(path.name for path in packages.glob("*.py")) == ["six.py"]
    assert list(packages.glob("*/__init__.py")) == []
    assert await folder_for(require("pydantic"), home) is None
    with pytest.raises(StartFailed, match=r"pydantic"):
        await folder_for(require("pydantic<2"), home)


async def test_everything_that_the_runtime_loads_is_known(project, start):
    code = """
import sys
from importlib.metadata import packages_distributions
from aenv import *
from pydantic import BaseModel

class Point(BaseModel):
    x: int

@register_tool
def at(point: Point) -> Point:
    return point

@register_function
def loaded() -> list[str]:
    names = packages_distributions()
    found = {name for module in list(sys.modules) for name in names.get(module.partition(".")[0], ())}
    return sorted(name.lower().replace("_", "-") for name in found)
"""
    runtime = await start(project(code))
    assert (await runtime.tool("at", point={"x": 1}))["isError"] is False
    loaded = (await runtime.call("POST", "/functions/loaded"))[1]["data"]
    assert "pydantic-core" in loaded
    # setuptools is loaded by a .pth file of its own wherever it is installed.
    assert set(loaded) - {"aenvironment", "setuptools"} <= set(RUNTIME_PACKAGES)


# Asking again


async def test_asking_again_needs_neither_uv_nor_packages(require, wheels, home, monkeypatch):
    first = await folder_for(require("tiny"), home)
    (wheels / "tiny-1.0-py3-none-any.whl").unlink()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "uv", None)
    assert await folder_for(require("# said differently", "tiny"), home) == first
    with pytest.raises(StartFailed, match="pip install uv"):
        await folder_for(require("tiny>=1"), home)


async def test_asking_again_waits_for_nobody(require, wheels, home):
    first = await folder_for(require("tiny"), home)
    (lock,) = (home / "requirements" / "resolved").glob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert await folder_for(require("tiny"), home) == first


async def test_requirements_that_mean_the_same_share_a_folder(require, wheels, home):
    packages = await folder_for(require("tiny"), home)
    assert await folder_for(require("tiny==1.0"), home) == packages
    make_wheel(wheels, "tiny", "2.0", "value = 2")
    assert await folder_for(require("tiny"), home) == packages  # what was chosen once stays chosen
    newer = await folder_for(require("tiny>1"), home)
    assert newer != packages
    assert kept(home) == sorted([packages.name, newer.name])


async def test_a_folder_that_was_removed_is_made_again(require, wheels, home):
    packages = await folder_for(require("tiny"), home)
    assert collect(home, set(), -1) == [packages.name]
    make_wheel(wheels, "tiny", "2.0", "value = 2")
    assert await folder_for(require("tiny"), home) == packages
    assert (packages / "tiny.py").read_text() == "value = 1"


@pytest.mark.parametrize(
    "spelling", ["./own/own-1.0-py3-none-any.whl", "own @ file://{folder}/own-1.0-py3-none-any.whl"]
)
async def test_a_wheel_of_the_project_is_looked_at_every_time(spelling, require, wheels, home, tmp_path):
    folder = tmp_path / "project" / "own"
    requirements = require(spelling.format(folder=folder))
    make_wheel(folder, "own", "1.0", "value = 'first'")
    first = await folder_for(requirements, home)
    assert await folder_for(requirements, home) == first
    make_wheel(folder, "own", "1.0", "value = 'second'")
    second = await folder_for(requirements, home)
    assert (first / "own.py").read_text() == "value = 'first'"
    assert (second / "own.py").read_text() == "value = 'second'"


async def test_a_package_of_the_project_is_built_again_when_it_changes(require, home, tmp_path):
    requirements = require("./own")
    source = tmp_path / "project" / "own"
    source.mkdir()
    build = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    (source / "pyproject.toml").write_text(f'{build}[project]\nname = "own"\nversion = "1.0"\n')
    folders = []
    for text in ("value = 'first'", "value = 'second'", "value = 'second'"):
        (source / "own").mkdir(exist_ok=True)
        (source / "own" / "__init__.py").write_text(text)
        folders.append(await folder_for(requirements, home))
        assert (folders[-1] / "own" / "__init__.py").read_text() == text
    assert folders[0] != folders[1] == folders[2]


async def test_of_two_at_once_one_builds(require, wheels, home):
    requirements = require("tiny")
    said: list[str] = []
    made = await asyncio.gather(*(folder_for(requirements, home, said.append) for _ in range(4)))
    assert len(set(made)) == 1
    assert len([line for line in said if line.startswith("Installed")]) == 1


# What goes wrong


async def test_what_cannot_be_found_is_said_in_uvs_words_and_leaves_nothing(require, wheels, home):
    said: list[str] = []
    said_why = r"(?s)requirements.txt' requires; .*; uv said:\n.*no-such-thing"
    with pytest.raises(StartFailed, match=said_why) as caught:
        await folder_for(require("tiny", "no-such-thing==3"), home, said.append)
    assert said[-1] in caught.value.message
    assert kept(home) == []
    make_wheel(wheels, "no_such_thing", "3", "")
    assert await folder_for(require("tiny", "no-such-thing==3"), home)


@pytest.mark.parametrize("reach", [{"UV_OFFLINE": "1"}, {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}])
async def test_without_a_network_it_is_said_how_packages_come_all_the_same(
    require, home, tmp_path, monkeypatch, reach
):
    for name, value in {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_HTTP_RETRIES": "0", **reach}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        StartFailed, match=r"no package index can be reached: connect .* UV_FIND_LINKS and UV_OFFLINE=1"
    ):
        await folder_for(require("tiny"), home)


async def test_a_package_that_cannot_be_installed_leaves_nothing(require, wheels, home, tmp_path):
    make_wheel(wheels, "spoilt", "1.0", "")
    packages = await folder_for(require("spoilt"), home)
    collect(home, set(), -1)
    shutil.rmtree(tmp_path / "cache")
    (wheels / "spoilt-1.0-py3-none-any.whl").write_bytes(b"no wheel at all")
    with pytest.raises(StartFailed, match="spoilt"):
        await folder_for(require("spoilt"), home)
    assert kept(home) == []
    make_wheel(wheels, "spoilt", "1.0", "")
    assert await folder_for(require("spoilt"), home) == packages


async def test_a_file_that_is_no_text_is_refused(require, home):
    requirements = require("")
    requirements.write_bytes(b"\xff\xfe\0")
    with pytest.raises(InvalidRequest, match="not text"):
        await folder_for(requirements, home)


async def test_whoever_leaves_takes_uv_along_and_lets_the_next_one_in(require, home, tmp_path, monkeypatch):
    # In place of uv: it says that it runs, and never ends.
    stand_in = tmp_path / "bin" / "uv"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\nsleep 3600 &\n: > {tmp_path}/begun\nwait\n")
    stand_in.chmod(0o755)
    os.mkfifo(tmp_path / "begun")
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    requirements = require("tiny")
    first = asyncio.create_task(folder_for(requirements, home))
    await opened(tmp_path / "begun")
    waiting = [asyncio.create_task(folder_for(requirements, home)) for _ in range(2)]
    await asyncio.sleep(0)  # one turn, in which they find the lock taken
    children = psutil.Process().children(recursive=True)
    assert len(children) == 2
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    first.cancel()
    await asyncio.wait({first})
    await opened(tmp_path / "begun")  # the last one's turn
    _, alive = await asyncio.to_thread(psutil.wait_procs, children, 20)  # killed, and perhaps not dead yet
    assert alive == []
    waiting[1].cancel()
    await asyncio.wait({waiting[1]})
    assert all(task.cancelled() for task in (first, *waiting))
    assert kept(home) == []


# Strangers


@pytest.mark.parametrize(
    "line",
    [
        "./own",
        "own/own.whl",
        "own.whl",
        "-e .",
        "-r /etc/passwd",
        "--index-url http://host.invalid",
        "tiny @ file:///etc/passwd",
        "tiny @ https://host.invalid/tiny.whl",
        "https://host.invalid/tiny.whl",
        "tiny --index-url http://host.invalid",
        "../up",
    ],
)
async def test_strangers_may_only_name_packages(line, require, home):
    with pytest.raises(InvalidRequest, match=r"line 2: only names and versions") as caught:
        await folder_for(require("tiny", line), home, trusted=False)
    assert line not in caught.value.message
    assert not home.exists()


async def test_nothing_of_a_strangers_requirements_is_run(require, wheels, home, tmp_path):
    packages = await folder_for(require("tiny[extra] >= 1.0, < 2; python_version > '3'"), home, trusted=False)
    assert (packages / "tiny.py").exists()
    build = b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    backend = f"open({str(tmp_path / 'ran')!r}, 'w')\n".encode()
    with tarfile.open(wheels / "sourced-1.0.tar.gz", "w:gz") as archive:
        for name, content in (
            ("pyproject.toml", build + b'[project]\nname = "sourced"\ndynamic = ["version"]\n'),
            ("backend.py", backend),
            ("PKG-INFO", b"Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n"),
        ):
            member = tarfile.TarInfo(f"sourced-1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with pytest.raises(StartFailed, match="sourced"):
        await folder_for(require("sourced"), home, trusted=False)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(StartFailed, match="sourced"):
        await folder_for(require("sourced"), home)
    assert (tmp_path / "ran").exists()  # as it may for whoever is trusted


async def test_a_strangers_project_cannot_configure_uv(require, wheels, home, monkeypatch):
    requirements = require("tiny")
    (requirements.parent / "uv.toml").write_text("this is an error")
    with pytest.raises(StartFailed):
        await folder_for(requirements, home)
    assert await folder_for(requirements, home, trusted=False)


# Collecting


async def test_only_folders_that_nobody_has_used_lately_are_collected(require, wheels, home):
    for name in ("old", "wanted", "recent"):
        make_wheel(wheels, name, "1.0", "")
    old, wanted, recent = [await folder_for(require(name), home) for name in ("old", "wanted", "recent")]
    long_ago = time.time() - 1000
    for packages in (old, wanted, recent):
        os.utime(packages / ".used", (long_ago, long_ago))
    work, abandoned = home / "requirements" / ".new-work", home / "requirements" / ".new-abandoned"
    for folder, age in ((work, 2000), (abandoned, 200_000)):
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    assert await folder_for(require("recent"), home) == recent
    assert collect(home, {wanted.name}, older_than=500) == [old.name]
    assert kept(home) == sorted([wanted.name, recent.name, work.name])
    assert collect(home, set(), older_than=500) == [wanted.name]
    assert await folder_for(require("old"), home) == old


def test_where_there_are_no_folders_nothing_is_collected(home):
    assert collect(home, set(), 0) == []


# In the runtime


async def test_packages_come_after_the_environment_and_replace_nothing_of_ours(project, start, tmp_path):
    packages, further = tmp_path / "packages", tmp_path / "further"
    for folder in (packages, further):
        folder.mkdir()
    for name in ("own", "json", "httptools", "pydantic_core", "aenv", "psutil", "colorsys"):
        (packages / f"{name}.py").write_text("origin = 'packages'")
    (packages / "further.pth").write_text(str(further))
    (further / "by_path_file.py").touch()
    code = """
import by_path_file, colorsys, httptools, json, own, psutil, pydantic_core
import aenv
from aenv import *

@register_function
def origins() -> list[str]:
    modules = (own, json, colorsys, psutil, httptools, pydantic_core, aenv)
    return [getattr(module, "origin", "elsewhere") for module in modules]
"""
    folder = project(code)
    (folder / "src" / "own.py").write_text("origin = 'project'")
    runtime = await start(folder, "--requirements", str(packages))
    origins = (await runtime.call("POST", "/functions/origins"))[1]["data"]
    assert origins == ["project", "elsewhere", "elsewhere", "packages", "elsewhere", "elsewhere", "elsewhere"]


async def test_a_folder_that_is_not_there_fails_the_start(project, start, tmp_path):
    with pytest.raises(Exception, match="no such folder"):
        await start(project("from aenv import *"), "--requirements", str(tmp_path / "none"))


def test_names_of_files_are_not_names_of_packages():
    assert not any(
        requirements._PLAIN.match(line) for line in ("a.whl", "a-1.0.tar.gz", "a.zip", "a/b", "a @ b", "-e a")
    )
    assert all(
        requirements._PLAIN.match(line)
        for line in ("a", "a.b-c_d", "a[b,c]>=1,<2", "a (==1)", "a==1; os_name=='x'")
    )


# A home of version 1.0.0


async def test_the_folder_of_an_earlier_version_is_moved_and_its_old_path_still_leads_there(require, wheels, home):
    packages = await folder_for(require("tiny"), home)
    (home / "requirements").rename(home / "layers")
    assert await folder_for(require("tiny"), home) == packages
    assert (home / "layers" / packages.name / "tiny.py").samefile(packages / "tiny.py")
    assert [path.name for path in home.iterdir() if not path.is_symlink()] == ["requirements"]


async def test_a_folder_of_an_earlier_version_that_is_a_link_is_used_where_it_is(require, wheels, home, tmp_path):
    packages = await folder_for(require("tiny"), home)
    (home / "requirements").rename(tmp_path / "larger disk")
    (home / "layers").symlink_to(tmp_path / "larger disk")
    assert await folder_for(require("tiny"), home) == packages
    assert (packages / "tiny.py").samefile(tmp_path / "larger disk" / packages.name / "tiny.py")
