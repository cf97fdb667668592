"""How calls and creates grow with the cores: a gateway, instances and client processes on 1, 2, 4 … of them.

CPU time is told by process: the owner, the data workers, and what the engine has started.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import psutil

from aenv.base import mcp
from aenv.isolation.sandbox import probe

from .measures import SHORT_ROUNDS, in_turns
from .processes import PROJECT, bare_python, ours, server, thread_seconds
from .report import NO_TARGET, Row
from .scale_client import BODY, HEADERS, NAME

Spent = dict[str, float]
"""Seconds of CPU time, by kind of process."""

SECONDS = 3.0
BATCH = 0.3  # seconds
AT_ONCE = 8  # connections of a client process
DIRECT_PORT = 18181
PART = 150  # of the CPU time of an empty Python: 0.08 ms where that takes 12 ms
_WRK = """
wrk.method = "POST"
wrk.body = [[{body}]]
{headers}
local requests, number = {{}}, 0
function init(args)
  for place, path in ipairs({{{paths}}}) do requests[place] = wrk.format(nil, path) end
end
function request()
  number = number % #requests + 1
  return requests[number]
end
"""


@dataclass(frozen=True)
class Scaled:
    """A gateway that runs, with some instances."""

    pid: int
    control: str
    data: str
    instances: tuple[str, ...]

    def cpu(self) -> Spent:
        """Seconds of CPU time so far, by kind of process."""
        sums = {"owner": thread_seconds(self.pid), "workers": 0.0, "zygotes and instances": 0.0}
        for child in psutil.Process(self.pid).children(recursive=True):
            try:
                sums[_kind(child)] += thread_seconds(child.pid)
            except (OSError, psutil.Error):
                continue  # it has just ended
        return sums

    def since(self, before: Spent) -> Spent:
        return {kind: seconds - before[kind] for kind, seconds in self.cpu().items()}


def _kind(process: psutil.Process) -> str:
    return "workers" if "forwarding.worker" in " ".join(process.cmdline()) else "zygotes and instances"


@contextmanager
def gateway(workers: int, cores: set[int] | None = None, engine: str = "process") -> Iterator[Scaled]:
    """`aenv serve`, on these cores."""
    ready, told = os.pipe()
    command = [sys.executable, "-m", "aenv.cli", "serve", str(PROJECT), "--port", "0", "--data-port", "0"]
    with tempfile.TemporaryDirectory() as home, open(ready) as answers:
        command += ["--home", home, "--engine", engine, "--workers", str(workers), "--rate-limit", "0"]
        command += ["--ready-fd", str(told)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*_on(cores), *command], pass_fds=[told], **quiet)  # type: ignore[call-overload]
        os.close(told)
        try:
            addresses = json.loads(answers.readline())
            instances = tuple(_created(addresses["url"]) for _ in range(2 * workers))
            yield Scaled(process.pid, addresses["url"], addresses["data_url"], instances)
        finally:
            process.terminate()
            process.wait()


def _on(cores: set[int] | None) -> list[str]:
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(cores)))] if cores else []


def _created(url: str) -> str:
    import urllib.request

    request = urllib.request.Request(f"{url}/env-instance", mcp.dumps({"envName": NAME}), method="POST")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as reply:
        id: str = json.loads(reply.read())["data"]["id"]
        return id


def clients(
    what: str,
    at: Scaled,
    count: int,
    *,
    seconds: float = SECONDS,
    at_once: int = AT_ONCE,
    cores: set[int] | None = None,
) -> list[float]:
    """What `count` client processes at once have measured, together."""
    command = [*_on(cores), sys.executable, "-m", "benchmarks.scale_client", what, at.control, at.data]
    running = [
        subprocess.Popen([*command, id, str(seconds), str(at_once)], stdout=subprocess.PIPE)
        for id in islice(cycle(at.instances), count)
    ]
    took: list[float] = []
    for process in running:
        said, _ = process.communicate()
        assert process.returncode == 0, process.args
        took += json.loads(said)
    return took


def rows() -> list[Row]:
    """What a call costs, then how it grows."""
    return [*_targets(), *_grown()]


def _targets() -> list[Row]:
    """One client process: through one worker, through two, and directly, in turns with R."""
    alone: dict[int, list[Spent]] = {1: [], 2: []}
    crowd: list[Spent] = []
    empty: list[float] = []
    with ExitStack() as stack:
        starts = stack.enter_context(bare_python())
        stack.enter_context(server(ours("--port", str(DIRECT_PORT)), DIRECT_PORT))
        direct = Scaled(0, "http://127.0.0.1:1", f"http://127.0.0.1:{DIRECT_PORT}", ("",))
        one, two = (stack.enter_context(gateway(workers)) for workers in (1, 2))
        _, straight, _, through, _ = in_turns(
            lambda: _noting_cpu(starts, empty),
            lambda: clients("calls", direct, 1, seconds=BATCH, at_once=1),
            lambda: _noting_spent(one, alone[1], at_once=1),
            lambda: _noting_spent(two, alone[2], at_once=1),
            lambda: _noting_spent(one, crowd, at_once=AT_ONCE),
            rounds=SHORT_ROUNDS,
        )
    bound = median(empty) / PART
    cost = median(spent["owner"] for spent in crowd)
    each = {workers: [sum(spent.values()) for spent in found] for workers, found in alone.items()}
    owner = median(spent["owner"] for spent in alone[2])
    # By rounds: what is compared was measured within a second, and the machine's moods change more slowly.
    more = median(two / one for one, two in zip(each[1], each[2], strict=True))
    times = through / straight
    limit = f"≤ 1/{PART} of `python -c pass` ({bound * 1e6:.0f} us)"
    return [
        Row(f"gateway, CPU of a forwarded call, {AT_ONCE} at once", "us", None, cost * 1e6, limit, cost <= bound),
        Row("gateway, CPU of a forwarded call, one at a time", "us", None, median(each[1]) * 1e6, NO_TARGET, True),
        Row("the same with 2 workers, against 1", "×", None, more, "≤ 1.1 ×", more <= 1.1),
        Row("of it in the owner process", "us", None, owner * 1e6, "≤ 1 us", owner <= 1e-6),
        Row(
            "tool call P50 through the gateway, against direct",
            "×",
            None,
            times,
            f"≤ 1.5 × (direct {straight * 1e3:.2f} ms)",
            times <= 1.5,
        ),
    ]


def _noting_cpu(starts: Callable[[], list[float]], empty: list[float]) -> list[float]:
    """R, and in `empty` the CPU time of the same: what is compared with that is CPU time as well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = starts()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    empty.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / len(took))
    return took


