"""The built-in environments: how soon they are ready, and how fast whole benchmarks go through them.

What needs tau2's data is left out where TAU2_DATA_DIR does not name them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

from aenv import Environment
from tests.envs.tau2_sessions import Session, actions, validating

from .measures import SHORT_ROUNDS, in_turns
from .native import COLD, QUIET, Gateway, gateway
from .processes import bare_python
from .report import NO_TARGET, Row, within

DATA = "TAU2_DATA_DIR"
DOMAINS = {"mock": 10, "airline": 50, "retail": 114, "telecom": 114}
KNOWN_TO_FAIL = {"mock": 2}  # of the gold actions, as in the original

_LIGHT = {
    "gsm-tools@1.0.0": ("read_problem", {}),
    "mini-terminal@1.0.1": ("execute_command", {"command": "echo hello"}),
    "python@1.0.0": ("run", {"code": "1 + 1"}),
}
_TAU2 = "tau2@1.0.0"
_TASK = {"TAU2_DOMAIN": "airline", "TAU2_TASK_ID": "1"}
_REPLAY = "from benchmarks.environments import replay; replay()"


def rows() -> list[Row]:
    """All that is promised of them."""
    found = light()
    if os.environ.get(DATA):
        return [*found, *tau2_starts(), *replays(), *evaluations()]
    print(f"left out: tau2: {DATA} names no folder", file=sys.stderr)
    return found


def light() -> list[Row]:
    """Those that are to start as fast as any other instance: until they are ready, and until one has answered."""
    with bare_python() as python, gateway(*COLD) as cold:
        begun = {name: _Starts(cold, name, call) for name, call in _LIGHT.items()}
        reference, *seconds = in_turns(python, *(one.ready for one in begun.values()), rounds=SHORT_ROUNDS)
    found = []
    for (name, starts), ready in zip(begun.items(), seconds, strict=True):
        answered = median(starts.answers)
        found += [
            Row(
                f"create {name} until it is ready, cold, P50",
                "ms",
                None,
                ready * 1e3,
                *within(1, reference, ready),
            ),
            Row(f"the same, and its first `{_LIGHT[name][0]}`", "ms", None, answered * 1e3, NO_TARGET, True),
        ]
    return found


def tau2_starts() -> list[Row]:
    """A task of a domain, once a zygote has the databases."""
    with bare_python() as python, gateway(*COLD) as cold:
        starts = _Starts(cold, _TAU2, ("tau2_get_status", {}), _TASK)
        reference, ready = in_turns(python, starts.ready, rounds=SHORT_ROUNDS)
    absolute = ("≤ 50 ms", ready <= 0.05) if reference <= QUIET else (NO_TARGET, True)
    what = f"create {_TAU2} until it is ready, cold, P50"
    return [
        Row(what, "ms", None, ready * 1e3, *within(4, reference, ready)),
        Row("the same, absolute", "ms", None, ready * 1e3, *absolute),
    ]


class _Starts:
    """Creates instances of one environment, and keeps how long their first answers took."""

    def __init__(
        self, cold: Gateway, name: str, call: tuple[str, dict[str, Any]], variables: dict[str, str] | None = None
    ) -> None:
        self._cold, self._name, self._call = cold, name, call
        self._variables = variables or {}
        self.answers: list[float] = []

    def ready(self) -> list[float]:
        """Seconds until one was ready."""
        return [self._cold.runner.run(self._start())]

    async def _start(self) -> float:
        begin = perf_counter()
        env = Environment(
            self._name, aenv_url=self._cold.url, runtime_url="", environment_variables=self._variables
        )
        async with env:
            seconds = perf_counter() - begin
            result = await env.call_tool(*self._call)
            self.answers.append(perf_counter() - begin)
            assert not result.is_error, result
        return seconds


def replays() -> list[Row]:
    """The gold actions of every base task, in one process that begins with nothing."""
    begin = perf_counter()
    subprocess.run([sys.executable, "-c", _REPLAY], check=True)
    seconds = perf_counter() - begin
    return [Row(f"gold of tau2's {sum(DOMAINS.values())} base tasks", "s", None, seconds, "≤ 30 s", seconds <= 30)]


def replay() -> None:
    """Play them all. AssertionError when one is not rewarded as in the original."""
    for domain, count in DOMAINS.items():
        rewarded = [_is_rewarded(domain, id) for id in _tasks(domain)]
        assert len(rewarded) == count, (domain, len(rewarded))
        assert sum(rewarded) == count - KNOWN_TO_FAIL.get(domain, 0), (domain, sum(rewarded))


def _tasks(domain: str) -> Iterator[str]:
    return (task["id"] for task in _session(domain, "").tasks(""))


def _is_rewarded(domain: str, task: str) -> bool:
    session = _session(domain, task)
    validating.play_gold(session)
    return bool(actions.reward(session)["total_reward"] == 1.0)


def _session(domain: str, task: str) -> Session:
    given = {"TAU2_DOMAIN": domain, "TAU2_TASK_ID": task, DATA: os.environ[DATA], "AENV_VALIDATION": "1"}
    return Session(given)


def evaluations() -> list[Row]:
    """`aenv eval` with the oracle, as a user starts it, once the self-check of its tasks was made ahead."""
    chosen = ["tau2", "--variable", "TAU2_DOMAIN=telecom", "--json"]
    with tempfile.TemporaryDirectory() as home:
        checking = _run(home, "data", "prepare", *chosen)
        seconds = _run(home, "eval", *chosen, "--agent", "oracle")
    return [
        Row("`aenv eval` of tau2's 114 telecom tasks", "s", None, seconds, "≤ 20 s", seconds <= 20),
        Row("`aenv data prepare` of the same, before it", "s", None, checking, NO_TARGET, True),
    ]


def _run(home: str, *words: str) -> float:
    """Seconds that a command takes which prints a line for each task."""
    begin = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "aenv.cli", *words],
        env={**os.environ, "AENV_HOME": home},
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = perf_counter() - begin
    assert len(done.stdout.splitlines()) == DOMAINS["telecom"], done.stderr
    return seconds
