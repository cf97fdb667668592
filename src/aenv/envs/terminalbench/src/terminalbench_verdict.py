"""The verdict: the tests come into the second part only now, and nothing that the agent has left takes part in it.

First its processes are ended and the image's programs put back. Tests of version 1 are then run by this instance's
own Python in a process that nothing there can look into. Harbor's test.sh is run by the image's shell; what it
says counts only if it came to its end and nothing was left running that could have spoken in its place.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from terminalbench_bench import AtBench, Bench
from terminalbench_tasks import VERSION_1, Task, files_below, programs_below

from aenv import AEnvError, Context, ToolError, register_reward

_TESTS, _LOGS = "/tests", "/logs"
_MAX_OUTPUT = 100_000  # characters
_TIMED_OUT, _BY_SIGNAL = 124, 128
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED)\s+(\S+)", re.MULTILINE)


@register_reward
async def calculate_reward(context: Context, at: AtBench, task_name: str = "") -> dict[str, Any]:
    """Judge the task of this instance: all of its tests must pass for 1.0; `score` is the part that does."""
    return await _judged(task_name, context, at)


@register_reward
async def caculate_reward(context: Context, at: AtBench, task_name: str = "") -> dict[str, Any]:
    """The same by its published name."""
    return await _judged(task_name, context, at)


async def _judged(task_name: str, context: Context, at: Bench) -> dict[str, Any]:
    task = at.task
    if task_name and task_name != task.id:
        raise ToolError(f"this instance has the task {task.id!r}; for {task_name!r} create another one")
    keeps = task.keeps_processes or context.variables.get("TERMINALBENCH_KEEP_PROCESSES") == "1"
    restores = context.variables.get("TERMINALBENCH_RESTORE") != "0"
    try:
        if not keeps:
            await at.second.end_processes()
        if restores:
            await at.second.restore()
        await at.second.put_folder(_TESTS, files_below(task.tests), programs_below(task.tests))
        said = await (_version_1(at) if task.format == VERSION_1 else _harbor(at, keeps=keeps))
    except AEnvError as error:  # a full disk, say: then nothing was judged
        said = _invalid(f"the tests could not be run: {error.message}")
    finally:
        problem = await _cleared(at, keeps=keeps)
    return {"task_name": task.id, **(_invalid(problem) if problem and "invalid" not in said else said)}


async def _cleared(at: Bench, *, keeps: bool) -> str:
    """Take the tests away again, before the agent goes on; why that is not possible."""
    try:
        if not keeps:
            await at.second.end_processes()
        for path in (_TESTS, _LOGS):
            await at.second.remove(path)
    except AEnvError as error:
        return f"the tests could not be taken away again: {error.message}"
    return ""


# Version 1


async def _version_1(at: Bench) -> dict[str, Any]:
    code = (Path(__file__).parent / "_terminalbench_judge.py").read_text()
    done = await at.second.python(
        code, {"folder": _TESTS}, timeout=at.task.test_seconds, variables={"TEST_DIR": _TESTS}
    )
    if done.exit_code == _TIMED_OUT:
        return _timeout(at.task)
    match done.answer:
        case {"missing": [_, *_] as missing}:
            return await _with_image(at, [str(name) for name in missing])
        case {"tests": dict(tests), "output": str(output), "exit": int(status)}:
            passed = sum(outcome in ("passed", "xfailed") for outcome in tests.values())
            return _scored(passed, len(tests), status, output)
    return _invalid(f"the judge ended without a verdict: {(done.stderr or done.stdout).strip()[-1000:]}")


async def _with_image(at: Bench, missing: list[str]) -> dict[str, Any]:
    """By the image's own pytest, where the tests import what this Python does not have."""
    options = [f"--rootdir={_TESTS}", f"--confcutdir={_TESTS}", "-c", "/dev/null", "-p", "no:cacheprovider", "-rA"]
    done = await at.second.exec(
        ["python3", "-B", "-m", "pytest", *options, "--color=no", _TESTS],
        timeout=at.task.test_seconds,
        folder=at.folder,
        variables={"TEST_DIR": _TESTS, "PYTHONNOUSERSITE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    if done.exit_code == _TIMED_OUT:
        return _timeout(at.task)
    # Only what stands in the summary is pytest's own; above it, tests print what they like.
    summary = done.stdout.rpartition("short test summary info")[2]
    tests = {name: word for word, name in _LINE.findall(summary)}
    if not tests:
        words = (done.stderr or done.stdout).strip()[-500:]
        return _invalid(f"the tests import {', '.join(missing)}, and the image has no pytest for them: {words}")
    passed = sum(word in ("PASSED", "XFAIL") for word in tests.values())
    return _scored(passed, len(tests), done.exit_code, done.stdout)


# Harbor


async def _harbor(at: Bench, *, keeps: bool) -> dict[str, Any]:
    await at.second.remove(_LOGS)
    await at.second.put_folder(f"{_LOGS}/verifier", {})
    before = await at.second.processes()
    done = await at.second.exec(
        ["bash", f"{_TESTS}/test.sh"],
        timeout=at.task.test_seconds,
        folder=at.folder,
        # Behind the image's own programs, for those that it lacks: a Python, and pytest where we have it.
        variables={
            "TEST_DIR": _TESTS,
            "PATH": f"{_path()}:{Path(sys.executable).parent}",
            "PYTHONNOUSERSITE": "1",
        },
    )
    left = await at.second.processes() - before
    if not keeps:
        await at.second.end_processes()
    output = done.stdout + done.stderr
    if done.exit_code == _TIMED_OUT:
        return _timeout(at.task)
    reward = await _reward(at)
    if reward is None:
        return _invalid(f"test.sh wrote no reward (exit code {done.exit_code}): {output.strip()[-1000:]}")
    if reward > 0 and done.exit_code > _BY_SIGNAL:
        return _invalid(
            f"test.sh was ended by signal {done.exit_code - _BY_SIGNAL}; somebody else wrote the reward"
        )
    if reward > 0 and left > 0 and not keeps:
        return _invalid(f"{left} processes were left by the tests, which could have written the reward")
    return {"status": "success", "score": reward, "reward": reward, "raw_output": output[-_MAX_OUTPUT:]}


def _path() -> str:
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def _reward(at: Bench) -> float | None:
    """What test.sh has written: a number, or an object with one."""
    for name in ("reward.txt", "reward.json"):
        try:
            said: Any = json.loads(await at.second.read_file(f"{_LOGS}/verifier/{name}"))
        except AEnvError:
            continue
        except ValueError:
            return None
        if isinstance(said, dict):
            values = [value for value in said.values() if isinstance(value, int | float)]
            said = said.get("reward", values[0] if len(values) == 1 else None)
        if isinstance(said, int | float):
            return min(max(float(said), 0.0), 1.0)
    return None


def _scored(passed: int, total: int, status: int, output: str) -> dict[str, Any]:
    if not total:
        return _invalid(f"no test has run: {output.strip()[-1000:]}")
    is_full = passed == total and status == 0
    score = passed / total if is_full or passed < total else 0.0  # all passed, and yet it says it failed
    reward = 1.0 if is_full else 0.0
    return {"status": "success", "score": score, "reward": reward, "raw_output": output[-_MAX_OUTPUT:]}


def _timeout(task: Task) -> dict[str, Any]:
    why = f"the tests took more than {task.test_seconds:g} s"
    return {"status": "timeout", "score": 0.0, "reward": 0.0, "error": why}


def _invalid(why: str) -> dict[str, Any]:
    return {"status": "error", "score": 0.0, "reward": 0.0, "error": why, "invalid": why}
