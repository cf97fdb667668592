"""The hub: its parts, put together, and all its routes."""

from __future__ import annotations

from pathlib import Path

from ...artifacts.data.builtin import Folders
from ...base.refs import Ref
from ..serving.accounts import Caller
from ..serving.routes import Route
from ..stores.base import Store
from .blobs import Blobs
from .bundle_routes import BundleRoutes
from .environment_records import EnvironmentRecord
from .environment_routes import EnvironmentRoutes
from .environments import Environments
from .publishing import Publishing
from .signing import Signer
from .uploads import Uploads


class HubRoutes:
    """The registry. `routes()` is what it answers; `find` is for the gateway, which starts what it finds."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        home: Path,
        local: Folders | None = None,
        built_in: Folders | None = None,
    ) -> None:
        self._uploads = Uploads(store, blobs, home / "blobs" / "incoming")
        self._environments = Environments(store, self._uploads, local or {}, built_in or {})
        publishing = Publishing(store, self._uploads, self._environments)
        self._tables = (
            EnvironmentRoutes(self._environments, publishing, store),
            BundleRoutes(self._environments, self._uploads, blobs, Signer(store), home / "data"),
        )

    async def find(self, ref: Ref, caller: Caller) -> EnvironmentRecord:
        """The version that is meant. NotFound names what is near, and hides what the caller may not see."""
        return await self._environments.find(ref, caller)

    async def collect(self) -> None:
        """Remove what is not needed any more; a few times a day, on one of the hubs that share a store."""
        await self._uploads.collect()

    def routes(self) -> list[Route]:
        return [route for table in self._tables for route in table.routes()]
