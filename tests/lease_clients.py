"""A client that speaks the lines of leases itself, and what a gateway has counted on the data path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aenv.base.addresses import Origin
from aenv.base.http1 import Headers, Pool, PushedBody, Response
from aenv.base.leasing import LeaseLine, LeaseLines
from aenv.client import launch
from tests.gateways import Gateway


class LeaseClient:
    """The held request of one process."""

    def __init__(self, response: Response, body: PushedBody) -> None:
        self.key = response.header(b"aenvcore-leases")
        """By which a create names the request."""
        self._pieces = aiter(response)
        self._body = body
        self._lines = LeaseLines()

    def say(self, what: str, id: str, calls: object = None) -> None:
        self._body.send(LeaseLine(what, id, calls=calls).encode())

    async def hear(self) -> LeaseLine:
        """The next line. StopAsyncIteration when the gateway has ended the request."""
        while True:
            if heard := self._lines.feed(await anext(self._pieces)):
                (line,) = heard
                return line

    async def take(self, id: str) -> LeaseLine:
        self.say("take", id)
        return await self.hear()

    async def drop(self, id: str, calls: object = None) -> None:
        """Return when the gateway has heard it: it answers what is said next."""
        self.say("drop", id, calls)
        self.say("why", id)
        assert (await self.hear()).what == "why"


@asynccontextmanager
async def lease_client(origin: Origin, headers: Headers = ()) -> AsyncIterator[LeaseClient]:
    async with Pool() as pool:
        body = PushedBody()
        response = await pool.request(origin, "POST", "/leases", headers, body)
        assert response.status == 200, await response.read()
        yield LeaseClient(response, body)


def without_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK be on another host than the gateway, or another user, who can open no socket of an instance."""
    monkeypatch.setattr(launch, "is_open_to_us", lambda socket, control: False)


async def relayed(gateway: Gateway, origin: Origin | None = None) -> dict[str, float]:
    """By "METHOD endpoint rpc_method status": how many requests the metrics have on the data path."""
    response = await gateway.pool.request(origin or gateway.control, "GET", "/metrics")
    found = {}
    for line in (await response.read()).decode().splitlines():
        if line.startswith("aenv_api_mcp_requests_total{"):
            labels, _, value = line.rpartition(" ")
            of = dict(part.split("=") for part in labels.partition("{")[2].rstrip("}").split(","))
            name = " ".join(of[key].strip('"') for key in ("method", "endpoint", "rpc_method", "status"))
            found[name] = float(value)
    return found


async def until_relayed(gateway: Gateway, expected: dict[str, float]) -> None:
    """Return when the gateway has counted this: what a client told while it left may be on its way."""
    while (found := await relayed(gateway)) != expected:
        assert sum(found.values()) <= sum(expected.values()), found
