"""SWE-bench: an agent repairs a repository in the sidecar; the main part judges its patch, out of its reach.

Here are the tools, the functions for trainers and the reward. What they share is in `swebench_bench.py`.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Annotated, Any

import swebench_patches as patches
from swebench_bench import Bench, open_bench
from swebench_cheats import cheats
from swebench_records import BadRecord, Record, record_of, record_of_text
from swebench_sealing import restore
from swebench_workplace import TREE

from aenv import Depends, NotJudged, ToolError, register_function, register_reset, register_reward, register_tool

_MOST_OUTPUT = 50_000  # characters that a model is shown of what a command prints
_MOST_LINES = 2000
_MOST_TIMEOUT = 3600.0
_VERDICT_TIMEOUT = 1800.0
_MAX_STEPS = 100
_SYSTEM = f"""You are a software engineer. A repository is in {TREE}; a problem with it is described to you.
Change the repository's source so that the problem is solved. Hidden tests decide; changes to tests do not count.
Each bash command runs in a new shell in {TREE}. Call submit when you are done."""


Own = Annotated[Bench, Depends(open_bench)]
"""The state of the instance that a call runs in."""


@register_tool
async def bash(command: str, bench: Own, timeout: float = 120) -> dict[str, Any]:
    """Run a command in the repository, in a shell of its own: folders and variables do not last, files do.

    Args:
        command: What bash is to run.
        timeout: Seconds after which it is ended; its returncode is 124 then.
    """
    _check_timeout(timeout)
    sidecar = await bench.workplace()
    # An image may have no bash; which shell it has is its own matter. Errors stand where they were printed.
    shell = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$0"; else exec /bin/sh -c "$0"; fi'
    words = ["/bin/sh", "-c", f"exec 2>&1; {shell}", command]
    done = await sidecar.exec(words, timeout=timeout, folder=TREE, variables=bench.variables)
    output = done.stdout + done.stderr
    if len(output) > _MOST_OUTPUT:
        half = _MOST_OUTPUT // 2
        left = len(output) - 2 * half
        output = f"{output[:half]}\n[… {left} characters are left out here …]\n{output[-half:]}"
    return {"output": output, "returncode": done.exit_code}


@register_tool
async def view(path: str, bench: Own, start: int = 1, end: int = 0) -> str:
    """Show a file with the numbers of its lines, or what is in a folder.

    Args:
        path: A file or folder, absolute or within the repository.
        start: The first line to show.
        end: The last line to show; 0 for the end of the file.
    """
    if start < 1 or (end and end < start):
        raise ToolError(f"there are no lines {start} to {end}; 'start' counts from 1, and 'end' is not before it")
    sidecar, place = await bench.workplace(), _absolute(path)
    kind = await sidecar.exec(
        ["/bin/sh", "-c", 'if [ -d "$0" ]; then ls -1Ap "$0"; else exit 9; fi', place], timeout=60
    )
    if kind.exit_code == 0:
        return kind.stdout
    lines = (await _read(bench, place)).removesuffix("\n").split("\n")  # as grep and editors count them
    if start > max(len(lines), 1):
        raise ToolError(f"{path!r} has {len(lines)} lines; {start} is behind its end")
    last = min(end or len(lines), len(lines), start - 1 + _MOST_LINES)
    shown = [f"{number:6}\t{line}" for number, line in enumerate(lines[start - 1 : last], start)]
    if last < (end or len(lines)) and last < len(lines):
        shown.append(f"[{len(lines)} lines in all; go on with start={last + 1}]")
    return "\n".join(shown)


@register_tool
async def edit(path: str, old: str, new: str, bench: Own) -> str:
    """Replace a piece of a file: exactly this text, which must stand in it once. An empty text makes a new file.

    Args:
        path: A file, absolute or within the repository.
        old: The text to replace, with its blanks and line ends; empty for a file that is not there yet.
        new: What comes in its place.
    """
    sidecar, place = await bench.workplace(), _absolute(path)
    if not old:
        exists = await sidecar.exec(["/bin/sh", "-c", 'test -e "$0" -a -s "$0"', place], timeout=60)
        if exists.exit_code == 0:
            raise ToolError(f"{path!r} is there already; give in 'old' the text to replace")
        await sidecar.write_file(place, new)
        return f"wrote {path!r}"
    text = await _read(bench, place)
    count = text.count(old)
    if count != 1:
        more = "none; view the file for its exact text" if not count else "more of its surroundings make it unique"
        raise ToolError(f"'old' stands in {path!r} {count} times, and must stand there once: {more}")
    await sidecar.write_file(place, text.replace(old, new))
    line = text[: text.index(old)].count("\n") + 1
    return f"changed {path!r} at line {line}"


@register_tool
async def submit(bench: Own) -> dict[str, Any]:
    """Hand in the repository as it is now. It can be done again; the last counts."""
    await bench.workplace()
    patch, notes = await bench.patch()
    bench.submitted = patch
    return {"files": sorted(patches.paths(patch)), "patch": patch[:_MOST_OUTPUT], "notes": notes}


@register_reward
async def swebench_reward(
    bench: Own,
    instance: str | dict[str, Any] | None = None,
    model_patch: str | None = None,
    timeout: float = _VERDICT_TIMEOUT,
) -> dict[str, Any]:
    """Whether a patch resolves an instance: its tests run on a fresh base tree, out of the agent's reach.

    Args:
        instance: An id, or a record, as an object or as JSON text; left out, this instance's own.
        model_patch: The patch; left out, what was submitted, or else the tree as it is.
        timeout: Seconds for the tests.
    """
    _check_timeout(timeout)
    record = _asked(bench, instance)
    notes: list[str] = []
    if model_patch is None:
        if instance is not None and record.id != bench.record().id:
            raise ToolError(f"give 'model_patch': this instance is {bench.record().id!r}, and not {record.id!r}")
        model_patch = bench.submitted
        if model_patch is None:
            model_patch, notes = await bench.patch()
    grade = await bench.grade(record, model_patch, timeout)
    if grade.not_ready:
        raise NotJudged("not_ready", grade.not_ready)
    grade.notes += notes
    return grade.report()


@register_function
async def list_tasks(bench: Own, split: str = "") -> list[dict[str, Any]]:
    """The instances of the data, each with what to create one with."""
    found = await asyncio.to_thread(bench.all)
    splits = sorted({record.split for record in found})
    if split and split not in splits:
        raise ToolError(f"no split {split!r}; the data has {', '.join(splits) or 'no records'}")
    tasks = []
    for record in found:
        if not split or record.split == split:
            task = {"id": record.id, "variables": {"SWEBENCH_INSTANCE_ID": record.id}, "split": record.split}
            tasks.append({**task, "datasource": record.image} if bench.base_of(record) == "docker" else task)
    return tasks


@register_function
def get_task(bench: Own) -> dict[str, Any]:
    """The problem, as an agent is told it."""
    record = bench.record()
    instruction = record.problem
    if bench.variable("SWEBENCH_HINTS") == "1" and record.hints.strip():
        instruction += f"\n\nFrom the discussion of the problem:\n\n{record.hints}"
    return {"id": record.id, "instruction": instruction, "system": _SYSTEM, "max_steps": _MAX_STEPS}


@register_function
async def play_gold(bench: Own) -> dict[str, Any]:
    """Solve the task with its reference solution, by the agent's own tools."""
    _only_validation(bench, "play_gold")
    record = bench.record()
    place = await bench.place(record)
    solved = place.work / "gold"
    try:
        files = sorted(patches.paths(record.gold))
        for path in files:
            if (place.base / path).is_file():
                restore(path, place.base, solved)
        patches.apply(record.gold, solved)
    except patches.PatchError as error:
        raise ToolError(f"the reference solution of {record.id!r} does not fit its base: {error}") from None
    for path in files:
        before, after = place.base / path, solved / path
        if not after.is_file():
            await bash(f"rm -f {shlex.quote(path)}", bench=bench)
            continue
        old = before.read_text(errors="surrogateescape") if before.is_file() else ""
        if old:
            await bash(f": > {shlex.quote(path)}", bench=bench)
        await edit(path, "", after.read_text(errors="surrogateescape"), bench=bench)
    return await submit(bench=bench)


