"""Getting an instance and giving it back: created, attached to, or the one runtime of direct mode.

Whatever happens on the way (an error, a cancellation), an instance that may exist is deleted again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..base import refs, wire
from ..base.addresses import Origin, parse_url
from ..base.errors import (
    AEnvError,
    ConnectFailed,
    EnvironmentError,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
)
from ..base.mcp import RpcError
from ..base.supervision import to_the_end
from . import waiting
from .address import DATA_PORT
from .api import Api
from .instance_replies import Instance
from .lease_holder import HeldLease, LeaseHolder
from .nearby import NearInstance, is_open_to_us
from .session import Session

logger = logging.getLogger("aenv.client.launch")

_RELEASE_TIMEOUT = 10.0
_PUBLISHED_POLL = 0.5


@dataclass(frozen=True)
class RetryLimits:
    """How long, and how often, the client tries; times in seconds."""

    timeout: float
    startup_timeout: float
    max_retries: int
    wait: float | None = None
    """For how long a create may queue when there is no room; None takes a refusal as a reason to try again."""

    @property
    def until_ready(self) -> float:
        return self.startup_timeout + (self.wait or 0.0)


@dataclass(frozen=True)
class ReadyInstance:
    """A ready instance and the ways to it."""

    api: Api
    session: Session
    instance: Instance
    headers: tuple[tuple[str, str], ...] = ()
    owned: bool = False

    @property
    def mcp_url(self) -> str:
        """Where MCP clients of others reach it. EnvironmentError where that is a unix socket."""
        if self.session.origin.socket:
            raise EnvironmentError(
                f"instance {self.instance.id!r} is on your own platform, which listens on a unix socket; for"
                " another MCP client run 'aenv serve', and set AENV_SYSTEM_URL to its address"
            )
        return f"{self.session.origin}{self.session.base}/mcp"

    async def release(self) -> None:
        """Delete the instance if it is ours, and let go of the connections. Failures are logged."""
        if self.session.near:
            self.session.near.let_go()
        await _give_back(self.api, self.instance.id if self.owned else None)


async def direct(origin: Origin, limits: RetryLimits, id: str | None, *, probe: bool) -> ReadyInstance:
    """The runtime at `origin`; `probe` asks it which era of MCP it speaks, which also shows that it is there."""
    api = Api(origin, timeout=limits.timeout, max_retries=limits.max_retries)
    session = Session(api.pool, origin, "", [], limits.timeout)
    try:
        if probe:
            await session.open()
    except BaseException as error:
        await api.close()
        if isinstance(error, RpcError | TimeoutError):
            raise EnvironmentError(f"{origin} is not a runtime that can be used: {error}") from error
        raise
    now = wire.timestamp()
    instance = Instance(
        id=id or "test", status=wire.EnvStatus.RUNNING, created_at=now, updated_at=now, ip=origin.host
    )
    return ReadyInstance(api, session, instance)


async def attach(control: Origin, api_key: str | None, limits: RetryLimits, id: str) -> ReadyInstance:
    """An instance that exists already; releasing it leaves it running."""
    api = _api(control, api_key, limits)
    try:
        instance = await api.get_instance(id)
    except BaseException:
        await api.close()
        raise
    return _launched(api, control, api_key, instance, limits, owned=False)


async def create(
    control: Origin, api_key: str | None, limits: RetryLimits, id: str, body: Mapping[str, Any]
) -> ReadyInstance:
    """A new instance called `id`, ready to be used."""
    api = _api(control, api_key, limits)
    holder = LeaseHolder.open_at(control, api_key)
    leases = holder.key if holder else ""
    try:
        async with _in_time(control, limits, body):
            with waiting.noted(control, api_key, [id]):
                instance = await api.create_instance(
                    id, body, timeout=limits.until_ready, patience=limits.wait, leases=leases
                )
        lease = holder.given(leases, id, instance.lease) if holder and instance.lease else None
        return _launched(api, control, api_key, instance, limits, owned=True, lease=lease)
    except (NotFound, MethodNotAllowed) as error:
        if not error.details.get("foreign"):
            await _give_back(api, None)
            raise
    except (ConnectFailed, Unauthenticated):
        await _give_back(api, None)  # no caller is left who could delete it, or it never was
        raise
    except BaseException:
        if holder:
            holder.forgo(id)
        await _give_back(api, id)
        raise
    return await _create_published(api, control, limits, body)


async def create_many(
    control: Origin, api_key: str | None, limits: RetryLimits, count: int, body: Mapping[str, Any]
) -> list[ReadyInstance]:
    """`count` new instances, all ready to be used; none when one of them cannot be made."""
    api = _api(control, api_key, limits)
    name = refs.parse(body["envName"]).name
    ids = [wire.new_instance_id(name) for _ in range(count)]
    request = {**body, "count": count, "ids": ids}
    async with api, _in_time(control, limits, body):
        with waiting.noted(control, api_key, ids):
            made = await api.call(
                "POST", "/env-instances", request, timeout=limits.until_ready, patience=limits.wait
            )
    return [
        # Each its own: releasing one environment closes no connection of another.
        _launched(_api(control, api_key, limits), control, api_key, Instance.of(data), limits, owned=True)
        for data in made
    ]


@asynccontextmanager
async def _in_time(control: Origin, limits: RetryLimits, body: Mapping[str, Any]) -> AsyncIterator[None]:
    """The time that all attempts to create have together."""
    try:
        async with asyncio.timeout(limits.until_ready):
            yield
    except TimeoutError:
        raise EnvironmentError(
            f"{control} did not start {body['envName']!r} within {limits.until_ready:g} s"
        ) from None


def _api(control: Origin, api_key: str | None, limits: RetryLimits) -> Api:
    return Api(control, api_key=api_key, timeout=limits.timeout, max_retries=limits.max_retries)


def _launched(
    api: Api,
    control: Origin,
    api_key: str | None,
    instance: Instance,
    limits: RetryLimits,
    *,
    owned: bool,
    lease: HeldLease | None = None,
) -> ReadyInstance:
    async def renew() -> str | None:
        return (await api.get_instance(instance.id)).token

    url = instance.mcp_url or f"/instances/{instance.id}/mcp"
    origin, target = (control, url) if url.startswith("/") else parse_url(url)
    if origin is not control:
        origin = replace(origin, source=f"the reply of {control}")
    # The path names the instance; published gateways, which need headers for that, have no such path.
    base = target.removesuffix("/mcp")
    near = _near(api, control, api_key, instance, lease)
    session = Session(
        api.pool, origin, base, [], limits.timeout, era_known=True, token=instance.token, renew=renew, near=near
    )
    return ReadyInstance(api, session, instance, _routing_headers(instance, control), owned)


def _near(
    api: Api, control: Origin, api_key: str | None, instance: Instance, lease: HeldLease | None
) -> NearInstance | None:
    """The instance's own socket, where the gateway tells it and this program may open it."""
    if not instance.socket or not is_open_to_us(instance.socket, control):
        if lease:
            lease.let_go()
        return None
    return NearInstance(instance.id, instance.socket, control, api_key, api.pool, lease)


