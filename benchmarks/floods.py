"""How long others wait while one instance, or one request, says far too much."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from aenv.base.addresses import Origin
from aenv.base.http1 import Pool
from tests.attacks.served import Served, served
from tests.attacks.test_floods import FLOODING
from tests.gateways import make_project

from .report import Row

SAMPLES = 1000  # of each kind and phase: a P99 has ten above it
EVERY = 0.01  # seconds; a phase is longer than the longest attack takes
MOST = 10.0
LABELS = 40_000
FILES = 200_000
COMMANDS = 40

_FILES = f"""
import os

from aenv import register_tool


@register_tool
def fill() -> int:
    '''Many files in one folder.'''
    os.mkdir("/workspace/many")
    for number in range({FILES}):
        os.close(os.open(f"/workspace/many/{{number}}", os.O_CREAT | os.O_WRONLY))
    return {FILES}
"""
# On every unix socket that it has: one is the channel on which a runtime says that it is ready.
_SAYING = """
import os, socket, time

line = b'{"ready": true, "tools": [' + b'{"name":"a"},' * 1_200_000 + b'{"name":"a"}]}\\n'
for number in range(3, 64):
    try:
        found = socket.socket(fileno=os.dup(number))
        if found.family == socket.AF_UNIX and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            found.setblocking(True)
            found.sendall(line)
    except OSError:
        continue
time.sleep(60)
"""

Attack = Callable[[], object]


def rows() -> list[Row]:
    """P99 of `/health` and of another's call: under each attack against the quiet before them all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        projects = [
            make_project(folder),
            make_project(folder, "flooding", code=FLOODING),
            make_project(folder, "files", code=_FILES),
            make_project(folder, "saying", code=_SAYING),
        ]
        with served(projects=projects) as gateway, asyncio.Runner() as runner:
            neighbour = gateway.create()["id"]
            found: list[Row] = []
            attacks = _attacks(gateway)
            quiet = runner.run(_measured(gateway, neighbour))
            for what, attack in attacks.items():
                with _going_on(attack):
                    loud = runner.run(_measured(gateway, neighbour))
                found += [_row(f"{kind} P99, {what}", quiet[kind], loud[kind]) for kind in quiet]
            return found


def _row(what: str, quiet: float, loud: float) -> Row:
    times = loud / quiet
    return Row(what, "×", None, times, f"≤ {MOST:g} × (quiet {quiet * 1e3:.1f} ms)", times <= MOST)


def _attacks(gateway: Served) -> dict[str, Attack]:
    flooding = gateway.create("flooding@1.0.0", environment_variables={"FLOOD": "large"})["id"]
    files = gateway.create("files@1.0.0")["id"]
    filled = gateway.call(files, "fill")
    assert filled.status == 200, filled.body
    labels = json.dumps({"envName": "echo@1.0.0", "labels": {str(n): "" for n in range(LABELS)}}).encode()
    command = {"command": "head -c 1000000 /dev/zero"}
    return {
        "a history of 56 MB": lambda: gateway.ask("GET", f"/env-instance/{flooding}/history"),
        f"{LABELS:,} labels": lambda: gateway.ask("POST", "/env-instance", labels),
        f"a listing of {FILES:,} files": lambda: gateway.ask("GET", f"/env-instance/{files}/files?path=many"),
        f"{COMMANDS} execs": lambda: _together(
            lambda: gateway.ask("POST", f"/env-instance/{files}/exec", command)
        ),
        "a ready line of 16 MB": lambda: gateway.ask("POST", "/env-instance", {"envName": "saying@1.0.0"}),
    }


def _together(attack: Attack) -> None:
    threads = [threading.Thread(target=attack) for _ in range(COMMANDS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def _going_on(attack: Attack) -> Iterator[None]:
    """The attack is made inside, again and again: by a process of its own, which takes no time of who measures."""
    forked = multiprocessing.get_context("fork")
    over = forked.Event()

    def repeat() -> None:
        while not over.is_set():
            try:
                attack()
            except OSError as error:
                print(f"an attack broke off: {error}", file=sys.stderr)

    attacker = forked.Process(target=repeat, daemon=True)
    attacker.start()
    try:
        yield
    finally:
        over.set()
        attacker.join()  # the gateway has then done with the last one


async def _measured(gateway: Served, neighbour: str) -> dict[str, float]:
    """The P99 of each kind of request, in seconds.

    They come at their times, whether the ones before are answered or not: else a long stop would count once.
    """
    control, data = (Origin(place.hostname or "", place.port) for place in map(urlsplit, _urls(gateway)))
    kinds = {
        "/health": (control, "GET", "/health", b""),
        "another's call": (data, "POST", f"/instances/{neighbour}/tools/echo", b'{"text": "a"}'),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}

    async def ask(kind: str, due: float) -> None:
        origin, method, target, body = kinds[kind]
        response = await pool.request(origin, method, target, [], body)
        await response.read()
        assert response.status == 200, (kind, response.status)
        found[kind].append(perf_counter() - due)

    async with Pool() as pool, asyncio.TaskGroup() as tasks:
        begin = perf_counter()
        for number in range(SAMPLES):
            due = begin + number * EVERY
            await asyncio.sleep(max(0.0, due - perf_counter()))
            for kind in kinds:
                tasks.create_task(ask(kind, due))
    return {kind: sorted(seconds)[int(0.99 * SAMPLES)] for kind, seconds in found.items()}


def _urls(gateway: Served) -> tuple[str, str]:
    return gateway.url, gateway.data_url
