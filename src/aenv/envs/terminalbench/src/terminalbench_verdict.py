"""The verdict: the tests come into the sidecar only now, and nothing that the agent has left takes part in it.

First its processes are ended and the image's programs put back. Tests of version 1 are then run by this instance's
own Python in a process that nothing there can look into. Harbor's test.sh is run by the image's shell, which the
agent's programs that it runs can reach: a reward that it wrote is doubted until the same tests have passed as
those of version 1 do.
"""

from __future__ import annotations

import json
import math
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench_bench import AtBench, Bench
from terminalbench_tasks import VERSION_1, Task, files_below, filled_in, programs_below

from aenv import AEnvError, Context, NotJudged, ToolError, register_reward

_TESTS, _LOGS = "/tests", "/logs"
_MAX_OUTPUT = 100_000  # characters
_TIMED_OUT, _NOT_FOUND, _BY_SIGNAL = 124, 127, 128
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED)\s+(\S+)", re.MULTILINE)
_USES_UV = re.compile(r"^\s*(uvx|uv\s+(run|tool))\b", re.MULTILINE)
_REWARDS = ("reward.txt", "reward.json")
# The image's Python as the image has it, by the folders that its PATH names; arguments follow.
_ORIGINAL_PYTHON = """
IFS=:
for folder in $PATH; do
    [ -x "/.original$folder/python3" ] && exec "/.original$folder/python3" -I -B -c "$@"
done
echo "the image has no python3" >&2
exit 127
"""
# pytest of that Python, or else ours; no other process can look into it. What was installed since comes last.
_PYTEST = """
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
sys.path.append(sys.argv.pop(1))
import pytest
old = "/.original"
since = [path[len(old):] for path in sys.path if path.startswith(old)]
sys.path += since + [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
sys.exit(pytest.main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class _Ways:
    """How the verdict is to be made, as the variables say."""

    keeps: bool
    """The agent's processes run on."""
    restores: bool
    checks: bool
    """A reward of test.sh is doubted."""
    variables: dict[str, str]
    """What the tests see."""


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
    ways = _Ways(
        keeps=task.keeps_processes or context.variables.get("TERMINALBENCH_KEEP_PROCESSES") == "1",
        restores=context.variables.get("TERMINALBENCH_RESTORE") != "0",
        checks=context.variables.get("TERMINALBENCH_CROSS_CHECK") != "0",
        variables={"TEST_DIR": _TESTS, **filled_in(task.verifier_variables, context.variables)},
    )
    await at.sidecar.processes()  # made here, if it was never used: where that fails, there is nothing to judge
    try:
        await _prepare(at, ways)
        said = await (_version_1(at, ways) if task.format == VERSION_1 else _harbor(at, ways))
    except AEnvError as error:  # a full disk, say: then nothing was judged
        said = _invalid(f"the tests could not be run: {error.message}")
    finally:
        problem = await _cleared(at, ways)
    if "missing" in said and not problem:
        raise NotJudged("not_ready", said["error"])
    return {
        "task_name": task.id,
        **(_invalid(problem) if problem and not said.keys() & {"invalid", "sabotaged"} else said),
    }


async def _prepare(at: Bench, ways: _Ways) -> None:
    """Take away what the agent, or its programs that tests have run, left there; bring the tests."""
    if not ways.keeps:
        await at.sidecar.end_processes()
    if ways.restores:
        await at.sidecar.restore()
    await at.sidecar.put_folder(_TESTS, files_below(at.task.tests), programs_below(at.task.tests))


async def _cleared(at: Bench, ways: _Ways) -> str:
    """Take the tests away again, before the agent goes on; why that is not possible."""
    try:
        if not ways.keeps:
            await at.sidecar.end_processes()
        for path in (_TESTS, _LOGS):
            await at.sidecar.remove(path)
    except AEnvError as error:
        return f"the tests could not be taken away again: {error.message}"
    return ""


# Version 1