async def _create_published(
    api: Api, control: Origin, limits: RetryLimits, body: Mapping[str, Any]
) -> ReadyInstance:
    """The way of a published gateway, which knows no PUT: create, look until it runs, shake hands on port 8081."""
    id: str | None = None
    try:
        async with asyncio.timeout(limits.startup_timeout):
            instance = Instance.of(await api.call("POST", "/env-instance", body))
            id = instance.id
            while instance.status != wire.EnvStatus.RUNNING or not instance.ip:
                if instance.status == wire.EnvStatus.FAILED:
                    raise EnvironmentError(f"instance {id!r} failed to start")
                await asyncio.sleep(_PUBLISHED_POLL)
                instance = await api.get_instance(id)
            headers = _routing_headers(instance, control)
            data = Origin(control.host, DATA_PORT, source=control.source)
            session = Session(api.pool, data, "", list(headers), limits.timeout)
            await session.open()
    except BaseException as error:
        await _give_back(api, id)
        if isinstance(error, RpcError | TimeoutError):
            raise EnvironmentError(f"{control} did not start {body['envName']!r}: {error}") from error
        raise
    return ReadyInstance(api, session, instance, headers, owned=True)


def _routing_headers(instance: Instance, control: Origin) -> tuple[tuple[str, str], ...]:
    """The headers by which published gateways route a data request."""
    host = instance.ip or control.host
    return (wire.INSTANCE_HEADER, instance.id), (wire.PROXY_URL_HEADER, f"http://{host}:{DATA_PORT}")


async def _give_back(api: Api, id: str | None) -> None:
    try:
        # Shielded: a cancelled rollout must still give its instance back.
        await to_the_end(_delete(api, id))
    except (AEnvError, TimeoutError) as error:
        logger.warning("could not release instance %s: %s", id, error)


async def _delete(api: Api, id: str | None) -> None:
    try:
        if id:
            async with asyncio.timeout(_RELEASE_TIMEOUT):
                await api.delete_instance(id)
    finally:
        await api.close()
