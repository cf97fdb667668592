"""A ReAct module of DSPy, with the tools of an MCP client."""

import agent_trial
import dspy
from mcp import Client


async def through_mcp(url: str) -> agent_trial.Said:
    model = dspy.LM("openai/script", api_base=agent_trial.URL, api_key=agent_trial.KEY, cache=False)
    async with Client(url) as client:
        tools = [dspy.Tool.from_mcp_tool(client, tool) for tool in (await client.list_tools()).tools]
        react = dspy.ReAct("question -> answer", tools=tools, max_iters=10)
        with dspy.context(lm=model):
            said = await react.acall(question=agent_trial.PROMPT)
    return said.answer, repr(said.trajectory)


agent_trial.main(mcp=through_mcp)
