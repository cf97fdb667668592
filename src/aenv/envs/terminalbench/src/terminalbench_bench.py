"""The bench: the sidecar of an instance with its task laid out, and the tools to work at it.

The agent works in the sidecar alone. Tests and solutions stay in the first, out of its reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from terminalbench_tasks import VERSION_1, Task, chosen_task, files_below, programs_below

from aenv import Context, Depends, Sidecar, ToolError, register_tool

_APP = "/app"
_LONGEST_WAIT = 3600.0  # seconds
# As tmux names keys; anything else is typed as it stands.
_KEYS = {
    "Enter": "\r", "Escape": "\x1b", "Tab": "\t", "BTab": "\x1b[Z", "Space": " ", "BSpace": "\x7f",
    "DC": "\x1b[3~", "IC": "\x1b[2~",
    "Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C", "Left": "\x1b[D", "Home": "\x1b[H", "End": "\x1b[F",
    "PageUp": "\x1b[5~", "PPage": "\x1b[5~", "PageDown": "\x1b[6~", "NPage": "\x1b[6~",
    "F1": "\x1bOP", "F2": "\x1bOQ", "F3": "\x1bOR", "F4": "\x1bOS",
}  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """A task, and where it is worked at."""

    task: Task
    sidecar: Sidecar
    folder: str | None
    """Where commands run; None for the folder that the image names."""


async def bench(context: Context, sidecar: Sidecar) -> Bench:
    """Lay the task out: its image is built by now; of our own tasks the files are put on the host's system."""
    task = chosen_task(context.variables)
    if task.is_own:
        files = task.folder / ("app" if task.format == VERSION_1 else "environment/app")
        await sidecar.put_folder(_APP, files_below(files), programs_below(files))
        return Bench(task, sidecar, _APP)
    dockerfiles = ("Dockerfile", "environment/Dockerfile", "client/Dockerfile")
    if not any((task.folder / file).is_file() for file in dockerfiles):
        raise ToolError(f"task {task.id!r} has no Dockerfile; its rootfs cannot be built")
    return Bench(task, sidecar, None)


AtBench = Annotated[Bench, Depends(bench)]


@register_tool
async def keystrokes(at: AtBench, keystrokes: str, append_enter: bool = False, wait_time_sec: float = 0.0) -> str:
    """Type into the terminal, and get its whole pane with what has scrolled away.

    Args:
        keystrokes: what to type; or the name of one key as tmux has it: Enter, Escape, Up, C-c, M-x, ...
        append_enter: press Enter after it
        wait_time_sec: how long to wait before the pane is captured; a moment when it is 0
    """
    keys = _typed(keystrokes) + ("\r" if append_enter else "")
    return await at.sidecar.terminal(keys, wait=_seconds(wait_time_sec), history=True, folder=at.folder)


@register_tool
async def capture_pane(at: AtBench, wait_before_capture_sec: float = 0.0) -> str:
    """See what the terminal shows now.

    Args:
        wait_before_capture_sec: how long to wait before
    """
    return await at.sidecar.terminal(wait=_seconds(wait_before_capture_sec), folder=at.folder)


@register_tool
async def execute_command(at: AtBench, command: str, timeout: float = 60.0) -> dict[str, object]:
    """Run one command with a shell of its own, and get its output and exit code (124 when it took too long).

    Args:
        command: a line for bash, or for sh where there is no bash
        timeout: seconds after which it is ended
    """
    # The shell is asked for inside: an image may have no bash.
    words = ["/bin/sh", "-c", 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec /bin/sh -c "$1"', "sh"]
    done = await at.sidecar.exec([*words, command], timeout=_seconds(timeout) or None, folder=at.folder)
    notice = "\n(the output was longer, and is cut)" if done.truncated else ""
    return {"output": done.stdout + done.stderr + notice, "exit_code": done.exit_code}


def _typed(keystrokes: str) -> str:
    if keystrokes in _KEYS:
        return _KEYS[keystrokes]
    if len(keystrokes) == 3 and keystrokes[1] == "-" and keystrokes[2].isascii():
        if keystrokes[0] == "C" and (keystrokes[2].isalpha() or keystrokes[2] in "[\\]^_"):
            return chr(ord(keystrokes[2].upper()) & 0x1F)
        if keystrokes[0] == "M":
            return f"\x1b{keystrokes[2]}"
    return keystrokes.replace("\r\n", "\r").replace("\n", "\r")


def _seconds(value: float) -> float:
    if not 0 <= value <= _LONGEST_WAIT:
        raise ToolError(f"{value:g} seconds are too many; use 0 to {_LONGEST_WAIT:g}")
    return value
