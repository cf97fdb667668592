/** Trajectories: one, step by step, or two side by side with the first step in which they differ. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, path } from "../api";
import { Content, Text, type Part } from "../content";
import { JsonTree } from "../json_tree";
import { link } from "../router";
import { Badge, Facts, Lenient, Problem, useAsked } from "../ui";
import { milliseconds, short } from "../words";
import { classOf, kind, type RolloutRow, type Run } from "./run";
import type { RunSummary } from "./runs";

interface Message {
  role: string;
  content?: string | Part[] | null;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
  content_of_step?: number;
}

export interface StepView {
  index: number;
  at: number;
  seconds: number;
  reward: number | null;
  message: Message | null;
  call: { kind: string; name: string; arguments: Record<string, unknown>; content: Part[]; is_error: boolean; value: unknown; error: string; cut_bytes: number } | null;
}

interface TrajectoryView {
  task: string;
  attempt: number;
  environment: string;
  instance: string;
  variables: Record<string, string>;
  unrecorded: string[];
  steps: StepView[];
}

interface TrajectoriesProps {
  run: string;
  name: string;
  environment: string;
  /** One or two rollouts: the id, or "RUN:ID" for one of another run. */
  ids: string[];
  rows: RolloutRow[];
  /** Another number when a file has changed. */
  changes: number;
}

const SHOWN = 200;

interface Told {
  run: string;
  name: string;
  row: RolloutRow;
}

export function Trajectories(props: TrajectoriesProps): JSX.Element {
  const ids = props.ids.slice(0, 2);
  const found = ids.map((id) => {
    const [run, rollout] = named(id, props);
    return useAsked((signal) => ask<TrajectoryView>("GET", `${path("runs", run, "rollouts")}?id=${encodeURIComponent(rollout)}`, { signal }), [run, rollout, props.changes]);
  });
  const others = useAsked((signal) => toldByOthers(props, signal), [props.run, props.changes]);
  const told = [...props.rows.map((row): Told => ({ run: props.run, name: props.name, row })), ...(others.value ?? [])];
  const [at, go] = useState(0);
  const most = Math.max(0, ...found.map((one) => one.value?.steps.length ?? 0));
  const move = (by: number) => go((now) => Math.max(0, Math.min(most - 1, now + by)));
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      if (event.key === "j") move(1);
      if (event.key === "k") move(-1);
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [most]);
  useEffect(() => {
    for (const element of document.querySelectorAll(`[data-step="${at}"]`)) element.scrollIntoView({ block: "nearest" });
  }, [at]);
  const first = at - (at % SHOWN); // of those that are shown: a long one has tens of thousands of elements
  const [left, right] = found.map((one) => one.value?.steps);
  const differs = left && right ? firstDifference(left, right) : null;
  return (
    <>
      <div class="title stepping">
        <h1>
          <a href={link("runs", props.run)}>{props.name}</a>
        </h1>
        <div class="row">
          <CompareWith run={props.run} first={ids[0]!} second={ids[1]} told={told} task={found[0]?.value?.task} />
          {differs !== null && <span class="quiet">{differs < 0 ? "The same steps" : `First difference at step ${differs + 1}`}</span>}
          {differs !== null && differs >= 0 && (
            <button type="button" onClick={() => go(differs)}>
              Go there
            </button>
          )}
          <button type="button" onClick={() => move(-1)} aria-keyshortcuts="k">
            Previous
          </button>
          <span role="status">{most ? `Step ${at + 1} of ${most}` : ""}</span>
          <button type="button" onClick={() => move(1)} aria-keyshortcuts="j">
            Next
          </button>
        </div>
      </div>
      <div class={ids.length > 1 ? "side-by-side" : ""}>
        {ids.map((id, column) => {
          const { value, error } = found[column]!;
          const [run, rollout] = named(id, props);
          const source = told.find((one) => one.run === run && one.row.id === rollout);
          const row = source?.row;
          return (
            <section key={id} aria-label={`Rollout ${column + 1}`}>
              {error !== undefined && <Problem error={error} />}
              {value && (
                <>
                  <h2>
                    {value.task} <span class="quiet">attempt {value.attempt}</span> {row && <Badge kind={kind(row)}>{classOf(row)}</Badge>}
                  </h2>
                  <Facts
                    of={[
                      ["Reward", typeof row?.reward === "number" ? short(row.reward) : null],
                      ["Time", milliseconds(row?.seconds)],
                      ["Steps", value.steps.length],
                      ["Environment", value.environment],
                      ["Run", run === props.run ? null : <a href={link("runs", run)}>{source?.name}</a>],
                    ]}
                  />
                  {row?.error && <p class="problem">{row.error}</p>}
                  {value.unrecorded.length > 0 && <p class="quiet">Not recorded: {value.unrecorded.join(", ")}</p>}
                  {first > 0 && (
                    <button type="button" onClick={() => go(first - 1)}>
                      Steps before {first + 1}
                    </button>
                  )}
                  <ol class="steps" start={first + 1}>
                    {value.steps.slice(first, first + SHOWN).map((step, place) => {
                      const index = first + place;
                      return (
                        <li key={index} data-step={index} class={index === at ? "current" : ""} onClick={() => go(index)}>
                          <StepCard step={step} number={index + 1} all={value.steps} />
                        </li>
                      );
                    })}
                  </ol>
                  {value.steps.length > first + SHOWN && (
                    <button type="button" onClick={() => go(first + SHOWN)}>
                      Steps after {first + SHOWN} of {value.steps.length}
                    </button>
                  )}
                </>
              )}
            </section>
          );
        })}
      </div>
    </>
  );
}

