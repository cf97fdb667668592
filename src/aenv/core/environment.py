"""The published import path; re-exports only."""

from ..client.address import published_url as make_mcp_url
from ..client.environment import Environment
from ..client.result import ToolResult
from ..refs import split_env_name_version

__all__ = ["Environment", "ToolResult", "make_mcp_url", "split_env_name_version"]
