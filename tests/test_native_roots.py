"""Instances whose root is an image, or what a Dockerfile says."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

import aenv
from aenv.base.config import Project
from aenv.base.errors import Conflict, StartFailed
from aenv.base.http1 import Pool
from aenv.control.gateway import rootfs_cache as rootfs_cache_module
from aenv.control.gateway.rootfs_cache import RootfsCache
from aenv.engines.base import Address, InstanceSpec, Network
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.build_run import run
from aenv.isolation.sandbox.rootfs import Rootfs
from conformance.engine import call
from tests.native import traces
from tests.ordinary import ordinary_user
from tests.saved_images import busybox, docker_archive, file, folder, layer, link

pytestmark = pytest.mark.slow

_CODE = """
import os, subprocess
from aenv import register_tool

@register_tool
def look(path: str) -> dict:
    "What is in a folder."
    return {"result": sorted(os.listdir(path))}

@register_tool
def lazily(name: str) -> dict:
    "A module that nothing has loaded before."
    import importlib
    return {"result": importlib.import_module(name).__name__}

@register_tool
def shell(command: str) -> dict:
    "A program of the image."
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    return {"result": done.stdout}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def roots(home: Path) -> RootfsResolver:
    return RootfsResolver(home, run=run)


@pytest.fixture
async def engine(home: Path, roots: RootfsResolver) -> AsyncIterator[NativeEngine]:
    async with RootfsCache(roots) as rootfs_cache, NativeEngine(home, rootfs_cache.root_of) as engine:
        yield engine
        for id in await engine.running():
            await engine.destroy(id)
    assert traces(home) == []


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """`project({"path": "text"}, artifacts=[...])` makes one."""

    def make(files: dict[str, str] | None = None, **config: object) -> Path:
        place = tmp_path / "project"
        for name, text in {"src/custom_env.py": _CODE, **(files or {})}.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        (place / "config.json").write_text(json.dumps({"name": "env", "version": "1.0.0", **config}))
        return place

    return make


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool() as pool:
        yield pool


def box(path: Path, *entries: Any, **said: Any) -> Path:
    """A saved image with a shell, without a C library and without Python."""
    release = file("etc/os-release", "NAME=Box\n")
    return docker_archive(path, layer(*busybox(), folder("etc"), release, *entries), names=["box:1"], **said)


async def create(engine: NativeEngine, project: Path, **more: Any) -> Address:
    return await engine.create(InstanceSpec("one", "env@1.0.0", project, **more))


async def ran(engine: NativeEngine, *command: str) -> str:
    pieces = [piece async for piece in engine.exec("one", command)]
    assert pieces[-1].exit_code == 0, pieces
    return b"".join(piece.data for piece in pieces).decode()


async def test_an_instance_lives_in_an_image_without_python_or_a_c_library(
    engine: NativeEngine, roots: RootfsResolver, project, pool: Pool, tmp_path: Path
) -> None:
    await roots.images.load(box(tmp_path / "x.tar"))
    address = await create(engine, project(), image="box:1")
    assert address.root == "box:1"
    assert await ran(engine, "cat", "/etc/os-release") == "NAME=Box\n"
    assert await call(pool, address, "shell", command="echo $0; cat /etc/os-release") == "/bin/sh\nNAME=Box\n"
    assert await call(pool, address, "look", path="/bin") == sorted((await ran(engine, "ls", "/bin")).split())
    await ran(engine, "touch", "/workspace/here", "/etc/there")


async def test_the_time_in_which_its_root_is_made_is_not_taken_from_the_start_of_an_instance(
    home: Path, project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def root_of(spec: InstanceSpec) -> Rootfs:
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + 3600)  # so long did it take
        return await asyncio.to_thread(host_root, home)

    async with NativeEngine(home, root_of) as engine:
        await create(engine, project(), start_timeout=60.0)
        await engine.destroy("one")
    assert traces(home) == []


async def test_what_nothing_has_loaded_before_is_found_in_an_image(
    engine: NativeEngine, roots: RootfsResolver, project, pool: Pool, tmp_path: Path
) -> None:
    """Modules, also those that are linked to libraries of the host."""
    await roots.images.load(box(tmp_path / "x.tar"))
    address = await create(engine, project(), image="box:1")
    for name in ("sqlite3", "ssl", "lzma", "bz2", "curses", "xml.dom.minidom", "encodings.idna", "ctypes"):
        assert await call(pool, address, "lazily", name=name) == name


async def test_nothing_private_of_the_host_is_in_an_image(
    engine: NativeEngine, roots: RootfsResolver, project, pool: Pool, tmp_path: Path
) -> None:
    await roots.images.load(box(tmp_path / "x.tar"))
    address = await create(engine, project(), image="box:1")
    ours = {"aenv", "bin", "dev", "environment", "etc", "proc", "run", "sys", "tmp", "var", "workspace"}
    interpreter = {Path(path).parts[1] for path in (sys.prefix, sys.base_prefix, aenv.__file__)}
    assert set(await call(pool, address, "look", path="/")) == ours | (interpreter - {"usr"})
    assert await call(pool, address, "look", path="/etc") == ["os-release"]


