"""What trainers and validators ask: which tasks there are, what this one is, its solution, and cheats."""

from __future__ import annotations

from typing import Any

import terminalbench_yaml
from terminalbench_bench import AtBench, Bench, capture_pane, keystrokes
from terminalbench_cheats import CHEATS
from terminalbench_tasks import (
    SPLITS,
    VERSION_1,
    chosen_task,
    files_below,
    filled_in,
    programs_below,
    task_folders,
)

from aenv import Context, ToolError, register_function

_SOLUTION = "/oracle"
_ENDED = f"{_SOLUTION}/ended"
"""A pipe that the terminal writes to when a command has ended."""
_LONGEST_STEP, _LAST_STEP = 180.0, 10.0  # seconds, unless a step says otherwise
_STEPS_A_MINUTE = 4


@register_function
def list_tasks(context: Context, split: str = "") -> list[dict[str, Any]]:
    """Every task: of one split ("version-1", "harbor"), or of all."""
    if split and split not in SPLITS:
        raise ToolError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    found = []
    for folder in task_folders(context.variables):
        kind = VERSION_1 if (folder / "task.yaml").is_file() and not (folder / "task.toml").is_file() else "harbor"
        if split in ("", kind):
            found.append({"id": folder.name, "variables": {"TERMINALBENCH_TASK_ID": folder.name}, "split": kind})
    return found


@register_function
def get_task(context: Context) -> dict[str, Any]:
    """What the task of this instance asks for."""
    task = chosen_task(context.variables)
    return {
        "id": task.id,
        "instruction": task.instruction,
        "system": "You work at a Linux terminal. Solve the task; its tests look at what you leave there.",
        "max_steps": max(round(task.agent_seconds / 60 * _STEPS_A_MINUTE), 10),
        "format": task.format,
        "canary": task.canary,
        **task.facts,
    }


@register_function
async def play_gold(context: Context, at: AtBench) -> dict[str, Any]:
    """Run the task's own solution as an agent would. Only for validation."""
    _check_validation(context, "play_gold")
    task = at.task
    folder = task.folder if task.format == VERSION_1 else task.folder / "solution"
    script = "solution.sh" if task.format == VERSION_1 else "solve.sh"
    if (folder / script).is_file():
        files = {script: (folder / script).read_bytes()} if task.format == VERSION_1 else files_below(folder)
        programs = [script] if task.format == VERSION_1 else programs_below(folder)
        await at.sidecar.put_folder(_SOLUTION, files, programs)
        try:
            done = await at.sidecar.exec(
                ["bash", f"{_SOLUTION}/{script}"],
                timeout=task.agent_seconds,
                folder=at.folder,
                variables=filled_in(task.solution_variables, context.variables),
            )
        finally:
            await at.sidecar.remove(_SOLUTION)
        return {"task": task.id, "output": done.stdout + done.stderr, "exit_code": done.exit_code}
    if (folder / "solution.yaml").is_file():
        return {"task": task.id, "output": await _typed(at, (folder / "solution.yaml").read_text())}
    raise ToolError(f"task {task.id!r} comes without a solution")


async def _typed(at: Bench, text: str) -> str:
    """Type the commands of a solution.yaml, and wait for each as it says: a time, or until it has ended."""
    await at.sidecar.put_folder(_SOLUTION, {})
    try:
        await at.sidecar.exec(["mkfifo", _ENDED])
        for number, step in enumerate(terminalbench_yaml.loads(text) or (), 1):
            keys, enters = str(step["command"]), bool(step.get("append_enter"))
            if step.get("block") and enters:
                most = float(step.get("max_timeout_sec") or _LONGEST_STEP)
                if not await _ends(at, f"{keys.rstrip()}; ", most):
                    raise ToolError(f"step {number} of solution.yaml, {keys!r}, has not ended in {most:g} s")
            else:
                await keystrokes(at, keys, enters, float(step.get("min_timeout_sec") or 0.0))
        # The shell may be behind with what was typed; or run the last of it for good, such as a server.
        await _ends(at, "", _LAST_STEP)
        return await capture_pane(at)
    finally:
        await at.sidecar.remove(_SOLUTION)


async def _ends(at: Bench, keys: str, most: float) -> bool:
    """Type a command, and return when the shell has ended it; False when that takes too many seconds."""
    await keystrokes(at, f"{keys}echo > {_ENDED}", True)
    return (await at.sidecar.exec(["cat", _ENDED], timeout=most)).exit_code == 0


@register_function
def known_exceptions() -> dict[str, dict[str, str]]:
    """Tasks whose solution does not pass, or that pass untouched: none of ours."""
    return {"gold": {}, "empty": {}}


@register_function
def list_cheats(context: Context) -> list[dict[str, Any]]:
    """Attempts to be rewarded without having solved anything. Only for validation."""
    _check_validation(context, "list_cheats")
    return [
        {"name": name, "kind": kind, "steps": [{"tool": "execute_command", "arguments": {"command": command}}]}
        for name, kind, command in CHEATS
    ]


def _check_validation(context: Context, name: str) -> None:
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError(f"{name} is for validation; create the instance with AENV_VALIDATION=1")
