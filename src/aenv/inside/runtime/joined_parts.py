"""The parts of a composed environment: instances of other environments, whose tools are offered as its own.

The gateway makes them, when the runtime asks for them before it says that it is ready, and ends them with this
instance. They are reached by the relay that leads to the gateway (AENV_SYSTEM_URL).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ...base import composition, mcp
from ...base.addresses import parse_url
from ...base.composition import NamedPart
from ...base.errors import AEnvError, InvalidRequest, StartFailed
from ...base.http1 import Pool
from ...base.replies import unwrap
from ..author.content import failure
from ..author.part import Part

logger = logging.getLogger("aenv.inside.runtime")


class JoinedParts(Mapping[str, Part]):
    """The parts by name, and their tools under the names that they have in the whole."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._parts: dict[str, Part] = {}
        self._called: dict[str, tuple[Part, str]] = {}
        self.tools: list[dict[str, Any]] = []
        """As MCP describes them."""

    async def join(self, variables: Mapping[str, str], own: Iterable[str]) -> None:
        """Return when all that the variables name are ready. StartFailed names one that is not.

        `own` are the names of the environment's own tools, which they keep.
        """
        named = composition.read(variables.get(composition.VARIABLE, ""))
        if not named:
            return
        relay = _WayToGateway(self._pool, variables.get("AENV_SYSTEM_URL", ""), variables.get("AENV_API_KEY", ""))
        found = await asyncio.gather(*(relay.part(one.name) for one in named))
        self._parts = {part.name: part for part in found}
        described = {
            one: {tool["name"]: tool for tool in part.tools} for one, part in zip(named, found, strict=True)
        }
        try:
            self._offer(own, described)
        except InvalidRequest as error:
            raise StartFailed(error.message) from error

    def _offer(self, own: Iterable[str], described: Mapping[NamedPart, Mapping[str, Any]]) -> None:
        names = composition.tool_names(own, {part: list(tools) for part, tools in described.items()})
        for name, (part, short) in names.items():
            self._called[name] = (self._parts[part.name], short)
            self.tools.append({**described[part][short], "name": name})

    def has_tool(self, name: str) -> bool:
        return name in self._called

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The MCP result of the part's tool; what went wrong on the way there is a result, too."""
        part, short = self._called[name]
        try:
            answer = await part.answer_of(short, arguments)
        except AEnvError as error:
            return failure(f"the part {part.name!r} ({part.environment}) did not answer: {error}").as_result()
        result = {"content": answer["content"], "isError": answer["is_error"]}
        if answer.get("structured") is not None:
            result["structuredContent"] = answer["structured"]
        return result

    def __getitem__(self, name: str) -> Part:
        if name not in self._parts:
            raise KeyError(f"no part {name!r}; this environment has {', '.join(self._parts)}")
        return self._parts[name]

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class _WayToGateway:
    """What leads to the gateway."""

    def __init__(self, pool: Pool, url: str, key: str) -> None:
        self._pool = pool
        self._origin, _ = parse_url(url)
        self._headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]

    async def part(self, name: str) -> Part:
        logger.info("asked for the part %r", name)  # the last line where it never starts
        try:
            made = await self._ask("PUT", f"{composition.PATH}/{name}", {})
        except AEnvError as error:
            raise StartFailed(f"the part {name!r} did not start: {error.message}") from error
        below = f"/instances/{made['id']}"

        async def post(path: str, body: Mapping[str, Any]) -> Any:
            return await self._ask("POST", below + quote(path), body)

        return Part(name, made["environment"], made["tools"], post)

    async def _ask(self, method: str, target: str, body: Mapping[str, Any]) -> Any:
        response = await self._pool.request(self._origin, method, target, self._headers, mcp.dumps(dict(body)))
        return unwrap(response, await response.read(), self._origin)