async def test_links_of_an_image_lead_no_mount_out_of_it(
    engine: NativeEngine, roots: RootfsResolver, project, pool: Pool, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    names = ("environment", "proc", "dev", "sys", "workspace", "tmp", "run", "var", "data", "aenv")
    links = [link(name, str(outside)) for name in names]
    links += [link(Path(sys.prefix).parts[1], "/own"), link("old", "/new")]
    await roots.images.load(box(tmp_path / "x.tar", *links))
    address = await create(engine, project(), image="box:1")
    assert "custom_env.py" in await call(pool, address, "look", path="/environment/src")
    assert "self" in await call(pool, address, "look", path="/proc")
    await ran(engine, "touch", "/workspace/here", "/tmp/there")
    assert not any(outside.iterdir())


async def test_folders_of_an_image_that_belong_to_others_can_be_worked_in(
    engine: NativeEngine, roots: RootfsResolver, project, tmp_path: Path
) -> None:
    await roots.images.load(
        box(tmp_path / "x.tar", folder("workspace", uid=33, gid=33, mode=0o555), folder("tmp", uid=5))
    )
    await create(engine, project(), image="box:1")
    await ran(engine, "touch", "/workspace/here", "/tmp/there")


async def test_in_the_hosts_network_names_are_looked_up_as_on_the_host(
    engine: NativeEngine, roots: RootfsResolver, project, tmp_path: Path
) -> None:
    await roots.images.load(box(tmp_path / "x.tar", link("etc/resolv.conf", "/environment/config.json")))
    for image in ("box:1", ""):
        await create(engine, project(), image=image, network=Network("full"))
        assert await ran(engine, "cat", "/etc/resolv.conf") == Path("/etc/resolv.conf").read_text()
        await engine.destroy("one")


async def test_an_instance_has_what_its_dockerfile_says(
    engine: NativeEngine, roots: RootfsResolver, project, pool: Pool, tmp_path: Path
) -> None:
    await roots.images.load(box(tmp_path / "x.tar", Env=["BASE=1", "PATH=/bin:/opt"]))
    dockerfile = (
        "FROM box:1\nENV MADE=$BASE-2\nWORKDIR /app\nCOPY note .\nRUN cat note > twice; rm /etc/os-release"
    )
    address = await create(engine, project({"Dockerfile": dockerfile, "note": "hello"}))
    assert address.root == "Dockerfile of env@1.0.0"
    assert await ran(engine, "cat", "/app/note", "/app/twice") == "hellohello"
    assert await call(pool, address, "look", path="/etc") == []
    assert await ran(engine, "sh", "-c", "echo $MADE $BASE $PATH $PWD") == "1-2 1 /bin:/opt /workspace\n"


async def test_an_instance_has_what_a_dockerfile_on_the_hosts_own_system_says(
    engine: NativeEngine, project, pool: Pool
) -> None:
    dockerfile = (
        "FROM debian:12\nRUN echo 1 > /usr/local/made-by-test && rmdir /environment && ln -s /etc /environment"
    )
    address = await create(engine, project({"Dockerfile": dockerfile}))
    assert await ran(engine, "cat", "/usr/local/made-by-test") == "1\n"
    assert "custom_env.py" in await call(pool, address, "look", path="/environment/src")
    assert "sh" in await call(pool, address, "look", path="/bin")


async def test_another_dockerfile_is_another_root(
    engine: NativeEngine, roots: RootfsResolver, project, tmp_path: Path
) -> None:
    await roots.images.load(box(tmp_path / "x.tar"))
    for text in ("one", "two"):
        await create(engine, project({"Dockerfile": "FROM box:1\nCOPY note /note", "note": text}))
        assert await ran(engine, "cat", "/note") == text
        await engine.destroy("one")


async def test_an_image_in_which_an_instance_lives_is_neither_removed_nor_collected(
    engine: NativeEngine, roots: RootfsResolver, project, home: Path, tmp_path: Path
) -> None:
    digest = (await roots.images.load(box(tmp_path / "x.tar"))).digest
    await create(engine, project(), image="box:1")
    with pytest.raises(Conflict, match="instances use image 'box:1'"):
        await roots.images.remove("box:1")
    assert digest not in await RootfsResolver(home, run=run).collect([], 0)
    assert await ran(engine, "cat", "/etc/os-release") == "NAME=Box\n"


class CountingRoots:
    """Roots that take until they are let go, or fail."""

    def __init__(self, place: Path) -> None:
        self.place, self.made, self.go, self.error = place, 0, asyncio.Event(), ""
        self.kept: list[list[str]] = []
        self.collected = asyncio.Event()

    def sources(self, project: Project, image: str = "") -> tuple[Path, ...]:
        return (project.path / "config.json",)

    async def collect(self, keep: list[Rootfs], older_than: float) -> tuple[str, ...]:
        self.kept.append([root.name for root in keep])
        self.collected.set()
        return ()

    async def root_for(self, project: Project, image: str, on_line: Callable[[str], None]) -> Rootfs:
        self.made += 1
        on_line("working")
        await self.go.wait()
        if self.error:
            raise StartFailed(self.error)
        return Rootfs(f"number {self.made}", (self.place,), notes=("noted",))


async def test_many_who_ask_at_once_get_one_root(
    project, tmp_path: Path, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rootfs_cache_module, "_KNOWN", -1.0)  # nothing is believed unseen
    roots, spec = CountingRoots(tmp_path), InstanceSpec("x", "env@1.0.0", project())
    caplog.set_level("INFO")
    async with RootfsCache(cast(RootfsResolver, roots)) as rootfs_cache:
        impatient = asyncio.create_task(rootfs_cache.root_of(spec))
        others = [asyncio.create_task(rootfs_cache.root_of(spec)) for _ in range(5)]
        while not roots.made:
            await asyncio.sleep(0)
        impatient.cancel()
        roots.go.set()
        assert {root.name for root in await asyncio.gather(*others)} == {"number 1"}
        assert await rootfs_cache.root_of(spec) is others[0].result()
        assert roots.made == 1 and "root of env@1.0.0: working" in caplog.text and ": noted" in caplog.text
        project(description="changed")
        assert (await rootfs_cache.root_of(spec)).name == "number 2"


async def test_a_root_that_fails_is_told_to_all_and_tried_again(project, tmp_path: Path) -> None:
    roots, spec = CountingRoots(tmp_path), InstanceSpec("x", "env@1.0.0", project())
    roots.error = "no way"
    async with RootfsCache(cast(RootfsResolver, roots)) as rootfs_cache:
        waiting = [asyncio.create_task(rootfs_cache.root_of(spec)) for _ in range(3)]
        while not roots.made:
            await asyncio.sleep(0)
        roots.go.set()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(error) for error in told] == ["no way"] * 3 and roots.made == 1
        roots.error = ""
        assert (await rootfs_cache.root_of(spec)).name == "number 2"


