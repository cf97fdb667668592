"""The hub as a process of its own: what a page of a long list costs, and how fast a bundle comes in."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

from aenv.artifacts import bundles
from aenv.base.wire import timestamp
from aenv.client.api import Api
from aenv.client.hub import Hub
from aenv.control.hub.access import EnvironmentAccess
from aenv.control.hub.environment_records import EnvironmentRecord
from aenv.control.serving.accounts import Accounts
from aenv.control.stores.opening import open_store
from tests.archives import make_source

from .measures import SHORT_ROUNDS, in_turns
from .processes import Memory, bare_python, listening, stores
from .report import Row, within

FEW, MANY = 100, 10_000
PAGE = 100
PAGES = 4
BUNDLE_BYTES = 50_000_000

_HUB = ("aenv.cli", "hub", "--port", "0", "--home")
_BATCH = 500


def lists() -> list[Row]:
    """The first page of few environments and of many, for a user among others."""
    with ExitStack() as stack:
        urls = stores(stack, 2)
        runner = stack.enter_context(asyncio.Runner())
        batches = [stack.enter_context(bare_python())]
        for pair in urls.values():
            for store, count in zip(pair, (FEW, MANY), strict=True):
                batches.append(_pages(stack, runner, store, count))
        reference, *medians = in_turns(*batches, rounds=SHORT_ROUNDS)
    rows = []
    for kind, few, many in zip(urls, medians[::2], medians[1::2], strict=True):
        what, times = f"list {PAGE} of {MANY:,} environments P50, {kind}", many / few
        rows += [
            Row(what, "ms", None, many * 1e3, *within(1.25, reference, many)),
            Row(f"the same against {PAGE} of {FEW}", "×", None, times, "≤ 1.5 ×", times <= 1.5),
        ]
    return rows


def _pages(stack: ExitStack, runner: asyncio.Runner, store: str, count: int) -> Callable[[], list[float]]:
    """Asks a hub with so many environments for its first page, some times over."""
    home = stack.enter_context(tempfile.TemporaryDirectory())
    token = runner.run(_fill(store, Path(home), count))
    server = stack.enter_context(listening(*_HUB, home, "--store", store))
    api = Api(server.origin, api_key=token)
    stack.callback(lambda: runner.run(api.close()))

    async def ask() -> list[float]:
        seconds = []
        for _ in range(PAGES):
            begin = perf_counter()
            found, total = await Hub(api).list(limit=PAGE)
            seconds.append(perf_counter() - begin)
            assert (len(found), total) == (PAGE, count), (len(found), total)
        return seconds

    return lambda: runner.run(ask())


async def _fill(url: str, home: Path, count: int) -> str:
    """Write so many environments, and an account; its token."""
    async with open_store(url, home) as store:
        for first in range(0, count, _BATCH):
            made = [_environment(number).put(0) for number in range(first, min(first + _BATCH, count))]
            await store.write(*made, durable=False)
        return (await Accounts(store).create("reader"))[1]


def _environment(number: int) -> EnvironmentRecord:
    now = timestamp()
    return EnvironmentRecord(
        name=f"environment-{number:05}",
        version="1.0.0",
        policy=EnvironmentAccess("author"),
        description="A task with a repository, a failing test and a shell, scored by the tests that pass then",
        tags=("coding", "python", f"batch-{number // 100}"),
        artifacts=({"type": "image", "content": f"registry.example.org/environments/{number:05}:1.0.0"},),
        build_config={"dockerfile": "./Dockerfile"},
        test_config={"script": "pytest -q"},
        deploy_config={"cpu": "1", "memory": "2Gi", "os": "linux", "environmentVariables": {"MODE": "train"}},
        digest=f"{number:064x}",
        size_bytes=20_000,
        pushed_by="author",
        created_at=now,
        updated_at=now,
    )


def upload() -> list[Row]:
    """A bundle that does not get smaller by packing, each time to a hub that has just started."""
    rises: list[int] = []

    async def send(path: Path, bundle: bundles.Bundle) -> list[float]:
        with tempfile.TemporaryDirectory() as home, listening(*_HUB, home) as server:
            async with Api(server.origin) as api:
                await Hub(api).list()  # connected
                memory = Memory(server.pid)
                begin = perf_counter()
                await Hub(api).upload_bundle(path, bundle.digest, bundle.size_bytes, lambda sent: None)
                seconds = perf_counter() - begin
                rises.append(memory.rise_bytes())
                return [seconds]

    with tempfile.TemporaryDirectory() as name, bare_python() as starts:
        source = make_source(Path(name, "source"), data=os.urandom(BUNDLE_BYTES))
        packed = Path(name, "bundle")
        bundle = bundles.pack(source, packed)
        reference, seconds = in_turns(starts, lambda: asyncio.run(send(packed, bundle)))
    rate, rise = bundle.size_bytes / 1e6 / seconds, max(rises) / (1 << 20)
    what = f"upload of a bundle of {BUNDLE_BYTES // 10**6} MB"
    target = f"≥ 1.2 MB in R (R {reference * 1e3:.2f} ms)"  # 100 MB/s where R is 12 ms
    return [
        Row(what, "MB/s", None, rate, target, rate * reference >= 1.2),
        Row(f"{what}, memory of the hub above idle", "MiB", None, rise, "≤ 64 MiB", rise <= 64),
    ]
