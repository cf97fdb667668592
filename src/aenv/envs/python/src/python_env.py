"""A Python interpreter for agents: code runs in one namespace that stays, as in a notebook."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import python_packages
from python_interpreter import GRACE, Ended, Interpreter

from aenv import Context, Depends, Image, ToolError, register_reset, register_start, register_tool

_SECONDS_FOR_VARIABLES = 10.0


class Session:
    """The interpreter of an instance: begun with it, and again when it has ended."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._interpreter: Interpreter | None = None
        self._packages: Path | None = None
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Start the interpreter, without waiting until it has started."""
        async with self._turn:
            self._ready()

    async def run(self, code: str, timeout: float) -> dict[str, Any]:
        """Run code; one after the other, when several are asked for at a time."""
        async with self._turn:
            interpreter = self._ready()
            said = await self._ask(interpreter, {"do": "run", "code": code}, timeout)
            return {**said, "stdout": interpreter.stdout.take(), "stderr": interpreter.stderr.take()}

    async def variables(self) -> dict[str, Any]:
        """Names that the code has defined, with type and value."""
        async with self._turn:
            said = await self._ask(self._ready(), {"do": "variables"}, _SECONDS_FOR_VARIABLES)
        if "error" in said:
            raise ToolError(f"cannot show the variables: {said['error']}")
        found: dict[str, Any] = said["variables"]
        return found

    async def install(self, packages: list[str]) -> dict[str, list[str]]:
        """Install packages, and let the interpreter that runs find them."""
        async with self._turn:
            if self._packages is None:
                self._packages = Path(tempfile.mkdtemp(prefix="packages-"))
            folder = self._packages
            done = await asyncio.to_thread(python_packages.install, packages, self._context.variables, folder)
            if self._interpreter and self._interpreter.is_alive:
                await self._ask(self._interpreter, {"do": "path", "folder": str(folder)}, _SECONDS_FOR_VARIABLES)
        return done

    async def end(self) -> None:
        """End the interpreter, whatever it does."""
        interpreter, self._interpreter = self._interpreter, None
        if interpreter:
            await interpreter.kill()

    async def close(self) -> None:
        """End it for good."""
        await self.end()
        if self._packages:
            await asyncio.to_thread(shutil.rmtree, self._packages, ignore_errors=True)

    def _ready(self) -> Interpreter:
        if self._interpreter is None or not self._interpreter.is_alive:
            packages = [str(self._packages)] if self._packages else []
            with contextlib.suppress(OSError):  # the code may have removed it, or put a file in its place
                self._context.workspace.mkdir(parents=True, exist_ok=True)
            self._interpreter = Interpreter(self._context.workspace, self._context.variables, packages)
        return self._interpreter

    async def _ask(self, interpreter: Interpreter, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        try:
            try:
                return await interpreter.ask(request, timeout)
            except TimeoutError:
                said = await interpreter.stop_code()
                words = f"interrupted after {timeout:g} s; the variables are kept"
                return {**said, "error": f"{said.get('error', '')}\n[{words}]".lstrip()}
            except asyncio.CancelledError:
                interpreter.interrupt()  # no caller waits for it any more
                raise
        except TimeoutError:
            await interpreter.kill()
            words = f"it did not end within {timeout:g} s, nor {GRACE:g} s after an interrupt"
            return {"error": f"[{words}: the interpreter was started anew, and its variables are lost]"}
        except Ended as ended:
            words = f"the interpreter ended with exit code {ended.code}; the next code gets a new one"
            return {"error": f"[{words}, and the variables are lost]"}


async def open_session(context: Context) -> AsyncIterator[Session]:
    """The interpreter of this instance; it ends with it."""
    session = Session(context)
    yield session
    await session.close()


CurrentSession = Annotated[Session, Depends(open_session)]


@register_start
async def start_interpreter(session: CurrentSession) -> None:
    """Start the interpreter while the create is answered."""
    await session.begin()


@register_tool
async def run(session: CurrentSession, code: str, timeout: float = 60) -> Any:
    """Run Python code in an interpreter that stays: variables, functions and imports are there for the next code.

    Gives {"stdout", "stderr", "result", "error"}: what was printed, the repr of the last expression, and the
    traceback when the code failed. Figures of matplotlib, and a last expression that has a picture
    (`_repr_png_`), follow as images. `await` works at the top level; there is no standard input.

    Args:
        code: One or more statements.
        timeout: How many seconds it may take; then it is interrupted.
    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise ToolError(f"'timeout' is a number of seconds above 0, not {timeout}")
    said = await session.run(code, timeout)
    shown = {"stdout": said["stdout"], "stderr": said["stderr"]}
    shown |= {"result": said.get("result"), "error": said.get("error")}
    if "notice" in said:
        shown["notice"] = said["notice"]
    images = [Image(base64.b64decode(data), "image/png") for data in said.get("images", ())]
    return [shown, *images] if images else shown


@register_tool
async def install(session: CurrentSession, packages: list[str]) -> dict[str, list[str]]:
    """Make packages importable, from the folder of wheels at /data/wheels. Nothing is downloaded.

    Args:
        packages: Names, with versions where they matter, such as ["numpy", "pandas>=2"].
    """
    return await session.install(packages)


@register_tool(annotations={"readOnlyHint": True})
async def variables(session: CurrentSession) -> dict[str, Any]:
    """The variables that the code has defined, each with its type and a short form of its value."""
    return await session.variables()


@register_tool(name="reset")
async def restart(session: CurrentSession) -> str:
    """Begin again with an empty interpreter. Files stay."""
    await session.end()
    return "the interpreter is empty"


@register_reset
async def start_over(context: Context, session: CurrentSession, seed: int | None = None) -> dict[str, Any]:
    """Start over: an empty interpreter and an empty workspace. Nothing here depends on the seed."""
    await session.end()
    own = context.variables.get("AENV_WORKSPACE")
    if not own or Path(own) != context.workspace:  # `aenv run`: the folder is the user's
        return {"workspace": str(context.workspace), "emptied": False, "why": "it is not the instance's own"}
    await asyncio.to_thread(_empty, context.workspace)
    return {"workspace": str(context.workspace), "emptied": True}


def _empty(folder: Path) -> None:
    """Remove everything in a folder, or make it anew. Links are removed, not followed, also in its own place."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir(parents=True)
    folder.chmod(folder.stat().st_mode | 0o700)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, onerror=_by_force)
        else:
            os.unlink(entry.path)


def _by_force(function: Callable[[str], object], path: str, error: object) -> None:
    """A folder that was made unreadable: its owner may make it readable again."""
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
