/** One run: pass rate, rewards, outcomes, where the time went, and its rollouts. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
import { Chart } from "../chart";
import { link, setQuery, type Place } from "../router";
import { Table } from "../table";
import { Badge, Empty, Problem, useAsked, useTitle } from "../ui";
import { milliseconds, percent, quantile } from "../words";
import { useChanges, type RunSummary } from "./runs";
import { Trajectories } from "./trajectories";

export interface RolloutRow {
  id: string;
  task: string;
  attempt: number;
  outcome: string | null;
  reward: number | null;
  passed: boolean | null;
  seconds: number | null;
  timings: { start?: number; agent?: number; reward?: number };
  steps: number | null;
  error: string;
  has_steps: boolean;
}

export interface Run extends RunSummary {
  rows: RolloutRow[];
}

export function RunPage({ place }: { place: Place }): JSX.Element {
  const id = place.parts[1]!;
  const changes = useChanges();
  const { value, error } = useAsked((signal) => ask<Run>("GET", path("runs", id), { signal }), [id, changes]);
  useTitle(value?.name ?? "Run");
  const [chosen, choose] = useState<Set<string>>(new Set());
  if (error !== undefined) return <Problem error={error} />;
  if (!value) return <div class="loading" />;
  const shown = place.parts.slice(2);
  if (shown.length) return <Trajectories key={shown.join()} changes={changes} run={id} name={value.name} ids={shown} environment={value.environment} rows={value.rows} />;
  const words = (place.query.get("q") ?? "").toLowerCase();
  const outcome = place.query.get("outcome") ?? "";
  const rows = value.rows.filter(
    (row) => (!words || row.task.toLowerCase().includes(words)) && (!outcome || classOf(row) === outcome),
  );
  const two = [...chosen];
  return (
    <div class="full">
      <h1>
        {value.name}{" "}
        <span class="quiet">
          {value.environment}, {value.agent} {value.model}
        </span>
      </h1>
      {value.error && <Problem error={value.error} />}
      <Summary run={value} chosen={outcome} />
      <div class="row">
        <input type="search" class="search" aria-label="Filter tasks" placeholder="Filter by task" value={place.query.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        {two.length === 2 && (
          <a class="button primary" href={link("runs", id, ...two)}>
            Compare the two
          </a>
        )}
        {two.length !== 2 && rows.length > 1 && <span class="quiet">Select two rollouts to compare them.</span>}
      </div>
      {!rows.length && <Empty title={value.rows.length ? "No rollout is like that" : "There are no rollouts"} />}
      {rows.length > 0 && (
        <Table
          label="Rollouts"
          rows={rows}
          id={(row) => row.id}
          selected={chosen}
          select={choose}
          columns={[
            { title: "Task", width: "minmax(4rem, 5fr)", by: (row) => row.task, cell: (row) => <Task run={id} row={row} /> },
            { title: "Attempt", width: "5rem", by: (row) => row.attempt, cell: (row) => row.attempt, wide: true },
            { title: "Outcome", width: "6.5rem", by: classOf, cell: (row) => <Badge kind={kind(row)}>{classOf(row)}</Badge> },
            { title: "Reward", width: "5rem", by: (row) => row.reward ?? -1, cell: (row) => (row.reward === null ? "–" : row.reward.toFixed(2)) },
            { title: "Calls", width: "5rem", by: (row) => row.steps ?? -1, cell: (row) => row.steps ?? "–", wide: true },
            { title: "Time", width: "6rem", by: (row) => row.seconds ?? -1, cell: (row) => milliseconds(row.seconds), wide: true },
            { title: "Reason", width: "minmax(6rem, 3fr)", cell: (row) => row.error, wide: true },
          ]}
        />
      )}
    </div>
  );
}

/** Names of tasks may be long, and begin alike. */
function Task({ run, row }: { run: string; row: RolloutRow }): JSX.Element {
  if (!row.has_steps) return <span title={row.task}>{row.task}</span>;
  return (
    <a href={link("runs", run, row.id)} title={row.task}>
      {row.task}
    </a>
  );
}

export function classOf(row: RolloutRow): string {
  if (row.outcome === null) return "unfinished";
  return row.outcome === "reward" ? (row.passed ? "pass" : "fail") : row.outcome;
}

export const kind = (row: RolloutRow): string => ({ pass: "good", fail: "bad", unfinished: "busy" })[classOf(row)] ?? "warn";

function Summary({ run, chosen }: { run: Run; chosen: string }): JSX.Element {
  const rewards = run.rows.flatMap((row) => (row.reward === null ? [] : [row.reward]));
  const bins = Array.from({ length: 20 }, (_, at) => rewards.filter((one) => Math.min(19, Math.floor(one * 20)) === at).length);
  const classes = new Map<string, number>();
  for (const row of run.rows) classes.set(classOf(row), (classes.get(classOf(row)) ?? 0) + 1);
  const stages = (["start", "agent", "reward"] as const).map((stage) => {
    const values = run.rows.flatMap((row) => row.timings[stage] ?? []);
    return { stage, median: quantile(values, 0.5), p90: quantile(values, 0.9) };
  });
  return (
    <div class="charts three">
      <section>
        <h2>Passed</h2>
        <p class="value">{run.judged ? percent(run.passed / run.judged) : "–"}</p>
        <p class="quiet">
          {run.passed} of {run.judged} judged; mean reward {run.mean_reward === null ? "–" : run.mean_reward.toFixed(3)}
        </p>
        <div class="tags" role="group" aria-label="Outcomes">
          {[...classes].map(([name, count]) => (
            <button type="button" class="tag" key={name} aria-pressed={chosen === name} onClick={() => setQuery({ outcome: chosen === name ? "" : name })}>
              {name} {count}
            </button>
          ))}
        </div>
      </section>
      <section>
        <h2>Rewards</h2>
        <Chart label={`Distribution of ${rewards.length} rewards`} x={bins.map((_, at) => (at + 0.5) / 20)} series={[{ label: "rollouts", values: bins }]} bars height={130} />
      </section>
      <section>
        <h2>Time</h2>
        <table>
          <thead>
            <tr>
              <th>Stage</th>
              <th>Median</th>
              <th>p90</th>
            </tr>
          </thead>
          <tbody>
            {stages.map((one) => (
              <tr key={one.stage}>
                <th scope="row">{one.stage}</th>
                <td>{milliseconds(one.median)}</td>
                <td>{milliseconds(one.p90)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </div>
  );
}
