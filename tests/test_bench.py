"""The benchmark's own arithmetic: a wrong ruler would make every number look right."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from math import inf
from pathlib import Path

import psutil
import pytest

from aenv.base import wire
from aenv.base.errors import TooManyRequests
from aenv.client.api import Api
from benchmarks import creates, crowds, native
from benchmarks.__main__ import NAMES, exit_code, measure
from benchmarks.control import spread
from benchmarks.measures import ROUNDS, Bench, in_turns
from benchmarks.processes import (
    Memory,
    awake_cores,
    bare_python,
    context_switches,
    cpu_seconds,
    listening,
    pss_bytes,
    worker,
)
from benchmarks.report import NO_TARGET, Row, as_json, at_most, table, within
from tests.judges.servers import ENVIRONMENTS, runtime

FAST = Row("fast", "ms", 100.0, 5.0, *at_most(8, 100.0, 5.0))
SLOW = Row("slow", "ms", 100.0, 50.0, *at_most(8, 100.0, 50.0))
ALONE = Row("alone", "ms", None, 50.0, "≤ 60 ms", True)


@pytest.mark.parametrize(("ours", "met"), [(12.5, True), (12.6, False)])
def test_a_target_is_met_up_to_its_bound(ours: float, met: bool) -> None:
    assert at_most(8, 100.0, ours) == ("≤ 1/8", met)


@pytest.mark.parametrize(("ours", "met"), [(0.004, True), (0.0041, False)])
def test_a_target_in_starts_of_python_is_met_up_to_its_bound(ours: float, met: bool) -> None:
    assert within(0.4, 0.01, ours) == ("≤ 0.4 R (R 10.00 ms)", met)


def test_batches_take_turns_and_the_round_that_warms_up_does_not_count() -> None:
    turns: list[str] = []
    first, second = count(100, -1), count()

    def left() -> list[float]:
        turns.append("left")
        return [next(first)]

    def right() -> list[float]:
        turns.append("right")
        return [next(second), inf, -inf]

    assert in_turns(left, right) == [96, 4]
    assert turns == ["left", "right"] * (1 + ROUNDS)


def test_a_core_is_kept_awake_by_a_process_that_gives_way_and_ends_with_the_measurement() -> None:
    with awake_cores():
        found = psutil.Process().children()
        while any(os.sched_getscheduler(one.pid) != os.SCHED_IDLE for one in found):
            assert all(one.is_running() for one in found)  # they start
        assert sorted(core for one in found for core in one.cpu_affinity()) == sorted(os.sched_getaffinity(0))
    assert not any(one.is_running() for one in found)


def test_owners_wait_equally_when_their_means_are_the_same() -> None:
    assert spread({"ann": [1.0, 3.0], "bob": [2.0]}) == 1.0
    assert spread({"ann": [1.0], "bob": [3.0], "cid": [2.0]}) == 3.0
    assert spread({"ann": [1.0], "bob": []}) == inf


def test_check_fails_on_a_missed_target_alone() -> None:
    assert exit_code([FAST, ALONE], check=True) == 0
    assert exit_code([FAST, SLOW], check=True) == 1
    assert exit_code([FAST, SLOW], check=False) == 0


def test_the_native_engine_is_measured_by_its_name_and_with_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In place of the measurements, which take minutes.
    monkeypatch.setattr(native, "rows", lambda bench: [FAST])
    monkeypatch.setattr(crowds, "rows", lambda: [SLOW])
    monkeypatch.setattr(creates, "rows", lambda: [ALONE])
    assert "native" in NAMES  # what is measured when nothing is named
    assert measure(Bench(), ["native"]) == [FAST, SLOW, ALONE]


def test_the_table_shows_the_ratio_and_the_verdict() -> None:
    _, _, fast, slow, alone = table([FAST, SLOW, ALONE]).splitlines()
    assert [cell.strip() for cell in fast.split("|")[1:-1]] == ["fast", "100 ms", "5 ms", "1/20.0", "≤ 1/8", "met"]
    assert [cell.strip() for cell in slow.split("|")[4:-1]] == ["1/2.0", "≤ 1/8", "MISSED"]
    assert [cell.strip() for cell in alone.split("|")[2:-1]] == ["–", "50 ms", "–", "≤ 60 ms", "met"]
    assert as_json([SLOW])[0]["met"] is False
    told = table([Row("told", "ms", None, 5.0, NO_TARGET, True)]).splitlines()[-1]
    assert [cell.strip() for cell in told.split("|")[5:-1]] == ["–", "–"]


def test_context_switches_count_the_work_of_a_process() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        counts = []
        for _ in range(2):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"line\n"
            counts.append(context_switches(process.pid))
    assert counts[1] > counts[0]


def test_what_a_process_has_started_counts_with_it_and_shared_memory_counts_once() -> None:
    hold = "import os; held = b'x' * 40_000_000; os.fork(); print(flush=True); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read(2) == b"\n\n"
        assert 40_000_000 <= pss_bytes(process.pid) < 70_000_000


def test_the_cpu_time_of_what_a_process_has_started_counts_and_sleep_does_not() -> None:
    loop = "for _ in sys.stdin.buffer: sum(range(10**6)); print(flush=True)"
    work = f"import os, sys\nif os.fork(): os.wait(); sys.exit()\n{loop}"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        counts = []
        for _ in range(3):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            process.stdout.readline()
            counts.append(cpu_seconds(process.pid))
        assert cpu_seconds(process.pid) - counts[2] < counts[2] - counts[1]


def test_the_worst_of_a_hundred_is_beyond_the_median() -> None:
    assert native.p99([1.0] * 297 + [9.0] * 3) > 8
    assert native.p99([1.0] * 299 + [9.0]) == 1.0


@pytest.mark.slow
def test_a_worker_measures_what_it_is_asked_to() -> None:
    with (
        runtime(ENVIRONMENTS / "portable") as server,
        worker(Path(sys.executable), {"DUMMY_INSTANCE_IP": server.address}) as client,
    ):
        for what in ("enter", "tool", "function", "reward"):
            seconds = client.measure(what, 3)
            assert len(seconds) == 3
            assert all(second > 0 for second in seconds)


def test_the_start_of_python_is_measured_a_few_times() -> None:
    with bare_python() as starts:
        seconds = starts()
    assert len(seconds) == 3
    assert all(second > 0 for second in seconds)


def test_memory_that_was_given_back_counts_as_a_rise() -> None:
    hold = "import sys\nfor size in sys.stdin: bytearray(b'x' * int(size)); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        rises = []
        for size in (100, 40_000_000, 100):
            memory = Memory(process.pid)
            process.stdin.write(b"%d\n" % size)
            process.stdin.flush()
            process.stdout.readline()
            rises.append(memory.rise_bytes())
    assert rises[1] >= 40_000_000
    assert max(rises[0], rises[2]) < 10_000_000


@pytest.mark.slow
async def test_the_stub_gateway_makes_instances_up_to_its_limit_and_ends(tmp_path: Path) -> None:
    with listening("benchmarks.stub_gateway", "--home", str(tmp_path), "--max-instances", "1") as server:
        process = psutil.Process(server.pid)
        async with Api(server.origin, max_retries=0) as api:
            first, second = (wire.new_instance_id("portable") for _ in range(2))
            body = {"envName": "portable@1.0.0"}
            assert (await api.create_instance(first, body)).status == "Running"
            with pytest.raises(TooManyRequests):
                await api.create_instance(second, body)
            await api.delete_instance(first)
            assert (await api.get_instance(first)).status == "Terminated"
            await api.create_instance(second, body)
    assert not process.is_running()


def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="ended before it was ready"),
        listening("aenv.cli", "hub", "--port", "x"),
    ):
        pytest.fail("it has no port")
