"""The service routes of a gateway: environments that run for long, with replicas and a stable URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from .api import Api
from .instance_replies import Service
from .remote import text_lines


class Services:
    """Services as the gateway describes them."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def create(self, body: Mapping[str, Any]) -> Service:
        return Service.of(await self._api.call("POST", "/env-service", body))

    async def get(self, id: str) -> Service:
        return Service.of(await self._api.call("GET", _path(id)))

    async def list(self, which: str = "*") -> list[Service]:
        """The services of "*", "name" or "name@version"."""
        return [Service.of(each) for each in await self._api.call("GET", f"{_path(which)}/list") or ()]

    async def update(self, id: str, changes: Mapping[str, Any]) -> Service:
        return Service.of(await self._api.call("PUT", _path(id), changes))

    async def delete(self, id: str, *, delete_storage: bool = False) -> None:
        await self._api.call("DELETE", _path(id) + ("?deleteStorage=true" if delete_storage else ""))

    def logs(self, id: str, replica: str, *, follow: bool = False) -> AsyncGenerator[str]:
        """The lines that a replica has printed; with `follow` also those that come, until it ends."""
        query = urlencode({"replica": replica, **({"follow": "1"} if follow else {})})
        return text_lines(self._api, f"{_path(id)}/logs?{query}")


def _path(id: str) -> str:
    return f"/env-service/{quote(id, safe='*@')}"
