"""What tests of roots share: projects, and Dockerfiles that are done in a test."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from aenv.base.config import Project, load_project
from aenv.base.errors import NotFound
from aenv.isolation.rootfs import folder_cache
from aenv.isolation.rootfs.build_steps import BuildState, BuildSteps
from aenv.isolation.rootfs.dockerfile_build import build
from aenv.isolation.rootfs.images import Images, OnLine
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.rootfs.unpacking import UnpackLimits
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.rootfs.doing import FakeRun


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


@pytest.fixture
def roots(home: Path, run: FakeRun) -> RootfsResolver:
    return RootfsResolver(home, run=run)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    """`project({"path": "text"}, artifacts=[...])` makes one."""

    def make(files: dict[str, str], **config: object) -> Project:
        place = tmp_path / "project"
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps({"name": "env", "version": "1.0.0", **config}))
        return load_project(place)

    return make


@pytest.fixture
def built(home: Path, tmp_path: Path, run: FakeRun):
    """`await built("RUN ...", ..., files={})` does a Dockerfile on an empty base, or on `base`."""

    async def do(
        *lines: str, files: Mapping[str, str] | None = None, base: Rootfs | None = None, text: str = ""
    ) -> Rootfs:
        context = tmp_path / "context"
        for name, content in (files or {}).items():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            (context / name).write_text(content)
        context.mkdir(exist_ok=True)
        empty = folder_cache.place(home, "steps") / "empty"
        empty.mkdir(exist_ok=True)

        async def find_base(reference: str, on_line: OnLine) -> BuildState:
            if reference.startswith("none"):
                raise NotFound(f"no image {reference!r}")
            return BuildState(base or Rootfs(reference, (empty,)), f"base {reference}")

        steps = BuildSteps(home, run=run, limits=UnpackLimits(), network=True)
        return await build(
            text or "\n".join(("FROM scratch", *lines)), context, name="test", steps=steps, find_base=find_base
        )

    return do


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "home")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach."""
    path = Path(tempfile.mkdtemp(prefix="aenv-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
