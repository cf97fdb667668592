"""A terminal for agents: commands in one bash that lives as long as the instance.

What the shell is and how it is spoken to: `mini_terminal_shell.py`. Files: `mini_terminal_files.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from mini_terminal_files import empty
from mini_terminal_output import CappedOutput
from mini_terminal_processes import end_all_of
from mini_terminal_shell import Shell

from aenv import Context, Depends, ToolError, register_reset, register_tool

TIMED_OUT = 124  # what timeout(1) says
_GRACE = 0.5  # seconds for a program to end when it is interrupted, before it is killed
_MOST_OF_A_LINE = 4095  # bytes, what the kernel keeps for a program that reads a line
_STARTED_ANEW = (
    "[what ran before could not be stopped, and the shell was started anew: "
    "folder, variables and functions are those of a new shell]\n"
)


class Terminal:
    """The shell of an instance: begun at the first command, and again when it has ended."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shell: Shell | None = None
        self._turn = asyncio.Lock()
        self._is_awaited = False
        self._is_owed = False
        """Whether no caller has been told yet how the last command ended."""

    async def execute(self, command: str, timeout: float) -> dict[str, Any]:
        """Run a command; one after the other, when several are asked for at a time."""
        async with self._turn:
            notice = await self._free()
            shell = self._ready()
            self._is_awaited = self._is_owed = True
            try:
                return self._said(shell, await shell.run(command, timeout), notice)
            finally:
                self._is_awaited = False

    async def feed(self, text: bytes, timeout: float) -> dict[str, Any]:
        """Let the running program read a text, and give what it says to it within `timeout` seconds."""
        shell = self._last()
        if shell.is_busy:
            await shell.feed(text, timeout)
        return await self._news(shell, timeout)

    async def interrupt(self, timeout: float) -> dict[str, Any]:
        """Interrupt the running program, and wait up to `timeout` seconds for its end."""
        shell = self._last()
        if shell.is_busy:
            shell.send(signal.SIGINT)
        return await self._news(shell, timeout)

    async def end(self) -> None:
        """End the shell and every process that commands have started."""
        shell, self._shell = self._shell, None
        if shell and shell.is_alive:
            await asyncio.to_thread(end_all_of, shell.pid)
            await shell.gone()

    async def start_over(self) -> None:
        """A new shell and an empty workspace, whatever runs now."""
        await self.end()
        async with self._turn:  # a command that had waited for its turn may have begun a shell meanwhile
            await self.end()
            await asyncio.to_thread(empty, self._context.workspace)

    async def _free(self) -> str:
        """Stop what a command before has left running in the foreground; a notice when that took the shell."""
        shell = self._shell
        if shell is None or not shell.is_busy:
            return ""
        for number in (signal.SIGINT, signal.SIGKILL):
            shell.send(number)
            if await shell.ended(_GRACE):
                break
        else:
            shell.stop()
            await shell.ended(_GRACE)
        shell.output.clear()
        return "" if shell.is_alive else _STARTED_ANEW

    def _ready(self) -> Shell:
        if self._shell is None or not self._shell.is_alive:
            left = self._shell.output if self._shell else CappedOutput()
            with contextlib.suppress(OSError):  # a command may have removed it, or put a file in its place
                self._context.workspace.mkdir(parents=True, exist_ok=True)
            self._shell = Shell(self._context.workspace, self._context.variables, left)
        return self._shell

    def _last(self) -> Shell:
        """The shell whose command runs, or has ended since a caller was last told of it."""
        if self._shell is None or not (self._shell.is_busy or self._is_owed):
            raise ToolError("nothing is running; execute_command starts a program")
        return self._shell

    async def _news(self, shell: Shell, timeout: float) -> dict[str, Any]:
        if self._is_awaited:  # what it prints goes to the call that waits for it
            return {"output": ["", not shell.is_busy], "returncode": TIMED_OUT if shell.is_busy else shell.code}
        return self._said(shell, await shell.ended(timeout))

    def _said(self, shell: Shell, is_finished: bool, notice: str = "") -> dict[str, Any]:
        text = notice + shell.output.take(is_all=is_finished)
        self._is_owed = not is_finished
        return {"output": [text, is_finished], "returncode": shell.code if is_finished else TIMED_OUT}


async def open_terminal(context: Context) -> AsyncIterator[Terminal]:
    """The terminal of this instance; its processes end with it."""
    terminal = Terminal(context)
    yield terminal
    await terminal.end()


CurrentTerminal = Annotated[Terminal, Depends(open_terminal)]


@register_tool
async def execute_command(terminal: CurrentTerminal, command: str, timeout: float = 60) -> dict[str, Any]:
    """Run a command in a bash that stays: its folder, variables and functions are there for the next command.

    Gives {"output": [text, finished], "returncode": n}: what it printed (stdout and stderr, in order), whether it
    ended in time, and its exit code. A command that does not end in time goes on: feed it with send_input, stop it
    with interrupt; the next command stops it first. Start with "&" what shall go on. "exit" ends the shell; the
    next command gets a new one.

    Args:
        command: One line or many, as you would type or write them in a script.
        timeout: How many seconds to wait for its end.
    """
    if "\0" in command:
        raise ToolError("'command' has a NUL character, which no shell can take; write '\\0' with printf instead")
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"'command' is not text: {error.reason}") from None
    return await terminal.execute(command, _seconds(timeout))


@register_tool
async def send_input(terminal: CurrentTerminal, text: str, timeout: float = 1) -> dict[str, Any]:
    r"""Type into the program that is running; gives what it printed since, in the form of execute_command.

    Args:
        text: What to type, with "\n" at the end of a line. "\u0004" is the end of input (Ctrl-D).
        timeout: How many seconds to wait for the program's end; its output comes then, or at its end.
    """
    data = text.encode(errors="replace")
    longest = max(len(line) for line in data.split(b"\n"))
    if longest > _MOST_OF_A_LINE:
        raise ToolError(f"a line of {longest} bytes does not fit into a terminal, which takes {_MOST_OF_A_LINE}")
    return await terminal.feed(data, _seconds(timeout))


@register_tool
async def interrupt(terminal: CurrentTerminal, timeout: float = 1) -> dict[str, Any]:
    """Interrupt the program that is running (Ctrl-C); gives what it printed since, in the form of execute_command.

    Args:
        timeout: How many seconds to wait for its end.
    """
    return await terminal.interrupt(_seconds(timeout))


@register_reset
async def reset(context: Context, terminal: CurrentTerminal, seed: int | None = None) -> dict[str, Any]:
    """Start over: a new shell, no process left, an empty workspace. Nothing here depends on the seed."""
    own = context.variables.get("AENV_WORKSPACE")
    if not own or Path(own) != context.workspace:
        await terminal.end()  # `aenv run`: the folder is the user's
        return {"workspace": str(context.workspace), "emptied": False, "why": "it is not the instance's own"}
    await terminal.start_over()
    return {"workspace": str(context.workspace), "emptied": True}


def _seconds(timeout: float) -> float:
    if not (math.isfinite(timeout) and timeout > 0):
        raise ToolError(f"'timeout' is a number of seconds above 0, not {timeout}")
    return timeout
