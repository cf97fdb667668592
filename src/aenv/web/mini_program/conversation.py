"""The conversation of a person with the agent: what a model is told, what the page shows, and a turn of both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...base import mcp
from ...base.errors import AEnvError, ToolError

MAX_MESSAGE = 20_000
_MAX_STEPS = 30
_MAX_TOLD = 400_000  # characters that a model is told in all
_MAX_RESULT = 60_000  # of one result, to the model
_MAX_SHOWN = 4_000  # of one result, to the person
_MAX_ENTRIES = 400
_SYSTEM = (
    "You build a small web app for a person who watches it in a live preview. Its files are in a virtual file "
    "system: use write_file, read_file and list_files. The page is index.html; use plain HTML, CSS and "
    "JavaScript, in files of their own. Nothing is loaded from another host, so use no CDN. localStorage is "
    "there, but is empty at each start. Read a file before you change it, and write it whole. When you have "
    "changed something, check it with validate_html and log_browser_console, and mend what they find. Then "
    "say in one or two sentences what you did."
)


class ModelReply(Protocol):
    """A model's answer; `aenv.Chat` and the script give one."""

    @property
    def message(self) -> dict[str, Any]: ...


class ChatModel(Protocol):
    """What answers chat completions."""

    async def complete(self, body: Mapping[str, Any]) -> ModelReply: ...


class ProjectTools(Protocol):
    """The tools of the instance."""

    async def offered(self) -> list[dict[str, Any]]:
        """As chat completions take them."""

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """What the tool said, and whether it failed. The project is saved when this returns."""


class IdeConversation:
    """One conversation. `tell` is handed each entry that is new or has changed."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.entries: list[dict[str, Any]] = []
        self._tell = tell
        self._messages: list[dict[str, Any]] = []
        self._numbers = itertools.count()

    def show(self, kind: str, text: str, **more: Any) -> dict[str, Any]:
        """Add an entry that the page shows: user, assistant, tool or error."""
        entry = {"id": next(self._numbers), "kind": kind, "text": text[:MAX_MESSAGE], **more}
        self.entries.append(entry)
        del self.entries[:-_MAX_ENTRIES]
        self._tell(entry)
        return entry

    async def take_turn(self, wish: str, model: ChatModel, name: str, tools: ProjectTools) -> None:
        """Let the agent work on a wish until it has said something without calling a tool."""
        self.show("user", wish)
        self._messages.append({"role": "user", "content": wish})
        try:
            await self._work(model, name, tools)
        except AEnvError as error:
            self.show("error", error.message)
        finally:
            self._answer_open_calls()

    async def _work(self, model: ChatModel, name: str, tools: ProjectTools) -> None:
        offered = await tools.offered()
        for _ in range(_MAX_STEPS):
            body = {"model": name, "messages": self._told(), "tools": offered}
            message = (await model.complete(body)).message
            kept = {key: message[key] for key in ("content", "tool_calls") if message.get(key)}
            self._messages.append({"role": "assistant", "content": None, **kept})
            if text := str(message.get("content") or ""):
                self.show("assistant", text)
            calls = message.get("tool_calls") or []
            if not calls:
                return
            for call in calls:
                await self._call(call, tools)
        self.show("error", f"the agent was stopped after {_MAX_STEPS} steps; say how it should go on")

    async def _call(self, call: dict[str, Any], tools: ProjectTools) -> None:
        id, name, arguments, problem = _read(call)
        entry = self.show("tool", "", tool=name, about=_about(arguments), state="running")
        try:
            said, is_error = (problem, True) if problem else await tools.call(name, arguments)
        except ToolError as error:  # an answer that never came is for the model, too
            said, is_error = error.message, True
        except BaseException:
            entry |= {"state": "failed"}
            self._tell(entry)
            raise
        entry |= {"text": said[:_MAX_SHOWN], "state": "failed" if is_error else "done"}
        self._tell(entry)
        self._messages.append({"role": "tool", "tool_call_id": id, "content": said[:_MAX_RESULT]})

    def _answer_open_calls(self) -> None:
        """A turn that was stopped leaves calls without an answer, which models' servers refuse."""
        last = max(number for number, one in enumerate(self._messages) if one["role"] != "tool")
        calls = self._messages[last].get("tool_calls") or []
        answered = len(self._messages) - last - 1
        for call in calls[answered:]:
            self._messages.append({"role": "tool", "tool_call_id": _read(call)[0], "content": "[stopped]"})

    def _told(self) -> list[dict[str, Any]]:
        """The system message, and the last turns as far as they fit; a turn is told whole, or not."""
        starts = [number for number, one in enumerate(self._messages) if one["role"] == "user"]
        for start in starts:
            told = self._messages[start:]
            if len(mcp.dumps(told)) <= _MAX_TOLD or start == starts[-1]:
                self._messages = told
                break
        return [{"role": "system", "content": _SYSTEM}, *self._messages]


def _read(call: Any) -> tuple[str, str, dict[str, Any], str]:
    """Id, name and arguments of a call, and what is wrong with it: a model may say anything."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return "", "", {}, "this is not a call of a tool"
    id, name = str(call.get("id") or ""), str(function.get("name") or "")
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (ValueError, TypeError) as error:
        return id, name, {}, f"the arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return id, name, {}, "the arguments are not a JSON object"
    return id, name, arguments, ""


def _about(arguments: Mapping[str, Any]) -> str:
    """What a call is about, in a few words: the file that it names, or the beginning of its code."""
    for name in ("path", "file_path", "directory", "code"):
        if isinstance(value := arguments.get(name), str) and value:
            return value.splitlines()[0][:80]
    return ""
