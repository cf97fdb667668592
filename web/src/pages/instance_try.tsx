/** Calling an instance from the page: a form for each tool, and what came back. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
import { Content, type Part } from "../content";
import { JsonTree } from "../json_tree";
import { SchemaForm } from "../schema_form";
import { offered, type Offer, type Schema } from "../schema_words";
import { Badge, Empty, Lenient, Problem, useAsked } from "../ui";
import { milliseconds } from "../words";
import type { Instance } from "./instance";
import { LivePicture } from "./instance_picture";

export interface Tool {
  name: string;
  description?: string;
  inputSchema?: Schema;
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

/** With spaces, so that no tool has this name. */
const REWARD = "reward of the task";

interface Reward {
  title: string;
  name?: string;
  schema?: Schema;
}

/** The environment's rewards, of which the first judges the task. */
function useRewards(environment: Instance["env"]): Reward[] {
  const { value } = useAsked<{ rewards?: Offer[] }>(
    (signal) => ask("GET", path("env", environment!.name, environment!.version), { signal }),
    [environment?.name, environment?.version],
  );
  const [first, ...others] = value?.rewards ?? [];
  const named = others.map((one) => ({ title: `reward ${one.name}`, name: one.name, schema: offeredOrNone(one) }));
  return [{ title: REWARD, schema: offeredOrNone(first) }, ...named];
}

function offeredOrNone(offer: Offer | undefined): Schema | undefined {
  try {
    return offer && offered(offer);
  } catch {
    return undefined; // it is not described as it should be, and is asked for as JSON
  }
}

export function TryIt({ id, environment, tools }: { id: string; environment: Instance["env"]; tools: Tool[] }): JSX.Element {
  const rewards = useRewards(environment);
  const [name, choose] = useState(tools[0]?.name ?? REWARD);
  const [busy, wait] = useState(false);
  const [calls, note] = useState<Call[]>([]);
  const tool = tools.find((one) => one.name === name);
  const reward = rewards.find((one) => one.title === name);
  const run = async (values: Record<string, unknown>) => {
    wait(true);
    const began = performance.now();
    const call: Call = { name, values, seconds: 0 };
    try {
      if (tool) call.answer = await ask<Answer>("POST", path("instances", id, "tools", name), { body: values });
      else call.value = await ask("POST", path("instances", id, "task", "reward") + (reward?.name ? `?name=${encodeURIComponent(reward.name)}` : ""), { body: values });
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
            {rewards.map((one) => (
              <option key={one.title}>{one.title}</option>
            ))}
          </select>
        </label>
        {tool?.description && <p class="pre quiet">{tool.description}</p>}
        <Lenient key={`${name} ${!!reward?.schema}`} instead={<SchemaForm schema={{ properties: {} }} action="Call" busy={busy} run={run} />}>
          <SchemaForm schema={tool?.inputSchema ?? reward?.schema ?? {}} action="Call" busy={busy} run={run} />
        </Lenient>
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
      {call.answer && (
        <Lenient instead={<JsonTree value={call.answer} open={2} />}>
          <Content parts={call.answer.content} value={call.answer.structured} />
        </Lenient>
      )}
      {call.value !== undefined && <JsonTree value={call.value} />}
    </article>
  );
}
