"""The environment centre in Chromium, on loopback: its first page, a long table, and what viewers cost calls."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from statistics import median
from time import perf_counter

from playwright.async_api import Browser, Page, expect

from aenv.base import wire
from aenv.base.addresses import Origin, parse_url
from aenv.base.http1 import Pool
from aenv.client.api import Api
from tests.browsers import chromium

from .measures import in_turns
from .native import NAME, Gateway, gateway
from .processes import bare_python, listening
from .report import Row, within

MAX_PAGE_BYTES = 300_000
LIVE = 5_000
TOGETHER = 250
VIEWERS = 50
CALLERS = 8
SECONDS = 2.0
MOST_LOST = 0.05
_LONG = 0.1  # seconds
_PASSES = 5
_STEPS = 120  # of the wheel, one a frame
_STUB = ("benchmarks.stub_gateway", "--home")
_SIZES = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter(one => !one.name.includes('/env-instances/live')).reduce((sum, one) => sum + one.transferSize, 0)"""
_SCROLL = """async steps => {
    const seen = [];
    new PerformanceObserver(list => seen.push(...list.getEntries().map(one => one.duration)))
        .observe({entryTypes: ['longtask']});
    const box = document.querySelector('.table-body');
    box.scrollTop = 0;
    const step = (box.scrollHeight - box.clientHeight) / steps;
    for (let at = 0; at < steps; at++) {
        box.scrollTop += step;
        await new Promise(requestAnimationFrame);
    }
    await new Promise(done => setTimeout(done, 200));
    return Math.max(0, ...seen);
}"""


def rows() -> list[Row]:
    """The pages with instances that cost nothing, then calls of real ones."""
    with (
        tempfile.TemporaryDirectory() as home,
        asyncio.Runner() as runner,
        bare_python() as python,
        listening(*_STUB, home, "--max-instances", str(2 * LIVE)) as server,
    ):
        found = _pages(runner, str(server.origin), python)
    return [*found, *_viewers()]


def _pages(runner: asyncio.Runner, url: str, python: Callable[[], list[float]]) -> list[Row]:
    started = chromium()
    browser = runner.run(started.__aenter__())
    try:
        size = runner.run(_size(browser, url))
        reference, seconds = in_turns(python, lambda: [runner.run(_first_page(browser, url))])
        runner.run(_fill(url))
        longest = runner.run(_longest_task(browser, url)) / 1e3
        runner.run(_empty(url))
    finally:
        runner.run(started.__aexit__(None, None, None))
    target = f"≤ {MAX_PAGE_BYTES / 1e3:g} kB"
    return [
        Row("first page of the centre, compressed", "kB", None, size / 1e3, target, size <= MAX_PAGE_BYTES),
        Row("first page until it can be used", "ms", None, seconds * 1e3, *within(60, reference, seconds)),
        Row(
            f"scrolling {LIVE:,} live rows, longest task",
            "ms",
            None,
            longest * 1e3,
            f"≤ {_LONG * 1e3:g} ms",
            longest <= _LONG,
        ),
    ]


@contextlib.asynccontextmanager
async def _tab(browser: Browser) -> AsyncIterator[Page]:
    """A page without a cache."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def _size(browser: Browser, url: str) -> int:
    """Bytes on the wire, heads included, until the first page is complete."""
    async with _tab(browser) as page:
        await _open(page, url)
        return int(await page.evaluate(_SIZES))


async def _first_page(browser: Browser, url: str) -> float:
    async with _tab(browser) as page:
        begin = perf_counter()
        await _open(page, url)
        return perf_counter() - begin


async def _open(page: Page, url: str) -> None:
    """Return when figures are shown, and the menu works."""
    await page.goto(url, wait_until="commit")
    await page.get_by_text("Instances alive").wait_for()
    await page.get_by_role("link", name="Environments").wait_for()


async def _fill(url: str) -> None:
    api = Api(parse_url(url)[0])
    try:
        for _ in range(LIVE // TOGETHER):
            body = {"envName": "portable@1.0.0", "labels": {"experiment": "bench"}}
            ids = [wire.new_instance_id("portable") for _ in range(TOGETHER)]
            await asyncio.gather(*(api.create_instance(id, body) for id in ids))
    finally:
        await api.close()


async def _empty(url: str) -> None:
    """End them all: a gateway that stops has less time for that."""
    async with Pool() as pool:
        response = await pool.request(
            parse_url(url)[0], "DELETE", "/env-instances?label=experiment=bench", [], b""
        )
        await response.read()
        assert response.status == 200, response.status


async def _longest_task(browser: Browser, url: str) -> float:
    """The median of some passes, in milliseconds; 0 where none took the 50 that the browser counts from."""
    async with _tab(browser) as page:
        await page.goto(f"{url}/#/instances")
        await expect(page.locator(".count")).to_have_text(f"{LIVE:,}", timeout=60_000)
        await page.wait_for_timeout(1000)  # the quiet phase: what came at first is drawn
        return median([float(await page.evaluate(_SCROLL, _STEPS)) for _ in range(_PASSES)])


def _viewers() -> list[Row]:
    """Seconds a call without and with viewers, in turns."""
    with gateway() as served:
        target = served.runner.run(_instance(served))
        alone, watched = in_turns(
            lambda: [served.runner.run(_calls(target))],
            lambda: [served.runner.run(_watched_calls(served, target))],
        )
    lost = 1 - alone / watched
    most = f"≤ {MOST_LOST:.0%} of {1 / alone:,.0f} /s"
    return [Row(f"calls lost to {VIEWERS} viewers of the centre", "%", None, 100 * lost, most, lost <= MOST_LOST)]


async def _instance(served: Gateway) -> tuple[Origin, str]:
    made = await served.api.create_instance(wire.new_instance_id("portable"), {"envName": NAME})
    origin, path = parse_url(str(made.mcp_url))
    return origin, path.removesuffix("/mcp") + "/tools/echo"


async def _calls(target: tuple[Origin, str]) -> float:
    """Seconds a call, of callers that call for a while."""
    origin, path = target
    done = 0
    end = perf_counter() + SECONDS

    async def call(pool: Pool) -> None:
        nonlocal done
        while perf_counter() < end:
            response = await pool.request(origin, "POST", path, [], b'{"text": "a"}')
            await response.read()
            assert response.status == 200, response.status
            done += 1

    async with Pool() as pool, asyncio.TaskGroup() as tasks:
        for _ in range(CALLERS):
            tasks.create_task(call(pool))
    return SECONDS / done


async def _watched_calls(served: Gateway, target: tuple[Origin, str]) -> float:
    """The same, while the live stream goes to so many viewers."""
    ready = asyncio.Semaphore(0)

    async def watch(pool: Pool) -> None:
        response = await pool.request(
            served.api.origin, "GET", "/env-instances/live", [("accept", "text/event-stream")]
        )
        assert response.status == 200, response.status
        async for piece in response:
            if b"event: ready" in piece:
                ready.release()

    async with Pool() as pool:
        viewers = [asyncio.ensure_future(watch(pool)) for _ in range(VIEWERS)]
        try:
            for _ in viewers:
                await ready.acquire()
            return await _calls(target)
        finally:
            for viewer in viewers:
                viewer.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
