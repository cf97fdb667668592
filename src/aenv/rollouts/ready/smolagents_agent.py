"""smolagents as an agent: its `ToolCallingAgent`, with the environment's tools by MCP.

Not its `CodeAgent`, which runs what the model writes on this machine.
"""

from __future__ import annotations

from . import python_package
from .program_agent import AgentJob, ProgramCall


class Smolagents:
    """The package `smolagents`."""

    name = "smolagents"
    install = python_package.pip_install("smolagents[mcp,openai]", "mcp<2")

    def call(self, job: AgentJob) -> ProgramCall:
        return python_package.driven(self, "smolagents", "smolagents_driver.py", job)

    def message(self, job: AgentJob, printed: str) -> str:
        return python_package.told_message(self, printed)