async def test_a_root_that_another_process_has_removed_is_made_again(
    project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rootfs_cache_module, "_KNOWN", -1.0)  # nothing is believed unseen
    place = tmp_path / "layer"
    roots, spec = CountingRoots(place), InstanceSpec("x", "env@1.0.0", project())
    roots.go.set()
    place.mkdir()
    async with RootfsCache(cast(RootfsResolver, roots)) as rootfs_cache:
        assert (await rootfs_cache.root_of(spec)).name == (await rootfs_cache.root_of(spec)).name == "number 1"
        place.rmdir()
        assert (await rootfs_cache.root_of(spec)).name == "number 2"


async def test_old_roots_are_collected_once_a_day_and_the_new_one_is_kept(project, tmp_path: Path) -> None:
    roots, spec = CountingRoots(tmp_path), InstanceSpec("x", "env@1.0.0", project())
    roots.go.set()
    async with RootfsCache(cast(RootfsResolver, roots)) as rootfs_cache:
        await rootfs_cache.root_of(spec)
        await roots.collected.wait()
        project(description="changed")
        await rootfs_cache.root_of(spec)
    assert roots.kept == [["number 1"]]


async def test_builds_end_with_the_gateway(project, tmp_path: Path) -> None:
    roots, spec = CountingRoots(tmp_path), InstanceSpec("x", "env@1.0.0", project())
    async with RootfsCache(cast(RootfsResolver, roots)) as rootfs_cache:
        waiting = asyncio.create_task(rootfs_cache.root_of(spec))
        while not roots.made:
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


_AS_USER = """
import asyncio, sys
from pathlib import Path
from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.control.gateway.rootfs_cache import RootfsCache
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.build_run import run

async def main(place):
    roots = RootfsResolver(place / "home", run=run)
    await roots.images.load(place / "x.tar")
    async with RootfsCache(roots) as rootfs_cache, NativeEngine(place / "home", rootfs_cache.root_of) as engine:
        address = await engine.create(InstanceSpec("one", "env@1.0.0", place / "project"))
        print(address.root)
        command = ["sh", "-c", "touch /workspace/x && cat /etc/made && ls /etc"]
        print(b"".join([piece.data async for piece in engine.exec("one", command)]).decode(), end="")
        await engine.destroy("one")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_an_ordinary_user_can_have_images_and_dockerfiles(project) -> None:
    dockerfile = "FROM box:1\nRUN echo 1 > /etc/made && chown 33 /etc/made && rm /etc/os-release"
    made = project({"Dockerfile": dockerfile})
    with ordinary_user() as user:
        place = user.make_folder("roots")
        box(place / "x.tar")
        shutil.copytree(made, place / "project")
        user.give(place)
        command = user.command(str(user.python), "-c", _AS_USER, str(place))
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (["Dockerfile of env@1.0.0", "1", "made"], "")
