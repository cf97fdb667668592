"""An environment of two parts for tests, the image of its sidecar, and a program that makes an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aenv.control.gateway.rootfs_cache import RootfsCache
from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.build_run import run
from aenv.isolation.sandbox.rootfs import Rootfs
from tests import saved_images
from tests.native import traces

ENVIRONMENT = """
import asyncio
import os
import subprocess
from pathlib import Path

from aenv import Sidecar, SyncSidecar, register_tool


@register_tool
async def run(command: list[str] | str, second: Sidecar, stdin: str = "", timeout: float | None = None,
              folder: str | None = None, variables: dict[str, str] | None = None) -> dict:
    return vars(await second.exec(command, stdin=stdin, timeout=timeout, folder=folder, variables=variables))


@register_tool
def run_sync(command: str, second: SyncSidecar) -> str:
    return second.exec(command).stdout


@register_tool
async def run_wrongly(second: SyncSidecar) -> str:
    return second.exec("true").stdout


@register_tool
async def many(count: int, second: Sidecar) -> list[str]:
    results = await asyncio.gather(*(second.exec(f"echo {n}") for n in range(count)))
    return [result.stdout for result in results]


@register_tool
async def copy(path: str, data: str, second: Sidecar) -> str:
    await second.write_file(path, data)
    return (await second.read_file(path)).decode()


@register_tool
async def read(path: str, second: Sidecar) -> int:
    return len(await second.read_file(path))


@register_tool
def here(path: str) -> dict:
    place = Path(path)
    return {"exists": place.exists(), "pids": [name for name in os.listdir("/proc") if name.isdecimal()]}


@register_tool
def abort() -> None:
    os.abort()


@register_tool
def start(count: int) -> int:
    return len([subprocess.Popen(["sleep", "1000"]) for _ in range(count)])


@register_tool
def namespaces() -> dict:
    return {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}


@register_tool
async def run_and_be_cancelled(second: Sidecar) -> str:
    try:
        async with asyncio.timeout(0.3):
            await second.exec("echo $$ > /tmp/pid; exec sleep 1000")
    except TimeoutError:
        return "cancelled"
    return "not"
"""
AS_ANOTHER = """
import asyncio
import json
import sys
from pathlib import Path

from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.base.http1 import Pool
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.images import Images


async def main(place: Path) -> None:
    home, images = place / "home", Images(place / "home")
    await images.load(place / "tiny.tar")
    root = host_root(home)

    async def root_of(spec):
        return root

    async def sidecar_rootfs(reference):
        return images.find(reference).root(reference)

    async with NativeEngine(home, root_of, sidecar_rootfs=sidecar_rootfs) as engine, Pool() as pool:
        address = await engine.create(InstanceSpec("two-1", "two@1.0.0", place / "two", sidecar="tiny:1"))
        try:
            command = "cat /etc/of-the-image; echo hi > note; id -u; ls /environment/served/sidecar_commands.py"
            body = json.dumps({"command": command}).encode()
            head = [("content-type", "application/json")]
            response = await pool.request(address.origin, "POST", "/tools/run", head, body)
            print(json.loads(await response.read())["data"]["structured"])
        finally:
            await engine.destroy("two-1")
    print([path.name for path in home.glob("run/instances/*")])


asyncio.run(main(Path(sys.argv[1])))
"""


def image(path: Path) -> Path:
    """A saved image with a shell, a file, a variable and a folder."""
    return saved_images.docker_archive(
        path,
        saved_images.layer(*saved_images.busybox(), saved_images.file("etc/of-the-image", "tiny")),
        Env=["COLOUR=blue", "PATH=/bin"],
        WorkingDir="/testbed",
    )


@asynccontextmanager
async def engine_with_lazy_sidecars(home: Path) -> AsyncIterator[NativeEngine]:
    """An engine whose instances see the host's own rootfs; at the end nothing of them may be left."""

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return host_root(home)

    async with (
        RootfsCache(RootfsResolver(home, run=run)) as rootfs_cache,
        NativeEngine(home, root_of, lazy_sidecar_rootfs=rootfs_cache.lazy_sidecar_rootfs) as engine,
    ):
        yield engine
        for id in await engine.running():
            await engine.destroy(id)
    assert traces(home) == []
