"""The native engine: the suite for all engines, and what only it promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aenv.engines.base import Engine, InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.roots.host import host_root
from aenv.sandbox.root import Root
from conformance.capabilities import CapabilityConformance
from conformance.engine import EngineConformance, Leftovers, MakeEngine
from tests.native import traces


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def root_of(home: Path) -> Callable[[InstanceSpec], Awaitable[Root]]:
    root = host_root(home)

    async def find(spec: InstanceSpec) -> Root:
        return root

    return find


@pytest.fixture
async def make_engine(home: Path, root_of: Callable[[InstanceSpec], Awaitable[Root]]) -> AsyncIterator[MakeEngine]:
    async with AsyncExitStack() as stack:
        engines: list[NativeEngine] = []

        def make() -> Engine:
            engines.append(NativeEngine(home, root_of))
            stack.push_async_exit(engines[-1])
            return engines[-1]

        yield make


@pytest.fixture
def leftovers(home: Path) -> Leftovers:
    return lambda: traces(home)


class TestNativeEngine(EngineConformance, CapabilityConformance):
    """The suite."""

    @pytest.fixture
    def make_engine(self, make_engine: MakeEngine) -> MakeEngine:
        return make_engine

    @pytest.fixture
    def leftovers(self, leftovers: Leftovers) -> Leftovers:
        return leftovers
