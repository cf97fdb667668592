"""Plays one job with a conversation of OpenHands: reads the job from its input, prints the last message."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(job: dict[str, Any]) -> str:
    from openhands.sdk import LLM, Agent, Conversation
    from openhands.sdk.conversation.response_utils import get_agent_final_response

    # Its client knows by the prefix which API the server speaks.
    llm = LLM(model=f"openai/{job['model']}", base_url=job["model_url"], api_key=job["model_key"])
    server = {"url": job["tools_url"], "headers": job["tools_headers"], "transport": "http"}
    agent = Agent(llm=llm, tools=[], mcp_config={"environment": server})
    conversation = Conversation(
        agent=agent, workspace=job["folder"], max_iteration_per_run=job["max_steps"] + 1, visualizer=None
    )
    try:
        conversation.send_message(job["prompt"])
        conversation.run()
        return str(get_agent_final_response(conversation.state.events))
    finally:
        conversation.close()


if __name__ == "__main__":
    print(json.dumps({"message": main(json.load(sys.stdin))}))
