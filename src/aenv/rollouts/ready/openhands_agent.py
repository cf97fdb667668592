"""OpenHands as an agent: a conversation of its SDK, with the environment's tools by MCP and none of its own."""

from __future__ import annotations

from . import python_package
from .program_agent import AgentJob, ProgramCall


class OpenHands:
    """The package `openhands-sdk`."""

    name = "openhands"
    install = python_package.pip_install("openhands-sdk", since=(3, 12))

    def call(self, job: AgentJob) -> ProgramCall:
        return python_package.driven(self, "openhands.sdk", "openhands_driver.py", job)

    def message(self, job: AgentJob, printed: str) -> str:
        return python_package.told_message(self, printed)
