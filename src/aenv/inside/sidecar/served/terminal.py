"""The terminal of the sidecar: one shell, into which keys are typed, and a screen that shows what comes of it.

The image needs no program for it but a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from pathlib import Path

from aenv import Context, register_function
from aenv.base.errors import NotFound

from .screen import COLUMNS, ROWS, Screen
from .sidecar_commands import children

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh")
_PIECE_BYTES = 1 << 16
_QUIET = 0.03  # seconds without output after which nothing more is expected soon
_SOON = 0.5  # seconds in which most commands have answered, when the caller did not say how long to wait
_OPENS = 5.0  # seconds in which a shell shows its first prompt


class Terminal:
    """One shell with its screen, until the shell ends."""

    def __init__(self, context: Context, folder: Path) -> None:
        self._master, slave = os.openpty()
        try:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.set_blocking(self._master, False)
            self.screen = Screen(self._type_at_once)
            self._said = asyncio.Event()
            shell = next(filter(os.path.exists, _SHELLS), None)
            if shell is None:
                raise NotFound("the sidecar has no shell; its image needs /bin/sh")
            words = [shell, "--norc", "--noprofile", "-i"] if shell.endswith("bash") else [shell, "-i"]
            sizes = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
            _, self.ended = children.start(
                words,
                cwd=folder,
                env={**context.variables, "TERM": "xterm", "PS1": "\\u@\\h:\\w\\$ ", **sizes},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                # In the child, which leads a session of its own: make it this session's terminal.
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)

    async def type(self, keys: bytes) -> None:
        """Type; return when the terminal has taken all of it."""
        loop = asyncio.get_running_loop()
        while keys:
            try:
                keys = keys[os.write(self._master, keys) :]
            except BlockingIOError:  # no process reads it yet
                writable = asyncio.Event()
                loop.add_writer(self._master, writable.set)
                try:
                    async with asyncio.timeout(_OPENS):
                        await writable.wait()
                except TimeoutError:
                    return  # as of a terminal that is not read from: the rest is lost
                finally:
                    loop.remove_writer(self._master)
            except OSError:  # the shell has ended
                return

    async def settle(self, most: float) -> None:
        """Return when nothing has come for a moment, or after `most` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most):
                while True:
                    await self._said.wait()
                    self._said.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_QUIET):
                            await self._said.wait()
                            continue
                    return

    def expect(self) -> None:
        """What is said from now on is new."""
        self._said.clear()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, _PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # no process has the other end any more
            data = b""
        if data:
            self.screen.write(data)
        else:
            asyncio.get_running_loop().remove_reader(self._master)
        self._said.set()

    def _type_at_once(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._master, data)


_open: list[Terminal] = []


@register_function
async def terminal(context: Context, keys: str, wait: float, history: bool, folder: str) -> str:
    """Type keys into the terminal, wait, and give what it shows; with `history` also what has scrolled away."""
    shown = await _terminal(context, context.workspace / folder)
    shown.expect()
    await shown.type(keys.encode())
    if wait > 0:
        await asyncio.wait({shown.ended}, timeout=wait)
    elif keys:
        await shown.settle(_SOON)
    return shown.screen.text(with_history=history)


async def _terminal(context: Context, folder: Path) -> Terminal:
    """The one that is open, else a new one."""
    if _open and not _open[0].ended.done():
        return _open[0]
    while _open:
        _open.pop().close()
    os.makedirs(folder, exist_ok=True)
    shown = Terminal(context, folder)
    _open.append(shown)
    await shown.settle(_OPENS)
    return shown
