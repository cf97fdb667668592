"""Plays one job with smolagents' `ToolCallingAgent`: reads the job from its input, prints the last message."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(job: dict[str, Any]) -> str:
    from smolagents import LogLevel, MCPClient, OpenAIServerModel, ToolCallingAgent

    model = OpenAIServerModel(model_id=job["model"], api_base=job["model_url"], api_key=job["model_key"])
    server = {"url": job["tools_url"], "headers": job["tools_headers"], "transport": "streamable-http"}
    with MCPClient(server, structured_output=False) as tools:
        agent = ToolCallingAgent(
            tools=tools, model=model, max_steps=job["max_steps"], verbosity_level=LogLevel.OFF
        )
        return str(agent.run(job["prompt"]))


if __name__ == "__main__":
    print(json.dumps({"message": main(json.load(sys.stdin))}))
