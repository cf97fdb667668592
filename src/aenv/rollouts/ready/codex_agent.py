"""Codex as an agent: `codex exec`, with the environment's tools by MCP and none of its own.

It asks its model by the responses API. Its shell would run on this machine and not in the instance; it is switched
off, and what is left of it may only read.
"""

from __future__ import annotations

import json
import shutil

from ...base import settings
from .program_agent import AgentJob, ProgramCall, missing

_ANSWER = "answer.txt"
# Features that act on this machine, or go on for ever.
_OFF = (
    *("shell_tool", "unified_exec", "view_image", "browser_use", "computer_use", "apps", "plugins", "hooks"),
    *("goals", "multi_agent", "image_generation", "unbounded_connection_retries", "shell_snapshot"),
)


class Codex:
    """The program `codex`."""

    name = "codex"
    install = "npm install -g @openai/codex"

    def call(self, job: AgentJob) -> ProgramCall:
        codex = shutil.which("codex", path=settings.variables().get("PATH"))
        if codex is None:
            raise missing(self, "no program 'codex' is on the PATH")
        home = job.folder / ".codex"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(_config(job))
        argv = [
            codex,
            *("exec", "--skip-git-repo-check", "--ephemeral", "--cd", str(job.folder)),
            *("--output-last-message", str(job.folder / _ANSWER), "-"),
        ]
        return ProgramCall(argv, job.prompt, {"CODEX_HOME": str(home)})

    def message(self, job: AgentJob, printed: str) -> str:
        answer = job.folder / _ANSWER
        return answer.read_text(errors="replace") if answer.is_file() else ""


def _config(job: AgentJob) -> str:
    """Its settings, as TOML; texts of JSON are texts of TOML."""
    text = json.dumps
    return "\n".join(
        [
            f"model = {text(job.model)}",
            'model_provider = "captured"',
            'approval_policy = "never"',
            'sandbox_mode = "read-only"',
            'web_search = "disabled"',
            "check_for_update_on_startup = false",
            "[analytics]",
            "enabled = false",
            "[model_providers.captured]",
            'name = "captured"',
            f"base_url = {text(job.model_access.url)}",
            'env_key = "OPENAI_API_KEY"',
            'wire_api = "responses"',
            "request_max_retries = 2",
            "stream_max_retries = 2",
            "[mcp_servers.environment]",
            f"url = {text(job.tool_access.url)}",
            f"http_headers = {{ Authorization = {text(job.tool_access.headers['Authorization'])} }}",
            'default_tools_approval_mode = "approve"',
            "[features]",
            *(f"{name} = false" for name in _OFF),
            "",
        ]
    )
