/** Code to copy: how programs and frameworks use an environment of this gateway. */

export interface Snippet {
  id: string;
  title: string;
  text: string;
  note?: string;
}

export function snippets(ref: string, tool: string, url: string): Snippet[] {
  const connect = `export AENV_SYSTEM_URL=${url}`;
  return [
    {
      id: "sdk",
      title: "Python",
      text: `import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("${ref}", aenv_url="${url}") as env:
        for tool in await env.list_tools():
            print(tool["name"], "-", tool["description"])
        result = await env.call_tool("${tool}", {})
        print(result.text)


asyncio.run(main())
`,
    },
    {
      id: "sync",
      title: "Without async",
      text: `from aenv import SyncEnvironment

with SyncEnvironment("${ref}", aenv_url="${url}") as env:
    print(env.call_tool("${tool}", {}).text)
`,
    },
    {
      id: "cli",
      title: "Command line",
      text: `${connect}
aenv instance create ${ref}
aenv eval ${ref} --agent random --limit 10
aenv view
`,
    },
    {
      id: "mcp",
      title: "MCP client",
      note: "First create an instance; its page shows the id.",
      text: `{
  "mcpServers": {
    "${ref.split("@")[0]}": {
      "type": "streamable-http",
      "url": "${url}/instances/INSTANCE_ID/mcp",
      "headers": {"Authorization": "Bearer TOKEN"}
    }
  }
}
`,
    },
    {
      id: "openai-agents",
      title: "OpenAI Agents",
      text: `import asyncio

from agents import Agent, Runner
from aenv import Environment


async def main() -> None:
    async with Environment("${ref}", aenv_url="${url}") as env:
        agent = Agent(name="worker", tools=await env.list_openai_tools())
        print(await Runner.run(agent, "Solve the task."))
        print(await env.call_reward({}))


asyncio.run(main())
`,
    },
    {
      id: "tools",
      title: "OpenAI, Anthropic",
      text: `import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("${ref}", aenv_url="${url}") as env:
        print(await env.openai_tools())
        print(await env.anthropic_tools())


asyncio.run(main())
`,
    },
    {
      id: "curl",
      title: "HTTP",
      text: `curl -H 'Authorization: Bearer TOKEN' -H 'Content-Type: application/json' \\
     -d '{"envName": "${ref}"}' ${url}/env-instance
curl -H 'Authorization: Bearer TOKEN' -H 'Content-Type: application/json' \\
     -d '{}' ${url}/instances/INSTANCE_ID/tools/${tool}
`,
    },
  ];
}