@register_function
def known_exceptions(bench: Own) -> dict[str, dict[str, str]]:
    """Tasks whose solution is known not to resolve them here, or that need none: known_exceptions.json."""
    return bench.known_exceptions()


@register_function
def list_cheats(bench: Own) -> list[dict[str, Any]]:
    """Attempts to get the reward without solving the task."""
    _only_validation(bench, "list_cheats")
    return cheats(bench.record())


@register_reset
def start_over(bench: Own) -> dict[str, str]:
    """Bring the repository back to its base, and forget what was submitted."""
    bench.forget()
    return {"id": bench.record().id}


def _asked(bench: Bench, instance: str | dict[str, Any] | None) -> Record:
    try:
        match instance:
            case None | "":
                return bench.record()
            case dict():
                return record_of(instance, "'instance'")
            case str() if instance.lstrip().startswith("{"):
                return record_of_text(instance)
    except BadRecord as error:
        raise ToolError(str(error)) from None
    return bench.find(instance)


def _only_validation(bench: Bench, name: str) -> None:
    if not bench.is_validation:
        raise ToolError(f"{name} is for validation; create the instance with AENV_VALIDATION=1")


def _check_timeout(timeout: float) -> None:
    if not 0 < timeout <= _MOST_TIMEOUT:
        raise ToolError(f"'timeout' is {timeout:g}; it must be more than 0, and at most {_MOST_TIMEOUT:g} seconds")


def _absolute(path: str) -> str:
    if not path or "\0" in path:
        raise ToolError("'path' is empty; name a file")
    return path if path.startswith("/") else f"{TREE}/{path}"


async def _read(bench: Bench, place: str) -> str:
    data = await (await bench.workplace()).read_file(place)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{place!r} is no UTF-8 text; look at it with bash") from None
