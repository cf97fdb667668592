"""The published import path; re-exports only."""

from ..inside.runtime.published import AEnvMCPServer, create_server

__all__ = ["AEnvMCPServer", "create_server"]
