"""The benchmark's own arithmetic: a wrong ruler would make every number look right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import exit_code
from benchmarks.processes import context_switches, worker
from benchmarks.report import Row, as_json, at_most, table
from tests.judges.servers import ENVIRONMENTS, runtime

FAST = Row("fast", "ms", 100.0, 5.0, *at_most(8, 100.0, 5.0))
SLOW = Row("slow", "ms", 100.0, 50.0, *at_most(8, 100.0, 50.0))
ALONE = Row("alone", "ms", None, 50.0, "≤ 60 ms", True)


@pytest.mark.parametrize(("ours", "met"), [(12.5, True), (12.6, False)])
def test_a_target_is_met_up_to_its_bound(ours: float, met: bool) -> None:
    assert at_most(8, 100.0, ours) == ("≤ 1/8", met)


def test_check_fails_on_a_missed_target_alone() -> None:
    assert exit_code([FAST, ALONE], check=True) == 0
    assert exit_code([FAST, SLOW], check=True) == 1
    assert exit_code([FAST, SLOW], check=False) == 0


def test_the_table_shows_the_ratio_and_the_verdict() -> None:
    _, _, fast, slow, alone = table([FAST, SLOW, ALONE]).splitlines()
    assert [cell.strip() for cell in fast.split("|")[1:-1]] == ["fast", "100 ms", "5 ms", "1/20.0", "≤ 1/8", "met"]
    assert [cell.strip() for cell in slow.split("|")[4:-1]] == ["1/2.0", "≤ 1/8", "MISSED"]
    assert [cell.strip() for cell in alone.split("|")[2:-1]] == ["–", "50 ms", "–", "≤ 60 ms", "met"]
    assert as_json([SLOW])[0]["met"] is False


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


def test_a_worker_measures_what_it_is_asked_to() -> None:
    with (
        runtime(ENVIRONMENTS / "portable") as server,
        worker(Path(sys.executable), {"DUMMY_INSTANCE_IP": server.address}) as client,
    ):
        for what in ("enter", "tool", "function", "reward"):
            seconds = client.measure(what, 3)
            assert len(seconds) == 3
            assert all(second > 0 for second in seconds)
