"""Storage of services: what instances leave there on the host's disk is never root's."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import StartFailed
from aenv.base.http1 import Pool
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox import interpreter
from aenv.isolation.sandbox.namespaces import ID_COUNT, KEPT
from conformance.engine import Projects, call

CODE = """
from aenv import register_tool

@register_tool
def run(code: str) -> dict:
    '''Run it; what it leaves in `said` is returned.'''
    names = {}
    exec(code, names)
    return {"said": names.get("said")}
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="an ordinary user's files are theirs, inside and outside"
)


@contextlib.asynccontextmanager
async def instance(folder: Path, storage: Path) -> AsyncIterator[Any]:
    """`await run(code)` in an instance with this storage, of an engine of its own, with other ids each time."""
    home = folder / "home"
    root = host_root(home)

    async def root_of(_: object) -> Any:
        return root

    async with NativeEngine(home, root_of) as engine, Pool() as pool:
        spec = Projects(folder / "projects").spec(CODE, storage=storage)
        address = await engine.create(spec)

        async def run(code: str) -> Any:
            return (await call(pool, address, "run", code=code))["said"]

        try:
            yield run
        finally:
            await engine.destroy(spec.id)


LEAVE = """
import os, shutil
shutil.copy("/usr/bin/id", "/storage/program")
os.chmod("/storage/program", 0o6755)
os.makedirs("/storage/folder", exist_ok=True)
said = [os.stat(path).st_uid for path in ("/storage", "/storage/program", "/storage/folder")]
"""


async def test_a_setuid_program_in_storage_is_nobodys_on_the_host(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir(mode=0o700)
    async with instance(tmp_path, storage) as run:
        assert await run(LEAVE) == [0, 0, 0]
    left = (storage / "program").lstat()
    assert left.st_mode & stat.S_ISUID
    assert (left.st_uid, left.st_gid) == (KEPT, KEPT)
    assert {path.lstat().st_uid for path in (storage, *storage.rglob("*"))} == {KEPT}
    async with instance(tmp_path / "another", storage) as run:
        assert await run(LEAVE) == [0, 0, 0]  # whose ids are others
        mounted = await run("said = [line for line in open('/proc/self/mountinfo') if ' /storage ' in line]")
        assert "nosuid" in mounted[0]
        assert "nodev" in mounted[0]


async def test_storage_of_an_earlier_version_goes_on_working_and_is_not_roots_any_more(tmp_path: Path) -> None:
    storage, secret = tmp_path / "storage", tmp_path / "secret"
    secret.write_text("the host's")
    (storage / "folder" / "deep").mkdir(parents=True)
    storage.chmod(0o700)
    (storage / "folder" / "file").write_text("kept")
    (storage / "folder" / "program").write_bytes(b"")
    os.chown(storage / "folder" / "deep", 33, 44)
    (storage / "folder" / "link").symlink_to(secret)
    (storage / "out").symlink_to(tmp_path)
    (storage / "folder" / "program").chmod(0o6755)
    os.mkfifo(storage / "fifo")
    async with instance(tmp_path, storage) as run:
        said = await run(
            "import os\n"
            "open('/storage/folder/file', 'a').write(' and changed')\n"
            "found = os.stat('/storage/folder/deep')\n"
            "said = [open('/storage/folder/file').read(), found.st_uid, found.st_gid]"
        )
    assert said == ["kept and changed", 33, 44]
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in (storage, *storage.rglob("*"))}
    assert owners == {(KEPT, KEPT), (KEPT + 33, KEPT + 44)}
    assert not (storage / "folder" / "program").lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert (secret.lstat().st_uid, secret.parent.lstat().st_uid, secret.read_text()) == (0, 0, "the host's")


@pytest.mark.parametrize("within", ["lib", "lib/python3.11/json", "", ".."])
async def test_storage_is_never_mounted_over_or_within_code_that_sets_instances_up(
    tmp_path: Path, within: str
) -> None:
    """The author writes to storage; a module there would be loaded by the process that still has rights."""
    home, project = tmp_path / "home", Projects(tmp_path / "projects")
    (storage := tmp_path / "storage").mkdir()
    place = os.path.normpath(os.path.join(interpreter.folders()[0], within))

    async def root_of(_: object) -> Any:
        return host_root(home)

    async with NativeEngine(home, root_of) as engine:
        with pytest.raises(StartFailed, match=r"storage cannot be mounted at .* the instance needs"):
            await engine.create(project.spec(CODE, storage=storage, storage_place=place))


async def test_no_instance_has_the_ids_of_what_is_kept(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir(mode=0o700)
    async with instance(tmp_path, storage) as run:
        first = int((await run("said = open('/proc/self/uid_map').read()")).split()[1])
    assert not first <= KEPT < first + ID_COUNT
