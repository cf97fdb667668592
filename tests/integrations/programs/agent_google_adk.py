"""Agents of Google's ADK, whose model is asked through LiteLLM."""

from typing import Any

import agent_trial
from google.adk.agents import LlmAgent, RunConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.genai import types

from aenv import Environment
from aenv.integrations.google_adk import tools


async def talk(with_tools: list[Any]) -> agent_trial.Said:
    model = LiteLlm("openai/script", api_base=agent_trial.URL, api_key=agent_trial.KEY)
    runner = InMemoryRunner(LlmAgent(name="a", model=model, tools=with_tools), app_name="trial")
    session = await runner.session_service.create_session(app_name="trial", user_id="u")
    asked = types.Content(role="user", parts=[types.Part(text=agent_trial.PROMPT)])
    final, transcript = "", []
    async for event in runner.run_async(
        user_id="u", session_id=session.id, new_message=asked, run_config=RunConfig(max_llm_calls=100)
    ):
        transcript.append(event.model_dump_json())
        if event.is_final_response() and event.content:
            final = event.content.parts[0].text
    return final, "".join(transcript)


async def through_tools(env: Environment) -> agent_trial.Said:
    return await talk(await tools(env))


async def through_mcp(url: str) -> agent_trial.Said:
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=url))
    try:
        return await talk([toolset])
    finally:
        await toolset.close()


agent_trial.main(tools=through_tools, mcp=through_mcp)
