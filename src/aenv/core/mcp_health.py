"""The published import path; re-exports only."""

from ..client.health import (
    check_mcp_health,
    close_health_clients,
    default_health_handler,
    update_active_time,
)

__all__ = ["check_mcp_health", "close_health_clients", "default_health_handler", "update_active_time"]
