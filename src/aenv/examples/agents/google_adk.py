"""An agent of Google's ADK plays a task; its model is asked through LiteLLM."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("Google's ADK", "google-adk>=2.13", "litellm"):
    from google.adk.agents import LlmAgent
    from google.adk.models.lite_llm import LiteLlm
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from aenv.integrations.google_adk import tools


async def main() -> None:
    with model() as endpoint:
        chat = LiteLlm(f"openai/{endpoint.name}", api_base=endpoint.url, api_key=endpoint.key)
        async with Environment(NAME, environment_variables=TASK) as env:
            agent = LlmAgent(name="solver", model=chat, tools=await tools(env))
            runner = InMemoryRunner(agent, app_name="example")
            session = await runner.session_service.create_session(app_name="example", user_id="user")
            asked = types.Content(role="user", parts=[types.Part(text=PROMPT)])
            async for event in runner.run_async(user_id="user", session_id=session.id, new_message=asked):
                if event.is_final_response():
                    print("agent: ", event.content.parts[0].text)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
