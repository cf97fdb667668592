"""Injection: what a function gets without its caller sending it.

A parameter annotated `Context` gets the instance, and one annotated `Sidecar` or `SyncSidecar` its sidecar;
a parameter with `Depends(make)` gets a resource, made once per instance (or per call) and closed at its end.
None shows in the schema. A unit test passes its own object, or swaps the maker with `replaced`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from ...base.errors import Unsupported
from .part import Part
from .sidecar import Sidecar, SyncSidecar

T = TypeVar("T")
RunSync = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function and gives its result: in a worker thread on a server, in place in a test."""


class _SentProgress:
    """Lets `ctx.progress(…)` stand alone in a sync tool and behind `await` in an async one."""

    def __await__(self) -> Generator[None, None, None]:
        return iter(())  # type: ignore[return-value]


_LOGGER = logging.getLogger("aenv.environment")


@dataclass(frozen=True)
class Context:
    """The instance that a call runs in."""

    id: str = "local"
    environment: str = ""
    workspace: Path = field(default_factory=Path.cwd)
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    logger: logging.Logger = _LOGGER
    report: Callable[[float, float | None, str | None], None] | None = None
    sidecar: Sidecar | None = None
    """Its sidecar, where it has one."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """The parts of a composed environment, by their names."""

    @property
    def second(self) -> Sidecar | None:
        """The same, by the name that pushed environments may use: a bundle never changes."""
        return self.sidecar

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> _SentProgress:
        """Tell the caller how far the call is. Works from sync and async tools; `await` is optional."""
        if self.report:
            self.report(progress, total, message)
        return _SentProgress()


@dataclass(frozen=True)
class Depends:
    """Marks a parameter as a resource: `db: Db = Depends(open_db)`, or `Annotated[Db, Depends(open_db)]`.

    `make` is a function or generator, sync or async; what follows its `yield` closes the resource. It may
    itself take a `Context` or further `Depends`.
    """

    make: Callable[..., Any]
    scope: Literal["instance", "call"] = "instance"


_replacements: dict[Callable[..., Any], Callable[..., Any]] = {}


@contextmanager
def replaced(make: Callable[..., Any], replacement: Callable[..., Any]) -> Iterator[None]:
    """For tests: inside, every `Depends(make)` gets what `replacement` makes."""
    before = _replacements.get(make)
    _replacements[make] = replacement
    try:
        yield
    finally:
        if before is None:
            del _replacements[make]
        else:
            _replacements[make] = before


def injections(function: Callable[..., Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `function` that are injected: each with `Context` or its `Depends`."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name)
        if hint in (Context, Sidecar, SyncSidecar):
            found[name] = hint
        elif isinstance(parameter.default, Depends):
            found[name] = parameter.default
        else:
            marks = (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Depends))
            found.update((name, mark) for mark in marks)
    return found


def not_injected(make: Callable[..., Any]) -> list[str]:
    """The parameters that a maker must be given and that are not injected."""
    known = injections(make, _readable_hints(make))
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(make).parameters.items()
        if name not in known and parameter.default is parameter.empty and parameter.kind not in optional
    ]


class Resources:
    """The resources of one instance; `async with` closes them, last made first closed."""

    def __init__(self, run_sync: RunSync) -> None:
        self._run_sync = run_sync
        self._stack = AsyncExitStack()
        self._made: dict[Callable[..., Any], asyncio.Future[Any]] = {}
        self._failures: dict[Callable[..., Any], BaseException] = {}

    async def __aenter__(self) -> Resources:
        return self

    async def __aexit__(self, *exc: object) -> None:
        making = [made for made in self._made.values() if not made.done()]
        self._made.clear()
        for made in making:
            made.cancel()
        await asyncio.gather(*making, return_exceptions=True)
        await self._stack.aclose()

    async def make(self, make: Callable[..., Any], context: Context) -> None:
        """Make a resource of the instance before a call needs it; or wait until another has made it."""
        async with AsyncExitStack() as call:
            await self._value(Depends(make), context, call)

    def failure(self, make: Callable[..., Any]) -> BaseException | None:
        """What the last attempt to make a resource of the instance has raised; None where it went well."""
        return self._failures.get(_replacements.get(make, make))

    @asynccontextmanager
    async def injected(self, wanted: Mapping[str, Any], context: Context) -> AsyncIterator[dict[str, Any]]:
        """The values for the injected parameters of one call; call-scoped ones are closed on the way out."""
        async with AsyncExitStack() as call:
            yield {name: await self._value(mark, context, call) for name, mark in wanted.items()}

    async def _value(self, mark: Any, context: Context, call: AsyncExitStack) -> Any:
        if mark is Context:
            return context
        if mark in (Sidecar, SyncSidecar):
            return _sidecar(mark, context)
        make = _replacements.get(mark.make, mark.make)
        if mark.scope == "call":
            return await self._make(make, context, call, call)
        made = self._made.get(make)
        if made is None:
            # Concurrent first calls must share one resource, and a failed attempt must not stick.
            made = self._made[make] = asyncio.ensure_future(self._made_or_failed(make, context, call))
            made.add_done_callback(lambda done: self._forget_failure(make, done))
        return await asyncio.shield(made)

    def _forget_failure(self, make: Callable[..., Any], done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception():
            self._made.pop(make, None)

    async def _made_or_failed(self, make: Callable[..., Any], context: Context, call: AsyncExitStack) -> Any:
        try:
            made = await self._make(make, context, self._stack, call)
        except (KeyboardInterrupt, SystemExit) as error:
            # From a task either would end the whole server.
            self._failures[make] = RuntimeError(f"{getattr(make, '__name__', make)!r} raised {error!r}")
            raise self._failures[make] from error
        except BaseException as error:
            self._failures[make] = error
            raise
        self._failures.pop(make, None)
        return made

    async def _make(
        self, make: Callable[..., Any], context: Context, owner: AsyncExitStack, call: AsyncExitStack
    ) -> Any:
        wanted = injections(make, _readable_hints(make))
        given = {name: await self._value(mark, context, call) for name, mark in wanted.items()}
        if inspect.isasyncgenfunction(make):
            return await owner.enter_async_context(asynccontextmanager(make)(**given))
        if inspect.isgeneratorfunction(make):
            return await owner.enter_async_context(self._in_thread(contextmanager(make)(**given)))
        if inspect.iscoroutinefunction(make):
            return await make(**given)
        return await self._run_sync(lambda: make(**given))

    @asynccontextmanager
    async def _in_thread(self, manager: Any) -> AsyncIterator[Any]:
        """A sync generator's resource: opened and closed off the event loop."""
        value = await self._run_sync(manager.__enter__)
        try:
            yield value
        finally:
            await self._run_sync(lambda: manager.__exit__(None, None, None))


def _sidecar(kind: type, context: Context) -> Sidecar | SyncSidecar:
    if context.sidecar is None:
        raise Unsupported("this instance has no sidecar; name its image when you create one, with 'datasource'")
    if kind is SyncSidecar:
        return SyncSidecar(context.sidecar, asyncio.get_running_loop())
    return context.sidecar


def _readable_hints(make: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a maker, without those that cannot be read now, such as names imported for types only."""
    hints = {}
    for name, hint in getattr(make, "__annotations__", {}).items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, getattr(make, "__globals__", {}))
            except Exception:  # boundary: author's annotations
                continue
        hints[name] = hint
    return hints
