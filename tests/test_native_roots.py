"""Instances whose root is an image, or what a Dockerfile says."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aenv.client.api import Api
from aenv.engines.base import Address, InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.errors import Conflict, StartFailed
from aenv.gateway.rooting import Rooting
from aenv.roots.roots import Roots
from aenv.sandbox.run import run
from tests.native import traces
from tests.saved_images import busybox, docker_archive, file, folder, layer, link

_CODE = """
import os, subprocess
from aenv import register_tool

@register_tool
def look(path: str) -> list:
    "What is in a folder."
    return sorted(os.listdir(path))

@register_tool
def lazily(name: str) -> str:
    "A module that nothing has loaded before."
    return str(__import__(name).__name__)

@register_tool
def shell(command: str) -> str:
    "A program of the image."
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def roots(home: Path) -> Roots:
    return Roots(home, run=run)


@pytest.fixture
async def engine(home: Path, roots: Roots) -> AsyncIterator[NativeEngine]:
    async with Rooting(roots) as rooting, NativeEngine(home, rooting.root_of) as engine:
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


async def call(address: Address, tool: str, **arguments: str) -> Any:
    async with Api(address.origin) as api:
        return await api.call(tool, arguments)


async def test_an_instance_lives_in_an_image_without_python_or_a_c_library(
    engine: NativeEngine, roots: Roots, project, tmp_path: Path
) -> None:
    await roots.load(box(tmp_path / "x.tar"))
    address = await create(engine, project(), image="box:1")
    assert address.root == "box:1"
    assert await ran(engine, "cat", "/etc/os-release") == "NAME=Box\n"
    assert (await ran(engine, "ls", "/")).split() == sorted(
        ["aenv", "bin", "dev", "environment", "etc", "proc", "root", "run", "sys", "tmp", "var", "workspace"]
        + [str(Path(path).parts[1]) for path in ()]
    )