async def _version_1(at: Bench, ways: _Ways) -> dict[str, Any]:
    where = at.folder or (await at.sidecar.exec("pwd")).stdout.strip()
    before = await _stamps(at, _TESTS)
    done = await _own_python(at, ways.variables, folder=_TESTS, workdir=where)
    if done.exit_code == _TIMED_OUT:
        return _timeout(at.task)
    match done.answer:
        case {"missing": [_, *_] as missing, "pytest": str(pytest)}:
            return await _with_image(at, ways, [str(name) for name in missing], pytest)
        case {"changed": [path, *_]}:
            return _sabotaged(path)
        case {"tests": dict(tests), "output": str(output), "exit": int(status)}:
            passed = sum(outcome in ("passed", "xfailed") for outcome in tests.values())
            return _scored(passed, len(tests), status, output)
    if path := _changed(before, await _stamps(at, _TESTS)):
        return _sabotaged(path)
    return _invalid(f"the judge ended without a verdict: {(done.stderr or done.stdout).strip()[-1000:]}")


async def _own_python(at: Bench, variables: dict[str, str], **arguments: Any) -> Any:
    code = (Path(__file__).parent / "_terminalbench_judge.py").read_text()
    return await at.sidecar.python(code, arguments, timeout=at.task.test_seconds, variables=variables)


async def _stamps(at: Bench, folder: str) -> dict[str, Any]:
    """What the files of a folder are, so that a change is seen."""
    match (await _own_python(at, {}, folder=folder, runs=False)).answer:
        case {"stamps": dict(stamps)}:
            return stamps
    raise ToolError(f"the files of {folder} could not be looked at")


