"""mini-swe-agent: its loop of shell commands, each of which is a call of the environment's tool for commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import InvalidRequest
from . import python_package
from .program_agent import AgentJob, ProgramCall


class MiniSweAgent:
    """The package `mini-swe-agent`."""

    name = "mini-swe-agent"
    install = python_package.pip_install("mini-swe-agent")

    def call(self, job: AgentJob) -> ProgramCall:
        shell = shell_tool(job.tools)
        return python_package.driven(self, "minisweagent", "mini_swe_driver.py", job, shell=shell)

    def message(self, job: AgentJob, printed: str) -> str:
        return python_package.told_message(self, printed)


def shell_tool(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tool that runs a command, by its one required parameter. InvalidRequest when there is none."""
    for tool in tools:
        schema = tool.get("inputSchema") or {}
        command = (schema.get("properties") or {}).get("command") or {}
        if schema.get("required") == ["command"] and command.get("type") == "string":
            return str(tool["name"])
    names = ", ".join(str(tool["name"]) for tool in tools) or "no tools"
    raise InvalidRequest(
        "agent 'mini-swe-agent' runs shell commands, and the environment has no tool that takes a 'command': "
        f"{names}"
    )
