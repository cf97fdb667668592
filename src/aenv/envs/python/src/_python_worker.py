"""The program in the child process: it runs one piece of code after another in one namespace, as a notebook does.

Requests come and replies go as lines of JSON on descriptors of their own; what the code prints goes to standard
output and standard error, and is the parent's to read. Imports nothing of aenv, and as little as it can: the first
code waits for it.
"""

from __future__ import annotations

import _ast  # what `ast` is made of, which itself loads a dozen modules
import binascii
import contextlib
import io
import json
import linecache
import os
import signal
import sys
import types
from typing import Any, NoReturn

REQUESTS, REPLIES = 90, 91
MAX_TEXT = 100_000
MAX_IMAGES = 20
MAX_IMAGE_BYTES = 5_000_000
MAX_VARIABLES = 200
_COROUTINE = 0x80  # among the flags of a code object


def main() -> None:
    """Serve until the parent is gone. Arguments: the folder to work in, and `sys.path` as JSON."""
    try:
        os.chdir(sys.argv[2])
    except OSError:
        os.chdir("/")  # the code before has removed it
    sys.path[:] = ["", *json.loads(sys.argv[3])]
    sys.argv[:] = [""]
    for descriptor in (REQUESTS, REPLIES):
        os.set_inheritable(descriptor, False)  # not for programs that the code starts
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    notebook = Notebook()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until there is code to interrupt
    with open(REQUESTS, "rb") as requests:
        for line in requests:
            reply = notebook.answer(json.loads(line))
            for stream in (sys.stdout, sys.stderr):
                _flush(stream)
            _send(json.dumps(reply).encode() + b"\n")


class Notebook:
    """The namespace, and what can be asked about it."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module  # so that what is defined here can be pickled
        self._names = module.__dict__
        self._given = set(self._names)
        self._count = 0
        self._is_running = False
        self._loop: Any = None
        self._pid = os.getpid()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request, whatever the code does."""
        said: dict[str, Any] = {"id": request["id"]}
        signal.signal(signal.SIGINT, self._interrupt)  # each time: the code may have put another in its place
        self._is_running = True
        try:
            if request["do"] == "run":
                self._run(request["code"], said)
            elif request["do"] == "variables":
                said["variables"] = self._variables()
            elif request["folder"] not in sys.path:
                sys.path.append(request["folder"])
        except BaseException as error:  # boundary: the agent's code, which may also call sys.exit
            self._is_running = False
            said["error"] = capped(_trace(error))
        finally:
            self._is_running = False
        if os.getpid() != self._pid:  # a fork that the code has made: it must not go on as its parent
            _leave(said)
        return said

    def _run(self, code: str, said: dict[str, Any]) -> None:
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)  # for tracebacks
        flags = _ast.PyCF_ONLY_AST | _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree: _ast.Module = compile(code, name, "exec", flags=flags, dont_inherit=True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        self._execute(tree, name, "exec")
        if isinstance(last, _ast.Expr):
            value = self._execute(_ast.Expression(last.value), name, "eval")
            if value is not None:
                self._names["_"] = value
                said["result"] = capped(repr(value))
                said["images"] = _picture_of(value)
        said["images"] = [*said.get("images", ()), *_figures()]
        if len(said["images"]) > MAX_IMAGES:
            said["notice"] = f"{len(said['images'])} images; the first {MAX_IMAGES} are given"
            del said["images"][MAX_IMAGES:]

    def _execute(self, tree: _ast.Module | _ast.Expression, name: str, mode: str) -> Any:
        # Without what this file asks of the compiler for itself.
        code = compile(tree, name, mode, flags=_ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        value = eval(code, self._names)
        if code.co_flags & _COROUTINE:
            import asyncio  # only for code that awaits

            self._loop = self._loop or asyncio.new_event_loop()
            value = self._loop.run_until_complete(value)
        return value

    def _interrupt(self, *_: object) -> None:
        """A signal between two pieces of code has come too late to mean any."""
        if self._is_running:
            raise KeyboardInterrupt

    def _variables(self) -> dict[str, dict[str, str]]:
        own = [name for name in self._names if name not in self._given and not name.startswith("_")]
        return {name: _about(self._names[name]) for name in sorted(own)[:MAX_VARIABLES]}


def capped(text: str) -> str:
    """The text, or its beginning and its end."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out here]\n{text[-half:]}"


def _about(value: Any) -> dict[str, str]:
    import reprlib  # only for who asks

    return {"type": type(value).__name__, "value": reprlib.repr(value)[:200]}


def _picture_of(value: Any) -> list[str]:
    draw = getattr(type(value), "_repr_png_", None)
    data = draw(value) if callable(draw) else None
    return [_packed(bytes(data))] if isinstance(data, bytes | bytearray) else []


def _figures() -> list[str]:
    """The figures that are open, as pictures; they are closed, so that the next code begins with none."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    pictures = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", bbox_inches="tight")
        pictures.append(_packed(file.getvalue()))
    pyplot.close("all")
    return pictures


def _packed(data: bytes) -> str:
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(
            f"a picture of {len(data)} bytes is too large; {MAX_IMAGE_BYTES} are allowed, use a lower dpi"
        )
    return binascii.b2a_base64(data, newline=False).decode()


def _trace(error: BaseException) -> str:
    """The traceback, without our own lines."""
    import traceback  # only for code that fails

    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if frame.filename != __file__])
    return "".join(told.format()).rstrip()


def _flush(stream: Any) -> None:
    # The code may have closed it, or put something else in its place.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stream.flush()


def _leave(said: dict[str, Any]) -> NoReturn:
    """End a fork: what went wrong in it is printed, since no caller waits for its reply."""
    if "error" in said:
        print(said["error"], file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    os._exit(1 if "error" in said else 0)


def _send(data: bytes) -> None:
    while data:
        data = data[os.write(REPLIES, data) :]
