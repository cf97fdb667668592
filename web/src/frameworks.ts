/** How the agents of each framework use an environment: the lines of a program in which they differ; and trainers. */

import { python } from "./schema_words";

export interface Framework {
  /** The module of `aenv.integrations`, and the extra that installs what it needs. */
  module: string;
  title: string;
  imports: string[];
  /** With the tools in `tools(env)` and the wish in WISH. */
  lines: string[];
  /** Whether its agents block, so that they need a SyncEnvironment. */
  blocks?: boolean;
}

const MODEL = "gpt-4o-mini";

export const FRAMEWORKS: Framework[] = [
  {
    module: "openai_agents",
    title: "OpenAI Agents SDK",
    imports: ["from agents import Agent, Runner"],
    lines: [
      `agent = Agent(name="solver", model="${MODEL}", tools=await tools(env))`,
      "result = await Runner.run(agent, WISH)",
      "print(result.final_output)",
    ],
  },
  {
    module: "langchain",
    title: "LangChain, LangGraph",
    imports: ["from langchain.agents import create_agent", "from langchain_openai import ChatOpenAI"],
    lines: [
      `agent = create_agent(ChatOpenAI(model="${MODEL}"), await tools(env))`,
      'state = await agent.ainvoke({"messages": [("user", WISH)]})',
      'print(state["messages"][-1].content)',
    ],
  },
  {
    module: "pydantic_ai",
    title: "Pydantic AI",
    imports: ["from pydantic_ai import Agent", "from pydantic_ai.models.openai import OpenAIChatModel"],
    lines: [`agent = Agent(OpenAIChatModel("${MODEL}"), tools=await tools(env))`, "result = await agent.run(WISH)", "print(result.output)"],
  },
  {
    module: "smolagents",
    title: "smolagents",
    imports: ["from smolagents import OpenAIModel, ToolCallingAgent"],
    lines: [`agent = ToolCallingAgent(tools(env), model=OpenAIModel("${MODEL}"))`, "print(agent.run(WISH))"],
    blocks: true,
  },
  {
    module: "camel",
    title: "CAMEL",
    imports: [
      "from camel.agents import ChatAgent",
      "from camel.models import ModelFactory",
      "from camel.types import ModelPlatformType",
    ],
    lines: [
      `model = ModelFactory.create(model_platform=ModelPlatformType.OPENAI, model_type="${MODEL}")`,
      'agent = ChatAgent("You solve tasks.", model=model, tools=await tools(env))',
      "response = await agent.astep(WISH)",
      "print(response.msgs[0].content)",
    ],
  },
  {
    module: "google_adk",
    title: "Google ADK",
    imports: [
      "from google.adk.agents import LlmAgent",
      "from google.adk.models.lite_llm import LiteLlm",
      "from google.adk.runners import InMemoryRunner",
      "from google.genai import types",
    ],
    lines: [
      `agent = LlmAgent(name="solver", model=LiteLlm("openai/${MODEL}"), tools=await tools(env))`,
      'runner = InMemoryRunner(agent, app_name="solver")',
      'session = await runner.session_service.create_session(app_name="solver", user_id="user")',
      'asked = types.Content(role="user", parts=[types.Part(text=WISH)])',
      'async for event in runner.run_async(user_id="user", session_id=session.id, new_message=asked):',
      "    if event.is_final_response():",
      "        print(event.content.parts[0].text)",
    ],
  },
  {
    module: "inspect_ai",
    title: "Inspect",
    imports: ["from inspect_ai.model import ChatMessageUser, get_model"],
    lines: [
      `model = get_model("openai/${MODEL}")`,
      "_, output = await model.generate_loop([ChatMessageUser(content=WISH)], await tools(env))",
      "print(output.completion)",
    ],
  },
  {
    module: "autogen",
    title: "AutoGen",
    imports: [
      "from autogen_agentchat.agents import AssistantAgent",
      "from autogen_ext.models.openai import OpenAIChatCompletionClient",
    ],
    lines: [
      `client = OpenAIChatCompletionClient(model="${MODEL}")`,
      'agent = AssistantAgent("solver", client, tools=await tools(env), max_tool_iterations=20)',
      "result = await agent.run(task=WISH)",
      "print(result.messages[-1].content)",
    ],
  },
];

export interface Trainer {
  /** The module of `aenv.integrations`. */
  module: string;
  title: string;
  /** The extra that installs what it needs, where that is not called like the module. */
  extra?: string;
  text: (used: { ref: string; tool: string; values: Record<string, unknown> }) => string;
}

const CODEC = "from my_codec import MyCodec  # spaces of actions and observations: docs/integrations.md";

/** They play whole episodes, and get the reward. */
export const TRAINERS: Trainer[] = [
  {
    module: "gymnasium",
    title: "Gymnasium",
    text: ({ ref, tool, values }) => `import gymnasium

from aenv.integrations.gymnasium import register

env = gymnasium.make(register("${ref}"))
seen, info = env.reset(seed=1)
action = ${python(JSON.stringify({ tool, arguments: values }))}
seen, reward, terminated, truncated, info = env.step(action)
`,
  },
  {
    module: "stable_baselines3",
    extra: "stable-baselines3",
    title: "Stable-Baselines3",
    text: ({ ref }) => `from stable_baselines3 import PPO

from aenv.integrations.stable_baselines3 import AenvVecEnv
${CODEC}

envs = AenvVecEnv("${ref}", 8, codec=MyCodec())
PPO("MlpPolicy", envs).learn(10_000)
`,
  },
  {
    module: "trl",
    title: "TRL",
    text: ({ ref }) => `from datasets import Dataset
from trl import GRPOTrainer

from aenv.integrations.trl import environment_class, rows

factory = environment_class("${ref}")
data = Dataset.from_list(rows("${ref}"))
GRPOTrainer("Qwen/Qwen3-0.6B", train_dataset=data, environment_factory=factory).train()
`,
  },
  {
    module: "ray",
    title: "Ray",
    text: ({ ref, tool, values }) => `from aenv.integrations.ray import play_tasks


async def agent(episode):  # episode.briefing.instruction says what to do
    await episode.call("${tool}", ${python(values)})


print(play_tasks("${ref}", agent, actors=4))
`,
  },
  {
    module: "verl",
    title: "verl",
    text: ({ ref }) => `# a file that agent_loop_config_path names
- name: aenv_agent
  _target_: aenv.integrations.verl.AenvAgentLoop
  env_name: ${ref}
`,
  },
  {
    module: "skyrl",
    title: "SkyRL",
    text: ({ ref }) => `import skyrl_gym

skyrl_gym.register(id="aenv", entry_point="aenv.integrations.skyrl:AenvTextEnv")
env = skyrl_gym.make("aenv", env_config=None, extras={"env_name": "${ref}", "task": "TASK"})
`,
  },
  {
    module: "areal",
    title: "AReaL",
    text: ({ ref }) => `workflow = "aenv.integrations.areal.AenvAgent"
workflow_kwargs = {"env_name": "${ref}"}
`,
  },
];
