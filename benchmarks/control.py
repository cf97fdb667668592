"""The gateway's control plane alone: its engine costs nothing. What a request costs, and who waits for room."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from statistics import mean
from time import perf_counter

from aenv.base import wire
from aenv.base.errors import AEnvError, TooManyRequests
from aenv.client.api import Api
from aenv.control.serving.accounts import Accounts
from aenv.control.stores.opening import open_store

from .measures import SHORT_ROUNDS, in_turns
from .processes import bare_python, listening, stores
from .report import NO_TARGET, Row, within

CYCLES = 5
CREATES = 500
ROOM = 50
OWNERS = ("ann", "bob", "cid", "dee", "eve")
LIFE = 0.05

_GATEWAY = ("benchmarks.stub_gateway", "--home")
_BODY = {"envName": "portable@1.0.0"}


def overhead() -> list[Row]:
    """Create, get and delete, one after the other."""
    with ExitStack() as stack:
        urls = stores(stack)
        runner = stack.enter_context(asyncio.Runner())
        batches = [stack.enter_context(bare_python())]
        batches += [_cycles(stack, runner, store) for [store] in urls.values()]
        reference, *medians = in_turns(*batches, rounds=SHORT_ROUNDS)
    rows = []
    for store, seconds in zip(urls, medians, strict=True):
        target = within(0.4, reference, seconds) if store == "SQLite" else (NO_TARGET, True)
        rows.append(Row(f"create + get + delete P50, {store}", "ms", None, seconds * 1e3, *target))
    return rows


def _cycles(stack: ExitStack, runner: asyncio.Runner, store: str) -> Callable[[], list[float]]:
    """Makes instances through a gateway on `store`, some one after the other."""
    home = stack.enter_context(tempfile.TemporaryDirectory())
    server = stack.enter_context(listening(*_GATEWAY, home, "--store", store))
    api = Api(server.origin)
    stack.callback(lambda: runner.run(api.close()))

    async def cycles() -> list[float]:
        seconds = []
        for _ in range(CYCLES):
            id = wire.new_instance_id("portable")
            begin = perf_counter()
            await api.create_instance(id, _BODY)
            await api.get_instance(id)
            await api.delete_instance(id, missing_ok=False)
            seconds.append(perf_counter() - begin)
        return seconds

    return lambda: runner.run(cycles())


def queue() -> list[Row]:
    """Far more requests at once than there is room for."""
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(_queue(home))


async def _queue(home: str) -> list[Row]:
    async with open_store("", Path(home)) as store:
        accounts = Accounts(store)
        tokens = {owner: (await accounts.create(owner))[1] for owner in (*OWNERS, "holder")}
    room = ("--max-instances", str(ROOM))
    with listening(*_GATEWAY, home, *room) as server:
        apis = {owner: Api(server.origin, api_key=token, max_retries=0) for owner, token in tokens.items()}
        held, refused = await _without_wait(apis["holder"])
        waits, seconds = await _with_wait(apis, held)
        for api in apis.values():
            await api.close()
    made, unequal = sum(map(len, waits.values())), spread(waits)
    what = f"{CREATES} creates at once, room for {ROOM}"
    return [
        Row(f"{what}: refused", "", None, refused, f"{CREATES - ROOM}", refused == CREATES - ROOM),
        Row(f"{what}, wait=120s", "/s", None, made / seconds, f"all {CREATES}", made == CREATES),
        Row("mean wait, of 5 owners the last to the first", "×", None, unequal, "≤ 1.1 ×", unequal <= 1.1),
    ]


def spread(waits: dict[str, list[float]]) -> float:
    """How many times as long as the owner who waits least, on average, the one waits who waits most."""
    means = [mean(times) if times else inf for times in waits.values()]
    return max(means) / min(means)


async def _without_wait(api: Api) -> tuple[list[str], int]:
    """The instances that found room, and how many requests found none."""
    ids = [wire.new_instance_id("portable") for _ in range(CREATES)]
    outcomes = await asyncio.gather(*(api.create_instance(id, _BODY) for id in ids), return_exceptions=True)
    others = [one for one in outcomes if isinstance(one, BaseException) and not isinstance(one, TooManyRequests)]
    if others:
        raise others[0]
    held = [id for id, outcome in zip(ids, outcomes, strict=True) if not isinstance(outcome, BaseException)]
    return held, len(ids) - len(held)


async def _with_wait(apis: dict[str, Api], held: list[str]) -> tuple[dict[str, list[float]], float]:
    """How long the requests of each owner waited since there was room, and how long all took.

    One owner's stand behind another's: a queue in the order of arrival would make them wait unequally.
    """
    waits: dict[str, list[float]] = {owner: [] for owner in OWNERS}
    begin = 0.0

    async def use(owner: str) -> None:
        id = wire.new_instance_id("portable")
        with suppress(AEnvError):
            await apis[owner].create_instance(id, {**_BODY, "wait": "120s"}, timeout=150)
            waits[owner].append(perf_counter() - begin)
            await asyncio.sleep(LIFE)
            await apis[owner].delete_instance(id)

    async with asyncio.TaskGroup() as tasks:
        for owner in OWNERS:
            for _ in range(CREATES // len(OWNERS)):
                tasks.create_task(use(owner))
        await _until_waiting(apis["holder"], CREATES)
        begin = perf_counter()
        for id in held:
            tasks.create_task(apis["holder"].delete_instance(id))
    return waits, perf_counter() - begin


async def _until_waiting(api: Api, count: int) -> None:
    """Return when so many wait. A request that does not is told where it would stand."""
    position = None
    while position != f"position {count + 1} ":
        try:
            await api.create_instance(wire.new_instance_id("portable"), _BODY)
        except TooManyRequests as error:
            position = (re.findall(r"position \d+ ", error.message) or [None])[0]
