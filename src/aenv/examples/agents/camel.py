"""An agent of CAMEL plays a task."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("CAMEL", "camel-ai>=0.2.90"):
    from camel.agents import ChatAgent
    from camel.models import ModelFactory
    from camel.types import ModelPlatformType
    from camel.utils import BaseTokenCounter

    from aenv.integrations.camel import tools


class Words(BaseTokenCounter):
    """Counts words, offline: CAMEL's own counter fetches a file that tiktoken needs."""

    def count_tokens_from_messages(self, messages: list[object]) -> int:
        return sum(len(str(message).split()) for message in messages)

    def encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def decode(self, token_ids: list[int]) -> str:
        return " ".join("…" for _ in token_ids)


async def main() -> None:
    with model() as endpoint:
        client = ModelFactory.create(
            model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
            model_type=endpoint.name,
            url=endpoint.url,
            api_key=endpoint.key,
            token_counter=Words(),
        )
        async with Environment(NAME, environment_variables=TASK) as env:
            agent = ChatAgent(
                "You solve arithmetic problems.", model=client, tools=await tools(env), token_limit=100_000
            )
            response = await agent.astep(PROMPT)
            print("agent: ", response.msgs[0].content)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