def _noting_spent(at: Scaled, found: list[Spent], *, at_once: int) -> list[float]:
    """Calls of one client process, and in `found` what one of them has cost the gateway's own processes."""
    before = at.cpu()
    took = clients("calls", at, 1, seconds=BATCH, at_once=at_once)
    spent = at.since(before)
    found.append({kind: spent[kind] / len(took) for kind in ("owner", "workers")})
    return took


def _grown() -> list[Row]:
    found: list[Row] = []
    every = sorted(os.sched_getaffinity(0))
    engine = "process" if probe.missing_isolation() else "native"
    count = 1
    while count <= len(every):
        cores = set(every[:count])
        with gateway(count, cores, engine) as at:
            found += _calls(at, cores)
            found += _creates(at, cores)
        count *= 2
    return found


def _calls(at: Scaled, cores: set[int]) -> list[Row]:
    what = f"{len(cores)} cores: " if len(cores) > 1 else "1 core: "
    before = at.cpu()
    if shutil.which("wrk"):
        number, p50, p99 = _wrk(at, cores)
        by = "wrk"
    else:
        print("scale: wrk is not installed; Python clients call, which take most of the CPU time", file=sys.stderr)
        took = sorted(clients("calls", at, len(cores), cores=cores))
        number, p50, p99, by = len(took), took[len(took) // 2], took[len(took) * 99 // 100], "Python"
    return [
        Row(f"{what}calls, by {by}", "/s", None, number / SECONDS, NO_TARGET, True),
        Row(f"{what}calls P50", "ms", None, p50 * 1e3, NO_TARGET, True),
        Row(f"{what}calls P99", "ms", None, p99 * 1e3, NO_TARGET, True),
        *_spent(f"{what}CPU of a call", at, before, number),
    ]


def _creates(at: Scaled, cores: set[int]) -> list[Row]:
    what = f"{len(cores)} cores: " if len(cores) > 1 else "1 core: "
    before = at.cpu()
    took = sorted(clients("creates", at, len(cores), cores=cores))
    return [
        Row(f"{what}create + delete", "/s", None, len(took) / SECONDS, NO_TARGET, True),
        Row(f"{what}create + delete P50", "ms", None, took[len(took) // 2] * 1e3, NO_TARGET, True),
        Row(f"{what}create + delete P99", "ms", None, took[len(took) * 99 // 100] * 1e3, NO_TARGET, True),
        *_spent(f"{what}CPU of a create + delete", at, before, len(took), kinds=("owner",)),
    ]


def _spent(
    what: str,
    at: Scaled,
    before: Spent,
    number: int,
    kinds: tuple[str, ...] = ("owner", "workers", "zygotes and instances"),
) -> Iterator[Row]:
    """What each kind of process that still runs has computed for one. Instances that have ended tell no more."""
    spent = at.since(before)
    for kind in kinds:
        if spent[kind] > 0:
            yield Row(f"{what}, {kind}", "us", None, spent[kind] / number * 1e6, NO_TARGET, True)


def _wrk(at: Scaled, cores: set[int]) -> tuple[int, float, float]:
    """How many calls, P50 and P99 in seconds."""
    headers = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in HEADERS)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "call.lua")
        paths = ", ".join(f'"/instances/{id}/mcp"' for id in at.instances)
        script.write_text(_WRK.format(body=BODY.decode(), headers=headers, paths=paths))
        threads = str(len(cores))
        command = ["wrk", "-t", threads, "-c", str(AT_ONCE * len(cores)), "-d", f"{SECONDS:.0f}s", "--latency"]
        command = [*_on(cores), *command, "-s", str(script), at.data]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    fields = [line.split() for line in done.stdout.splitlines()]
    latency = {words[0]: _seconds(words[1]) for words in fields if words and words[0] in ("50%", "99%")}
    total = next(int(words[0]) for words in fields if words[1:3] == ["requests", "in"])
    assert "Non-2xx" not in done.stdout, done.stdout
    return total, latency["50%"], latency["99%"]


def _seconds(text: str) -> float:
    for unit, factor in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)
