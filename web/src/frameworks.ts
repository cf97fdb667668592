/** How the agents of each framework use an environment: the lines of a program in which they differ. */

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
