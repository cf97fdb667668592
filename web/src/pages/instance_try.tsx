/** Calling an instance from the page: a form for each tool, and what came back. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
import { Content, type Part } from "../content";
import { JsonTree } from "../json_tree";
import { SchemaForm, type ObjectSchema } from "../schema_form";
import { Badge, Empty, Problem } from "../ui";
import { milliseconds } from "../words";
import { LivePicture } from "./instance_picture";

export interface Tool {
  name: string;
  description?: string;
  inputSchema?: ObjectSchema;
}

interface Answer {
  content: Part[];
  is_error: boolean;
  structured?: unknown;
}

interface Call {
  name: string;
  values: Record<string, unknown>;
  seconds: number;
  answer?: Answer;
  value?: unknown;
  error?: unknown;
}

const REWARD = "reward";

export function TryIt({ id, tools }: { id: string; tools: Tool[] }): JSX.Element {
  const [name, choose] = useState(tools[0]?.name ?? REWARD);
  const [busy, wait] = useState(false);
  const [calls, note] = useState<Call[]>([]);
  const tool = tools.find((one) => one.name === name);
  const run = async (values: Record<string, unknown>) => {
    wait(true);
    const began = performance.now();
    const call: Call = { name, values, seconds: 0 };
    try {
      if (tool) call.answer = await ask<Answer>("POST", path("instances", id, "tools", name), { body: values });
      else call.value = await ask("POST", path("instances", id, "task", "reward"), { body: values });
    } catch (error) {
      call.error = error;
    }
    call.seconds = (performance.now() - began) / 1000;
    note((before) => [call, ...before].slice(0, 100));
    wait(false);
  };
  return (
    <div class="split">
      <div>
        {tools.some((one) => one.name === "screenshot") && <LivePicture id={id} />}
        <label class="field">
          Tool
          <select value={name} onChange={(event) => choose(event.currentTarget.value)}>
            {tools.map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
            <option value={REWARD}>reward of the task</option>
          </select>
        </label>
        {tool?.description && <p class="pre quiet">{tool.description}</p>}
        <SchemaForm key={name} schema={tool?.inputSchema ?? {}} action="Call" busy={busy} run={run} />
      </div>
      <div aria-live="polite">
        {calls.length === 0 && <Empty title="Nothing was called yet" />}
        {calls.map((call, at) => (
          <Called key={calls.length - at} call={call} />
        ))}
      </div>
    </div>
  );
}

function Called({ call }: { call: Call }): JSX.Element {
  const failed = call.error !== undefined || call.answer?.is_error;
  return (
    <article class="called">
      <header>
        <strong>{call.name}</strong> <Badge kind={failed ? "bad" : "good"}>{failed ? "error" : "ok"}</Badge>{" "}
        <span class="quiet">{milliseconds(call.seconds)}</span>
      </header>
      <JsonTree name="arguments" value={call.values} open={0} />
      {call.error !== undefined && <Problem error={call.error} />}
      {call.answer && <Content parts={call.answer.content} value={call.answer.structured} />}
      {call.value !== undefined && <JsonTree value={call.value} />}
    </article>
  );
}
