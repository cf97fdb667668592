"""The published import path; re-exports only."""

from ..base.refs import split_env_name_version
from ..client.address import published_url as make_mcp_url
from ..client.environment import Environment
from ..client.result import ToolResult

__all__ = ["Environment", "ToolResult", "make_mcp_url", "split_env_name_version"]
