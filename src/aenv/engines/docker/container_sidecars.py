"""Sidecars: a second container of an instance, where the agent's commands run.

It is made of the sidecar's image, has root in its own files, and shares the network and one folder with the main
container. Our runtime serves commands in it, by a socket that only the main container sees. The image may have no
Python: the files of the base image are mounted beside its own, and their loader starts their Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import tarfile
import tempfile
from pathlib import Path

from ...base.errors import StartFailed
from ..base import InstanceSpec
from ..containers.container_labels import labels
from ..containers.container_plan import SHARED, SIDECAR_RUN, ContainerPlan, Mount, limits
from ..containers.sidecar_plan import TREE, sidecar_variables
from .docker_api import DockerApi


class RuntimeTrees:
    """The files of base images, as folders of the host; each is exported once."""

    def __init__(self, api: DockerApi, place: Path) -> None:
        self._api = api
        self._place = place
        self._lock = asyncio.Lock()

    async def of(self, image: str) -> Path:
        """The folder with all files of the image."""
        id: str = (await self._api.call("GET", f"/images/{image}/json"))["Id"].rpartition(":")[2][:32]
        folder = self._place / id
        async with self._lock:
            if not folder.is_dir():
                self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
                with tempfile.TemporaryDirectory(prefix=".new-", dir=self._place) as work:
                    await self._export(image, Path(work))
                    with contextlib.suppress(FileExistsError):  # another gateway on this home was first
                        os.rename(Path(work) / "root", folder)
        return folder

    async def _export(self, image: str, work: Path) -> None:
        made = (await self._api.call("POST", "/containers/create", {"Image": image, "Cmd": ["none"]}))["Id"]
        try:
            response = await self._api.response("GET", f"/containers/{made}/export")
            with (work / "tar").open("wb") as file:
                async for piece in response:
                    await asyncio.to_thread(file.write, piece)
        finally:
            await self._api.call("DELETE", f"/containers/{made}", force=1)
        await asyncio.to_thread(_unpack, work / "tar", work / "root")


def _unpack(archive: Path, root: Path) -> None:
    root.mkdir(mode=0o755)
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="tar")


def sidecar_plan(spec: InstanceSpec, image: str, tree: Path, run: Path, shared: Path) -> ContainerPlan:
    return ContainerPlan(
        image=image,
        command=_command(tree),
        variables=sidecar_variables(spec),
        labels=labels(spec, "sidecar"),
        limits=limits(spec),
        mounts=(
            Mount(tree, TREE),
            Mount(run, SIDECAR_RUN, is_writable=True),
            Mount(shared, SHARED, is_writable=True),
        ),
    )


def _command(tree: Path) -> tuple[str, ...]:
    """Starts the runtime with the loader, the libraries and the Python of the tree, whatever the image has."""
    loaders = sorted({*tree.glob("lib*/ld-linux*.so.*"), *tree.glob(f"lib/{platform.machine()}-*/ld-linux*.so.*")})
    python = next((one for one in ("usr/local/bin/python3", "usr/bin/python3") if (tree / one).exists()), None)
    package = next(iter(sorted(tree.glob("usr/local/lib/python3*/*-packages/aenv/inside/sidecar"))), None)
    if not loaders or python is None or package is None:
        raise StartFailed(f"the base image in {str(tree)!r} has no glibc, Python and aenv for sidecars")
    libraries = [f"{TREE}/{folder}" for folder in ("usr/local/lib", "usr/lib", "lib")]
    libraries += [f"{TREE}/{path.relative_to(tree)}" for path in tree.glob("usr/lib/*-linux-gnu")]
    inside = [f"{TREE}/{path.relative_to(tree)}" for path in (loaders[0], tree / python, package)]
    return (inside[0], "--library-path", ":".join(libraries), inside[1], "-m", "aenv.main", inside[2])


def make_folders(folder: Path) -> tuple[Path, Path]:
    """For the socket, which only root of the sidecar makes, and for what both containers write."""
    run, shared = folder / "sidecar", folder / "shared"
    run.mkdir(mode=0o755)
    shared.mkdir()
    shared.chmod(0o777)  # the folder above is for its owner alone
    return run, shared
