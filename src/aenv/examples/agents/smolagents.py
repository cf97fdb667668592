"""An agent of smolagents plays a task."""

from aenv import SyncEnvironment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("smolagents", "smolagents[openai]>=1.26"):
    from smolagents import LogLevel, OpenAIModel, ToolCallingAgent

    from aenv.integrations.smolagents import tools


def main() -> None:
    with model() as endpoint, SyncEnvironment(NAME, environment_variables=TASK) as env:
        chat = OpenAIModel(endpoint.name, api_base=endpoint.url, api_key=endpoint.key)
        agent = ToolCallingAgent(tools(env), model=chat, verbosity_level=LogLevel.OFF)
        print("agent: ", agent.run(PROMPT))
        print("reward:", env.call_reward({})["reward"])


if __name__ == "__main__":
    main()
