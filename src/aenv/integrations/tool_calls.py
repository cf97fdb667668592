"""The tools of an environment as every adapter needs them: a name, a schema, and a call from any thread or loop.

An adapter is `tools = ToolsOf(make)`, where `make` turns one `InstanceTool` into the framework's own object:

    made = await tools(env)   # of an Environment
    made = tools(env)         # of a SyncEnvironment

A tool that fails is a `ToolAnswer` with `is_error`, for the model to read. Calls that the platform has lost raise.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload
from urllib.parse import unquote

from aenv import Environment, SyncEnvironment, ToolResult

T = TypeVar("T")
_TYPES = ("string", "boolean", "integer", "number", "array", "object", "null")
_DEFINITIONS = ("$defs", "definitions")
MOST_WRITTEN = 20_000
"""Parts of a schema after which no more references are written out."""


@dataclass(frozen=True)
class Picture:
    """An image that a tool has returned, in base64."""

    data: str
    mime_type: str

    @property
    def url(self) -> str:
        """As a model takes it."""
        return f"data:{self.mime_type};base64,{self.data}"

    @property
    def content(self) -> bytes:
        """The bytes of its file."""
        return base64.b64decode(self.data)


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool said: a text for the model, its pictures, and structured data where the tool has such."""

    text: str
    pictures: tuple[Picture, ...] = ()
    structured: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class InstanceTool:
    """One tool of a running instance."""

    name: str
    """With characters that every model provider allows."""
    description: str
    schema: dict[str, Any]
    """JSON schema of the arguments, an object."""
    env: Environment
    loop: asyncio.AbstractEventLoop
    """Where the environment's connections live."""

    async def call(self, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        """Call the tool from any event loop. A cancelled caller stops the tool."""
        work = self._answer(arguments)
        if asyncio.get_running_loop() is self.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def call_blocking(self, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        """The same for a caller without async, in another thread than the environment's loop."""
        if _running_loop() is self.loop:
            raise RuntimeError(
                f"the framework called {self.name!r} in the thread of the environment's event loop, which would"
                " wait for itself; use SyncEnvironment, or run the agent with asyncio.to_thread"
            )
        return SyncEnvironment.run_on(self.loop, self._answer(arguments))

    async def _answer(self, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
        except ValueError as error:
            return ToolAnswer(f"the arguments of {self.name!r} are not JSON: {error}", is_error=True)
        if not isinstance(given, dict):
            return ToolAnswer(f"the arguments of {self.name!r} are not a JSON object", is_error=True)
        return answer_of(await self.env.call_tool(self.name, given))


def answer_of(result: ToolResult) -> ToolAnswer:
    """Text and pictures apart; parts of other kinds (audio, files) are JSON in the text."""
    texts, pictures = [], []
    for part in result.content:
        if picture := _picture(part):
            pictures.append(picture)
        else:
            texts.append(part["text"] if part.get("type") == "text" else json.dumps(part, ensure_ascii=False))
    return ToolAnswer("\n".join(texts), tuple(pictures), result.structured, result.is_error)


def _picture(part: Mapping[str, Any]) -> Picture | None:
    """The image that a part is. None for one whose data cannot be read: an instance may say anything."""
    match part:
        case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
            try:
                base64.b64decode(data, validate=True)
            except ValueError:
                return None
            return Picture(data, mime_type)
    return None


def resolved(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with each `$ref` replaced by what it names, for frameworks that know no references.

    Inside of itself a type that contains itself is any object, and so is what comes after MOST_WRITTEN parts.
    A property that may be anything is an empty schema and not `true`, which some of them do not know either.
    """
    written = _WrittenOut(schema)
    return dict(written.of({key: value for key, value in schema.items() if key not in _DEFINITIONS}, ("#",)))


def types_of(described: Mapping[str, Any]) -> list[str]:
    """The JSON types that a value may have, by its schema without references."""
    said = described.get("type")
    if isinstance(said, str):
        return [said]
    if isinstance(said, list):
        return [str(one) for one in said]
    members = [*described.get("anyOf", ()), *described.get("oneOf", ())]
    found = [one for member in members for one in types_of(member)]
    return list(dict.fromkeys(found)) or list(_TYPES)


class _WrittenOut:
    """Schemas without references. Its size is bounded: types that name each other twice double with each level."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._left = MOST_WRITTEN

    def of(self, value: Any, inside: tuple[str, ...]) -> Any:
        self._left -= 1
        if isinstance(value, list):
            return [self.of(item, inside) for item in value]
        if not isinstance(value, dict):
            return value
        ref = str(value.get("$ref", ""))
        named = self._named(ref)
        if named is None:
            return {key: self._entry(key, item, inside) for key, item in value.items()}
        if ref in inside or self._left < 0:
            return {"type": "object"}
        own = {key: self._entry(key, item, inside) for key, item in value.items() if key != "$ref"}
        return {**self.of(named, (*inside, ref)), **own}

    def _entry(self, key: str, item: Any, inside: tuple[str, ...]) -> Any:
        if key != "properties" or not isinstance(item, dict):
            return self.of(item, inside)
        # A name is not a word of the schema, whatever it is.
        return {name: self.of({} if one is True else one, inside) for name, one in item.items()}

    def _named(self, ref: str) -> dict[str, Any] | None:
        """What a reference within the schema names, as in "#/$defs/Point"; None for all others."""
        first, *steps = ref.split("/")
        found: Any = self._whole if first == "#" else None
        for step in steps:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return dict(found) if isinstance(found, Mapping) else None


class ToolsOf(Generic[T]):
    """`tools(env)` of an adapter: a list for a SyncEnvironment, and the same to be awaited for an Environment."""

    def __init__(self, make: Callable[[InstanceTool], T]) -> None:
        self._make = make

    @overload
    def __call__(self, env: SyncEnvironment) -> list[T]: ...

    @overload
    def __call__(self, env: Environment) -> Coroutine[Any, Any, list[T]]: ...

    def __call__(self, env: Environment | SyncEnvironment) -> list[T] | Coroutine[Any, Any, list[T]]:
        if isinstance(env, SyncEnvironment):
            return env.run(self._made(env.environment))
        return self._made(env)

    async def _made(self, env: Environment) -> list[T]:
        loop = asyncio.get_running_loop()
        return [
            self._make(InstanceTool(said["name"], said["description"], said["parameters"], env, loop))
            for said in (tool["function"] for tool in await env.openai_tools())
        ]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
