"""The published import path; re-exports only."""

from ..inside.runtime.published_server import AEnvMCPServer, create_server

__all__ = ["AEnvMCPServer", "create_server"]
