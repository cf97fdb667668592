"""The route that says which root file system, and which Python, an environment's instances get here."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from starlette.responses import Response

from ...base.settings import GatewaySettings
from ..hub.environment_routes import any_ref
from ..instances.catalog import Catalog
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.routes import Route, RouteCall

if TYPE_CHECKING:
    from ...isolation.rootfs.resolver import RootfsResolver


class RootfsRoutes:
    def __init__(self, catalog: Catalog, settings: GatewaySettings) -> None:
        self._catalog = catalog
        self._settings = settings

    def routes(self) -> list[Route]:
        what = "which root file system and which Python its instances get here"
        return [
            Route("GET", "/env/{name}/{version}/root", self._root, Role.VIEWER, what, reply=dict[str, str]),
        ]

    async def _root(self, call: RouteCall) -> Response:
        project = await self._catalog.find(any_ref(call), call.caller)
        choice = await self._catalog.python(project)
        # With a note where it is not the one that is asked for: 'aenv push' shows it.
        python = {"python": choice.words, **({"note": choice.problem} if choice.problem else {})}
        if self._settings.engine != "native":
            return envelope.success({"root": "the host's own, all of it", **python})
        return envelope.success({"root": await asyncio.to_thread(self._roots.describe, project), **python})

    @cached_property
    def _roots(self) -> RootfsResolver:
        from ...isolation.rootfs.resolver import RootfsResolver
        from ...isolation.sandbox.build_run import run

        return RootfsResolver(self._settings.home.expanduser(), run=run, pull=self._settings.pull)
