"""What a create and a destroy cost in CPU time, by process: the clock on the wall depends on the machine's load.

Not here: how many are made in a second (`crowds.py`), and how long one takes (`native.py`).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from statistics import median

import psutil

from .crowds import create_all, destroy_all, new_ids
from .native import COLD, Gateway, gateway
from .report import NO_TARGET, Row

TOGETHER = 100
ROUNDS = 5
GATEWAY_BOUND = 2.5  # ms for a create and a destroy; the aim is 2, and beside other load it is a fifth more
_SETTLED = 0.5  # seconds after which the last work of a create is over
_ROLES = ("gateway", "maker", "stager", "zygote", "instance", "client")

Milliseconds = dict[str, float]


def rows() -> list[Row]:
    """Of creates that come together, and their destroys: what the gateway does for each, and all others."""
    with gateway(*COLD) as cold:
        rounds = [_round(cold) for _ in range(1 + ROUNDS)][1:]  # the first one starts the zygote
    found = {name: median(one[name] for one in rounds) for name in rounds[0]}
    total = found["gateway, create"] + found["gateway, destroy"]
    target = f"≤ {GATEWAY_BOUND:g} ms"
    return [
        Row("gateway CPU for create + destroy", "ms", None, total, target, total <= GATEWAY_BOUND),
        *(Row(f"CPU of the {name}", "ms", None, cost, NO_TARGET, True) for name, cost in found.items()),
    ]


def _round(cold: Gateway) -> Milliseconds:
    before = _cpu(cold.pid)
    ids = new_ids(TOGETHER)
    _, errors = cold.runner.run(create_all(cold.api, ids))
    if errors:
        raise errors[0]
    time.sleep(_SETTLED)
    living = _cpu(cold.pid)
    cold.runner.run(destroy_all(cold.api, ids))
    time.sleep(_SETTLED)
    after = _cpu(cold.pid)
    made = {f"{role}, create": 1e3 * (living[role] - before[role]) / TOGETHER for role in _ROLES}
    ended = {
        f"{role}, destroy": 1e3 * (after[role] - living[role]) / TOGETHER for role in _ROLES if role != "instance"
    }
    return {**made, **ended}


def _cpu(gateway: int) -> Counter[str]:
    """The seconds that all processes of each role have computed, of those that live."""
    found = Counter({"gateway": _seconds(gateway), "client": _seconds(os.getpid())})
    for process in psutil.Process(gateway).children(recursive=True):
        try:
            found[_role(process)] += _seconds(process.pid)
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue  # one that has just ended
    return found


def _role(process: psutil.Process) -> str:
    """By its place: launcher, stager, zygote, the child of it that forks, and the instances below that."""
    words = process.cmdline()
    if "aenv.engines.native.maker" in words:
        return "maker"
    if "aenv.inside.zygote.zygote" not in words:
        return "stager"
    above = process.parent()
    forks = above is not None and "aenv.inside.zygote.zygote" in above.cmdline()
    is_instance = forks and above and "aenv.inside.zygote.zygote" in (above.parent() or above).cmdline()
    return "instance" if is_instance else "zygote"


def _seconds(pid: int) -> float:
    """Of all its threads, in nanoseconds as the scheduler counts them."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
