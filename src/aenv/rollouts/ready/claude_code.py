"""Claude Code as an agent: `claude -p`, with the environment's tools by MCP and none of its own.

Its own tools (Bash, Edit and others) would act on this machine and not in the instance; they are switched off.
"""

from __future__ import annotations

import json
import shutil

from ...base import settings
from .. import bounded_json
from .program_agent import AgentJob, ProgramCall, ProgramFailed, missing

_SERVER = "environment"
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}


class ClaudeCode:
    """The program `claude`."""

    name = "claude-code"
    install = "npm install -g @anthropic-ai/claude-code"

    def call(self, job: AgentJob) -> ProgramCall:
        claude = shutil.which("claude", path=settings.variables().get("PATH"))
        if claude is None:
            raise missing(self, "no program 'claude' is on the PATH")
        servers = job.folder / "mcp.json"
        server = {"type": "http", "url": job.tool_access.url, "headers": job.tool_access.headers}
        servers.write_text(json.dumps({"mcpServers": {_SERVER: server}}))
        argv = [
            claude,
            *("--print", "--bare", "--output-format", "json", "--model", job.model),
            *("--mcp-config", str(servers), "--strict-mcp-config", "--tools", ""),
            *("--allowedTools", f"mcp__{_SERVER}", "--max-turns", str(job.max_steps + 1)),
            "--no-session-persistence",
        ]
        # The models that it uses aside are the same one: no other is known to be there.
        aside = dict.fromkeys(("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"), job.model)
        return ProgramCall(argv, job.prompt, {**_QUIET, **aside, "CLAUDE_CONFIG_DIR": str(job.folder / ".claude")})

    def message(self, job: AgentJob, printed: str) -> str:
        lines = printed.strip().splitlines()
        try:
            found = bounded_json.loads(lines[-1]) if lines else {}
        except ValueError:
            found = {}
        if not isinstance(found, dict) or found.get("type") != "result":
            raise ProgramFailed(f"agent {self.name!r} printed no result; is 'claude' Claude Code?")
        return str(found.get("result") or "")