/** The run and the rollout that an id of `ids` names. Ids of rollouts may have a colon, numbers of runs have none. */
function named(id: string, { run, rows }: TrajectoriesProps): [string, string] {
  const colon = id.indexOf(":");
  return colon < 0 || rows.some((row) => row.id === id) ? [run, id] : [id.slice(0, colon), id.slice(colon + 1)];
}

/** The rollouts of the other runs of this environment, which may be of other agents. */
async function toldByOthers({ run, environment }: TrajectoriesProps, signal: AbortSignal): Promise<Told[]> {
  const runs = await ask<RunSummary[]>("GET", "/runs", { signal });
  const same = runs.filter((one) => one.id !== run && !one.error && one.environment === environment);
  const read = await Promise.all(same.map((one) => ask<Run>("GET", path("runs", one.id), { signal })));
  return read.flatMap((one) => one.rows.map((row) => ({ run: one.id, name: one.name, row })));
}

interface CompareWithProps {
  run: string;
  first: string;
  second: string | undefined;
  told: Told[];
  task: string | undefined;
}

/** Leads to the same rollout beside another one of its task. */
function CompareWith({ run, first, second, told, task }: CompareWithProps): JSX.Element | null {
  const idOf = (one: Told) => (one.run === run ? one.row.id : `${one.run}:${one.row.id}`);
  const choices = told.filter((one) => one.row.task === task && one.row.has_steps && idOf(one) !== first);
  if (!choices.length) return null;
  return (
    <select
      aria-label="Compare with"
      value={choices.some((one) => idOf(one) === second) ? second : ""}
      onChange={(event) => (location.hash = link("runs", run, first, ...(event.currentTarget.value ? [event.currentTarget.value] : [])))}
    >
      <option value="">{second ? "Alone" : "Compare with…"}</option>
      {choices.map((one) => (
        <option key={idOf(one)} value={idOf(one)}>
          {`${one.name}, attempt ${one.row.attempt}, ${classOf(one.row)}`}
        </option>
      ))}
    </select>
  );
}

function StepCard({ step, number, all }: { step: StepView; number: number; all: StepView[] }): JSX.Element {
  const { message, call } = step;
  return (
    <article class="step">
      <header>
        <span class="quiet">{number}</span> <strong>{call ? call.name : message?.role}</strong>{" "}
        {call && <span class="quiet">{call.kind}</span>}{" "}
        {call && (call.error || call.is_error) && <Badge kind="bad">error</Badge>}{" "}
        {step.reward !== null && <Badge kind="good">reward {short(step.reward)}</Badge>}{" "}
        {step.seconds > 0 && <span class="quiet">{milliseconds(step.seconds)}</span>}
      </header>
      {message && (
        <Lenient instead={<JsonTree value={message} open={3} />}>
          <Said message={message} all={all} />
        </Lenient>
      )}
      {call && (
        <>
          <JsonTree name="arguments" value={call.arguments} open={2} />
          {call.error && <p class="problem">{call.error}</p>}
          {call.cut_bytes > 0 && <p class="quiet">The answer of {call.cut_bytes} bytes was too long to be kept.</p>}
          <Content parts={call.content} value={call.kind === "tool" && call.content.length ? undefined : call.value} />
        </>
      )}
    </article>
  );
}

function Said({ message, all }: { message: Message; all: StepView[] }): JSX.Element {
  const of = message.content_of_step;
  return (
    <>
      {of !== undefined && <p class="quiet">the answer of step {all.findIndex((one) => one.index === of) + 1}</p>}
      {typeof message.content === "string" && message.content && <Text text={message.content} />}
      {Array.isArray(message.content) && <Content parts={message.content} />}
      {(message.tool_calls ?? []).map((call) => (
        <p key={call.id}>
          calls <code>{call.function.name}</code> <code class="wrap">{call.function.arguments}</code>
        </p>
      ))}
    </>
  );
}

/** The number of the first step in which both differ; -1 when there is none. Times do not count. */
export function firstDifference(left: StepView[], right: StepView[]): number {
  const text = (step: StepView | undefined) => step && JSON.stringify([step.message, step.call]);
  for (let at = 0; at < Math.max(left.length, right.length); at++) {
    if (text(left[at]) !== text(right[at])) return at;
  }
  return -1;
}
