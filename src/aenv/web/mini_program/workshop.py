"""A project that is worked on: its instance, what is saved of it on this machine, and who is told of changes.

The instance lives for minutes, and is renewed while this process lives: so it ends with it, however it ends. When
an instance has ended all the same, the next call makes another one from what is saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import Environment
from ...base.errors import AEnvError, Conflict, InvalidRequest, NotFound, Unavailable
from .conversation import MAX_MESSAGE, ChatModel, IdeConversation
from .saved_project import SavedProject
from .scripted_model import FIRST_WISHES, LATER_WISHES

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("aenv.web.mini_program")

ENVIRONMENT = "mini-program@1.0.0"
TTL = "3m"
_RENEWED_EVERY = 45.0  # seconds
_MAX_BEHIND = 1000  # events that a page has not taken yet
_TOOL_TIMEOUT = 90.0


@dataclass(frozen=True)
class BuildingAgent:
    """The model that answers, and its name; `is_script` where it is none."""

    model: ChatModel
    name: str
    is_script: bool = False


@dataclass(eq=False)
class PageFeed:
    """A page that is told of changes. One that does not take them is let go, and connects again."""

    events: asyncio.Queue[tuple[str, Any] | None] = field(default_factory=lambda: asyncio.Queue(_MAX_BEHIND))

    def tell(self, name: str, data: Any) -> bool:
        try:
            self.events.put_nowait((name, data))
        except asyncio.QueueFull:
            return False
        return True

    def let_go(self) -> None:
        """Forget what waits, and end."""
        while not self.events.empty():
            self.events.get_nowait()
        self.events.put_nowait(None)

    async def next(self, patience: float) -> tuple[str, Any] | None:
        """What happened next; ("", None) when nothing did for so many seconds, and None at the end."""
        try:
            async with asyncio.timeout(patience):
                return await self.events.get()
        except TimeoutError:
            return "", None


class Workshop:
    """One project. `make` makes an instance, and is called again when that has ended."""

    def __init__(
        self,
        project: str,
        saved: SavedProject,
        agent: BuildingAgent,
        make: Callable[[], Environment],
        first_wish: str = "",
    ) -> None:
        self.project = project
        self._saved = saved
        self._agent = agent
        self._make = make
        self._first_wish = first_wish
        self._env: Environment | None = None
        self._opening = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._is_closed = False
        self._history: dict[str, Any] = {"shown": 0, "revision": 0, "versions": [], "sizes": {}}
        self._watchers: set[PageFeed] = set()
        self._working: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._conversation = IdeConversation(lambda entry: self._tell("entry", dict(entry)))

    # What the page asks.

    def state(self) -> dict[str, Any]:
        """Everything that a page shows."""
        return {
            "project": self.project,
            "model": self._agent.name,
            "is_script": self._agent.is_script,
            "busy": self.is_busy,
            "entries": self._conversation.entries,
            **self._shown(),
        }

    @property
    def is_busy(self) -> bool:
        return self._turn is not None

    def ask(self, wish: str) -> None:
        """Begin a turn of the agent."""
        text = wish.strip()
        if not text or len(text) > MAX_MESSAGE:
            raise InvalidRequest(f"a message has 1 to {MAX_MESSAGE:,} characters")
        if self.is_busy:
            raise Conflict("the agent is at work; wait until it has finished, or stop it")
        self._working = asyncio.create_task(self._work(text))
        self._turn = asyncio.create_task(self._take_turn(self._working))

    async def stop(self) -> None:
        """End the agent's turn, if there is one."""
        if self._turn and self._working:
            self._working.cancel()
            await asyncio.wait({self._turn})

    async def read(self, path: str) -> dict[str, str]:
        """A file in base64, and its digest."""
        found: dict[str, str] = await self._function("get_file", {"path": path})
        return found

    async def change(self, function: str, **arguments: Any) -> dict[str, Any]:
        """Let the project change by one of its functions; what the page shows then."""
        if self.is_busy and function in ("undo", "redo", "show_version"):
            raise Conflict("the agent is at work; wait until it has finished, or stop it")
        await self._function(function, arguments)
        await self._save()
        return self._shown()

    @contextlib.contextmanager
    def watched(self) -> Iterator[PageFeed]:
        """A page that is told of changes, first of the state."""
        watcher = PageFeed()
        wish, self._first_wish = self._first_wish, ""
        if wish and not self._files() and not self.is_busy:
            self.ask(wish)
        watcher.tell("state", self.state())
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    # What the agent asks.

    async def offered(self) -> list[dict[str, Any]]:
        return await (await self._instance()).openai_tools()

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        env = await self._instance()
        result = await env.call_tool(name, arguments, timeout=_TOOL_TIMEOUT)
        await self._save()
        return result.text, result.is_error

    # The instance.

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Have an instance for the time of the block."""
        await self._instance()
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await self.stop()
            for watcher in self._watchers:
                watcher.let_go()
            await asyncio.wait({renewing})
            async with self._opening:
                self._is_closed = True
                await self._forget()

    async def _instance(self) -> Environment:
        async with self._opening:
            if self._is_closed:
                raise Unavailable("the IDE is ending")
            if self._env is None:
                env = self._make()
                try:
                    await env.initialize()
                    if saved := await asyncio.to_thread(self._saved.load):
                        await env.call_function("load_project", saved)
                    self._history = await env.call_function("history")
                except BaseException:
                    await env.release()
                    raise
                self._env = env
                self._tell("project", self._shown())
            return self._env

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEWED_EVERY)
            try:
                await (await self._instance()).renew(TTL)
            except NotFound:
                await self._forget()
            except AEnvError as error:  # the next time may be better; the TTL bridges some
                logger.warning("the instance could not be renewed: %s", error.message)

    async def _forget(self) -> None:
        """The instance has ended: the next call makes another."""
        env, self._env = self._env, None
        if env:
            await env.release()

    async def _function(self, name: str, arguments: dict[str, Any]) -> Any:
        for _ in range(2):
            env = await self._instance()
            try:
                return await env.call_function(name, arguments)
            except NotFound:
                if env is self._env:
                    await self._forget()
        raise NotFound("the instance of the project ends as soon as it is made; see 'aenv instances'")

    async def _take_turn(self, work: asyncio.Task[None]) -> None:
        """Wait for the agent's work, which may be cancelled, and keep what it has changed."""
        self._tell("busy", True)
        await asyncio.wait({work})
        try:
            if not work.cancelled() and (error := work.exception()):
                raise error
            await self._function("begin_change", {})
            await self._save()
        except (AEnvError, OSError) as error:
            self._conversation.show("error", str(error))
        finally:
            self._turn = None
            self._tell("state", self.state())

    async def _work(self, wish: str) -> None:
        await self._function("begin_change", {"summary": wish, "by": "agent"})
        await self._conversation.take_turn(wish, self._agent.model, self._agent.name, self)

    async def _save(self) -> None:
        """Keep what the project is now on this machine, and tell pages when it has changed."""
        async with self._saving:
            history = await self._function("history", {})
            if history["revision"] == self._history["revision"]:
                return
            lacking = self._saved.lacks(history)
            contents = await self._function("contents", {"digests": lacking}) if lacking else {}
            await asyncio.to_thread(self._saved.save, history, contents)
            self._history = history
        self._tell("project", self._shown())

    def _files(self) -> dict[str, str]:
        versions = {one["number"]: one for one in self._history["versions"]}
        files: dict[str, str] = versions.get(self._history["shown"], {}).get("files", {})
        return files

    def _shown(self) -> dict[str, Any]:
        """The project as a page shows it."""
        versions, shown = self._history["versions"], self._history["shown"]
        parents = {one["number"]: one["parent"] for one in versions}
        sizes = self._history["sizes"]
        return {
            "revision": self._history["revision"],
            "shown": shown,
            "wishes": (LATER_WISHES if self._files() else FIRST_WISHES) if self._agent.is_script else (),
            "can_undo": parents.get(shown) in parents,
            "can_redo": shown in parents.values(),
            "versions": [{name: value for name, value in one.items() if name != "files"} for one in versions],
            "files": [
                {"path": path, "digest": digest, "bytes": sizes.get(digest, 0)}
                for path, digest in sorted(self._files().items())
            ],
        }

    def _tell(self, name: str, data: Any) -> None:
        for watcher in list(self._watchers):
            if not watcher.tell(name, data):
                self._watchers.discard(watcher)
                watcher.let_go()
