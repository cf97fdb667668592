"""The published server class, for code that starts a runtime from Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType

from ...base import settings
from ..author.inject import Context
from ..author.registry import Registry, active_registry
from .loader import load
from .serving import bind, offered, served


class AEnvMCPServer:
    """Loads tools and serves them until interrupted."""

    def __init__(self, name: str = "aenv-server", version: str = "0.1.0") -> None:
        self.name = name
        self.version = version
        self._registry: Registry = active_registry()
        self._modules: list[ModuleType] = []

    def load_tools_from_directory(self, directory: Path) -> int:
        """Load a folder's environment; the number of its tools."""
        return self._load(Path(directory))

    def load_tools_from_module(self, module_path: str) -> int:
        """Load one file; the number of its tools."""
        return self._load(Path(module_path))

    def _load(self, path: Path) -> int:
        self._registry, self._modules = load(path)
        return len(self._registry.tools)

    def run(self, host: str, port: int) -> None:
        """Serve until interrupted."""
        asyncio.run(self._serve(host, port))

    async def _serve(self, host: str, port: int) -> None:
        context = Context(variables=settings.variables())
        async with (
            offered(self._registry, self._modules, context, timeout=None, name=self.name) as offer,
            served(offer, bind(host, port, "port=")),
        ):
            await asyncio.get_running_loop().create_future()


def create_server(name: str = "aenv-server", version: str = "0.1.0") -> AEnvMCPServer:
    return AEnvMCPServer(name, version)
