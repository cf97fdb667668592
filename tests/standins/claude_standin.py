"""Stands in for `claude`: asks ANTHROPIC_BASE_URL for messages, and calls the tools of its one MCP server."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from mcp_calls import Tools, posted


def main() -> None:
    options = argparse.ArgumentParser()
    for name in ("--output-format", "--model", "--mcp-config", "--tools", "--allowedTools", "--max-turns"):
        options.add_argument(name, required=True)
    for name in ("--print", "--bare", "--strict-mcp-config", "--no-session-persistence"):
        options.add_argument(name, action="store_true", required=True)
    given = options.parse_args()
    assert (given.output_format, given.tools) == ("json", "")
    with open(given.mcp_config) as file:
        ((name, server),) = json.load(file)["mcpServers"].items()
    assert given.allowedTools == f"mcp__{name}"
    tools, prefix = Tools(server["url"], server["headers"]), f"mcp__{name}__"
    offered = [{"name": prefix + one["name"], "input_schema": one["inputSchema"]} for one in tools.listed()]
    messages: list[dict[str, Any]] = [{"role": "user", "content": sys.stdin.read()}]
    for _ in range(int(given.max_turns)):
        body = {"model": given.model, "max_tokens": 1000, "messages": messages, "tools": offered}
        key = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
        said = posted(f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages", body, key)
        messages.append({"role": "assistant", "content": said["content"]})
        calls = [block for block in said["content"] if block["type"] == "tool_use"]
        if not calls:
            text = "".join(block["text"] for block in said["content"])
            print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": text}))
            return
        messages.append({"role": "user", "content": [_result(tools, one, prefix) for one in calls]})
    sys.exit("too many turns")


def _result(tools: Tools, call: dict[str, Any], prefix: str) -> dict[str, Any]:
    name = call["name"].removeprefix(prefix)
    match name:
        case "fail":
            sys.exit(f"I failed with {os.environ['ANTHROPIC_API_KEY']}")
        case "hang":
            child = subprocess.Popen(["sleep", "1000"])
            print(child.pid, file=sys.stderr, flush=True)
            with open(call["input"]["file"], "w") as file:
                file.write(f"{os.getpid()} {child.pid}")
            child.wait()
        case "variables":
            return {"type": "tool_result", "tool_use_id": call["id"], "content": json.dumps(dict(os.environ))}
    content = tools.call(name, call["input"])
    return {"type": "tool_result", "tool_use_id": call["id"], "content": content}


if __name__ == "__main__":
    main()
