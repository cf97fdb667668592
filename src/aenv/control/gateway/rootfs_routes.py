"""The route that says which root file system, and which Python, an environment's instances get here."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from ...base.errors import Unsupported
from ...engines.base import Describes, Engine
from ..hub.environment_routes import any_ref
from ..instances.catalog import Catalog
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.routes import Route, RouteCall


class RootfsRoutes:
    def __init__(self, catalog: Catalog, engine: Engine) -> None:
        self._catalog = catalog
        self._engine = engine

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
        if not isinstance(self._engine, Describes):
            raise Unsupported(f"the {self._engine.name} engine cannot describe the rootfs of an instance")
        return envelope.success({"root": await asyncio.to_thread(self._engine.describe_rootfs, project), **python})