async def _with_image(at: Bench, ways: _Ways, missing: list[str], pytest: str) -> dict[str, Any]:
    """By the image's own Python, where the tests import what this instance's does not have."""
    options = [f"--rootdir={_TESTS}", f"--confcutdir={_TESTS}", "-c", "/dev/null", "-p", "no:cacheprovider", "-rA"]
    before = await _stamps(at, _TESTS)
    done = await at.sidecar.exec(
        ["/bin/sh", "-c", _ORIGINAL_PYTHON, "sh", _PYTEST, pytest, *options, "--color=no", _TESTS],
        timeout=at.task.test_seconds,
        folder=at.folder,
        variables={**ways.variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    if done.exit_code == _TIMED_OUT:
        return _timeout(at.task)
    # Only what stands in the summary is pytest's own; above it, tests print what they like.
    summary = done.stdout.rpartition("short test summary info")[2]
    tests = {name: word for word, name in _LINE.findall(summary)}
    if path := _changed(before, await _stamps(at, _TESTS)):
        return _sabotaged(path)
    if not tests:
        words = (done.stderr or done.stdout).strip()[-500:]
        if "test session starts" in done.stdout or done.exit_code > _NOT_FOUND:
            return _invalid(f"the tests ended without a verdict (exit code {done.exit_code}): {words}")
        said = _invalid(
            f"the tests need {', '.join(missing)}: no line of the task's scripts installs that, and the image's "
            f"own Python cannot run them; install it in the task's Dockerfile, or beside aenv: {words}"
        )
        return {**said, "missing": missing}
    passed = sum(word in ("PASSED", "XFAIL") for word in tests.values())
    return _scored(passed, len(tests), done.exit_code, done.stdout)


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    return next((path for path, stamp in before.items() if after.get(path) != stamp), "")


# Harbor


async def _harbor(at: Bench, ways: _Ways) -> dict[str, Any]:
    has_tests = any(at.task.tests.rglob("test_*.py"))
    if has_tests and await _lacks_uv(at):
        return await _version_1(at, ways)
    said = await _scripted(at, ways)
    if said["reward"] > 0 and has_tests and ways.checks:
        await _prepare(at, ways)
        return _doubted(said, await _version_1(at, ways))
    return said


async def _lacks_uv(at: Bench) -> bool:
    """Whether test.sh would have to download what it runs the tests with."""
    script = at.task.tests / "test.sh"
    if not script.is_file() or not _USES_UV.search(script.read_text(errors="replace")):
        return False
    return (await at.sidecar.exec("command -v uv && command -v uvx", variables={"PATH": _path()})).exit_code != 0


async def _scripted(at: Bench, ways: _Ways) -> dict[str, Any]:
    """What test.sh says, unless it can be seen that another process has said it."""
    await at.sidecar.remove(_LOGS)
    await at.sidecar.put_folder(f"{_LOGS}/verifier", {})
    stamps, before = await _stamps(at, _TESTS), await at.sidecar.processes()
    done = await at.sidecar.exec(
        ["bash", f"{_TESTS}/test.sh"],
        timeout=at.task.test_seconds,
        folder=at.folder,
        # Behind the image's own programs, for those that it lacks: a Python, and pytest where we have it.
        variables={
            **ways.variables,
            "PATH": f"{_path()}:{Path(sys.executable).parent}",
            "PYTHONNOUSERSITE": "1",
        },
    )
    left = await at.sidecar.processes() - before
    if not ways.keeps:
        await at.sidecar.end_processes()
    output = done.stdout + done.stderr
    if done.exit_code == _TIMED_OUT:
        return _timeout(at.task)
    if path := _changed(stamps, await _stamps(at, _TESTS)):
        return _sabotaged(path)
    reward = await _reward(at)
    if isinstance(reward, str):
        return _sabotaged(reward)
    if reward is None:
        return _invalid(f"test.sh wrote no reward (exit code {done.exit_code}): {output.strip()[-1000:]}")
    problem = ""
    if done.exit_code > _BY_SIGNAL:
        problem = f"test.sh was ended by signal {done.exit_code - _BY_SIGNAL}; another process wrote the reward"
    elif left > 0 and not ways.keeps:
        problem = f"{left} processes were left by the tests, which could have written the reward"
    elif f"{_LOGS}/verifier/reward" in done.stderr and reward > 0:
        return _sabotaged(f"{_LOGS}/verifier/reward.txt")  # which test.sh could not write
    elif done.truncated:
        problem = f"test.sh may not have been able to write its reward: {done.stderr.strip()[-1000:]}"
    if problem and reward > 0:
        return _invalid(problem)
    return {"status": "success", "score": reward, "reward": reward, "raw_output": output[-_MAX_OUTPUT:]}


def _doubted(said: dict[str, Any], checked: dict[str, Any]) -> dict[str, Any]:
    """What test.sh said, if the tests say no less: all of them for the full reward, some for a part of it."""
    if "sabotaged" in checked:
        return checked
    if "missing" in checked or checked["reward"] == 1.0 or (said["reward"] < 1.0 and checked["score"] > 0):
        return said
    why = checked.get("error") or checked.get("raw_output") or ""
    return _invalid(
        f"test.sh wrote the reward {said['reward']:g}, but its tests do not pass out of its reach "
        f"(TERMINALBENCH_CROSS_CHECK=0 where they need what test.sh has set up): {why.strip()[-1000:]}"
    )


def _path() -> str:
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def _reward(at: Bench) -> float | str | None:
    """What test.sh has written: a number, or an object with one. A path, if another program has made that."""
    stamps = await _stamps(at, f"{_LOGS}/verifier")
    for name in _REWARDS:
        if name not in stamps:
            continue
        mode, links, *_ = stamps[name]
        if not (stat.S_ISREG(mode) and mode & stat.S_IWUSR and links == 1):
            return f"{_LOGS}/verifier/{name}"  # nothing that a shell leaves that has just written it
        try:
            said: Any = json.loads(await at.sidecar.read_file(f"{_LOGS}/verifier/{name}"))
        except ValueError:
            return None
        if isinstance(said, dict):
            values = [value for value in said.values() if isinstance(value, int | float)]
            said = said.get("reward", values[0] if len(values) == 1 else None)
        if isinstance(said, int | float) and math.isfinite(said):
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


def _sabotaged(path: str) -> dict[str, Any]:
    """A verdict, and no lack of one: or agents that would fail could keep out of the mean.

    Who did it is known: the tests and the reward are new in each verdict, and what runs beside the task's own
    scripts was made by the agent. Where those scripts do it themselves, the self-check of the task fails.
    """
    why = f"{path!r} was changed while the tests ran"
    return {"status": "sabotaged", "score": 0.0, "reward": 0.0, "error": why, "sabotaged": path}


def _invalid(why: str) -> dict[str, Any]:
    return {"status": "error", "score": 0.0, "reward": 0.0, "error": why, "invalid": why}
