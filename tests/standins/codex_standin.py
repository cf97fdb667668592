"""Stands in for `codex exec`: reads its config.toml, asks for responses, and calls the tools of its MCP server."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from mcp_calls import Tools, posted


def main() -> None:
    words = sys.argv[1:]
    assert words[0] == "exec" and words[-1] == "-" and "--skip-git-repo-check" in words
    config = tomllib.loads(Path(os.environ["CODEX_HOME"], "config.toml").read_text())
    assert (config["sandbox_mode"], config["approval_policy"]) == ("read-only", "never")
    assert config["features"]["shell_tool"] is False
    provider = config["model_providers"][config["model_provider"]]
    server = config["mcp_servers"]["environment"]
    tools = Tools(server["url"], server["http_headers"])
    offered = [
        {"type": "function", "name": one["name"], "parameters": one["inputSchema"]} for one in tools.listed()
    ]
    said: list[dict[str, Any]] = [{"role": "user", "content": sys.stdin.read()}]
    key = {"Authorization": f"Bearer {os.environ[provider['env_key']]}"}
    while True:
        body = {"model": config["model"], "input": said, "tools": offered}
        output = posted(f"{provider['base_url']}/responses", body, key)["output"]
        said += output
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            text = "".join(part["text"] for item in output for part in item["content"])
            Path(words[words.index("--output-last-message") + 1]).write_text(text)
            return
        for item in calls:
            answer = tools.call(item["name"], json.loads(item["arguments"]))
            said.append({"type": "function_call_output", "call_id": item["call_id"], "output": answer})


if __name__ == "__main__":
    main()
