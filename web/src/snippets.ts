/** Code to copy: how programs and frameworks use an environment of this gateway. */

import { FRAMEWORKS, TRAINERS, type Framework } from "./frameworks";
import { python } from "./schema_words";

/** What the code uses. */
export interface Used {
  ref: string;
  tool: string;
  /** What a call of the tool needs. */
  values: Record<string, unknown>;
  hasReward: boolean;
  /** Whether `aenv eval` has something to play. */
  hasTasks: boolean;
}

export interface Snippet {
  id: string;
  title: string;
  text: string;
  note?: string;
  /** Of many of a kind, a reader wants one: they are folded. */
  kind?: "agents" | "trainers";
}

export function snippets(used: Used, url: string): Snippet[] {
  const { ref, tool } = used;
  const values = python(used.values);
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
        result = await env.call_tool("${tool}", ${values})
        print(result.text)


asyncio.run(main())
`,
    },
    {
      id: "sync",
      title: "Without async",
      text: `from aenv import SyncEnvironment

with SyncEnvironment("${ref}", aenv_url="${url}") as env:
    print(env.call_tool("${tool}", ${values}).text)
`,
    },
    {
      id: "cli",
      title: "Command line",
      text: `${connect}
aenv instance create ${ref} --keep-alive
${used.hasTasks ? `aenv eval ${ref} --agent random --limit 10\n` : ""}aenv view
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
     -d '${quoted(JSON.stringify(used.values))}' ${url}/instances/INSTANCE_ID/tools/${tool}
`,
    },
    ...FRAMEWORKS.map((one) => ofFramework(one, used, url)),
    ...(used.hasReward ? TRAINERS : []).map(({ module, title, text, extra = module }): Snippet => ({
      id: module,
      title,
      kind: "trainers",
      note: `Install it with pip install 'aenvironment[${extra}]', and set AENV_SYSTEM_URL=${url}.`,
      text: text(used),
    })),
  ];
}

function ofFramework({ module, title, imports, lines, blocks }: Framework, used: Used, url: string): Snippet {
  const [kind, opens] = blocks ? ["SyncEnvironment", "with"] : ["Environment", "async with"];
  const reward = used.hasReward ? [blocks ? "print(env.call_reward({}))" : "print(await env.call_reward({}))"] : [];
  const body = [`${opens} ${kind}("${used.ref}", aenv_url="${url}") as env:`, ...[...lines, ...reward].map((line) => `    ${line}`)];
  const program = [
    ...(blocks ? [] : ["import asyncio", ""]),
    ...imports,
    "",
    `from aenv import ${kind}`,
    `from aenv.integrations.${module} import tools`,
    "",
    'WISH = "Solve the task."',
    ...(blocks
      ? ["", ...body]
      : ["", "", "async def main() -> None:", ...body.map((line) => `    ${line}`), "", "", "asyncio.run(main())"]),
  ];
  return {
    id: module,
    title,
    kind: "agents",
    note: `Install it with pip install 'aenvironment[${module.replaceAll("_", "-")}]'.`,
    text: `${program.join("\n")}\n`,
  };
}

/** Text between single quotes of a shell. */
const quoted = (text: string): string => text.replaceAll("'", "'\\''");
