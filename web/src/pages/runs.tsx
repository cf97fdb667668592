/** Runs: files of results and trajectories that `aenv view FILE…` shows. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, events } from "../api";
import { link } from "../router";
import { session } from "../session";
import { Badge, Empty, Problem, useAsked, useTitle } from "../ui";
import { day, milliseconds, percent } from "../words";
import { Chart, type Series } from "../chart";

export interface RunSummary {
  id: string;
  name: string;
  environment: string;
  agent: string;
  model: string | null;
  seed: number;
  began: string | null;
  rollouts: number;
  judged: number;
  passed: number;
  mean_reward: number | null;
  median_seconds: number | null;
  outcomes: Record<string, number>;
  error: string | null;
}

export function RunsPage(): JSX.Element {
  useTitle("Runs");
  if (!session.hasRuns) {
    return (
      <>
        <h1>Runs</h1>
        <Empty title="Results are files of yours">
          <p>
            <code>aenv eval</code> and the runner write them where you run them, and a gateway does not get them. To have them here,
            run <code>aenv view results.jsonl</code> and open the address that it prints.
          </p>
        </Empty>
      </>
    );
  }
  return <RunList />;
}

const AGAIN = 2000; // ms until a lost connection is tried again
const SILENCE = 20_000;

/** How often a file has changed since the page was opened: what is asked for with it is asked again. */
export function useChanges(): number {
  const [count, told] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let isFirst = true; // what the page has asked for by itself is as new
    const follow = () => {
      const again = () => {
        if (!stop.signal.aborted) timer = window.setTimeout(follow, AGAIN);
      };
      const hear = () => {
        if (!isFirst) told((before) => before + 1);
        isFirst = false;
      };
      events("GET", "/runs/live", { signal: stop.signal }, hear, SILENCE).then(again, again);
    };
    follow();
    return () => (clearTimeout(timer), stop.abort());
  }, []);
  return count;
}

/** Runs that can be compared: of one environment, by one agent with one model. */
function series(dated: RunSummary[]): Series[] {
  const name = (run: RunSummary) => [`${run.environment},`, run.agent, run.model].filter(Boolean).join(" ");
  return [...new Set(dated.map(name))].map((label) => ({
    label,
    values: dated.map((run) => (name(run) === label ? run.passed / run.judged : null)),
  }));
}

function RunList(): JSX.Element {
  const changes = useChanges();
  const { value, error } = useAsked((signal) => ask<RunSummary[]>("GET", "/runs", { signal }), [changes]);
  if (error !== undefined) return <Problem error={error} />;
  const runs = value ?? [];
  const dated = runs.filter((run) => run.began && run.judged).sort((a, b) => Date.parse(a.began!) - Date.parse(b.began!));
  return (
    <>
      <h1>Runs</h1>
      {value && !runs.length && <Empty title="There are no runs" />}
      {dated.length > 1 && (
        <section>
          <h2>Pass rate over time</h2>
          <Chart
            label="Pass rate of runs over time"
            x={dated.map((run) => Date.parse(run.began!) / 1000)}
            time
            points
            series={series(dated)}
            say={percent}
          />
        </section>
      )}
      {runs
        .filter((run) => run.error)
        .map((run) => (
          <Problem key={run.id} error={run.error} />
        ))}
      {runs.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Runs">
          <table>
            <thead>
              <tr>
                <th>Run</th>
                <th>Environment</th>
                <th>Agent</th>
                <th>Passed</th>
                <th>Mean reward</th>
                <th>Rollouts</th>
                <th>Median time</th>
                <th>Began</th>
              </tr>
            </thead>
            <tbody>
              {runs.map((run) => (
                <tr key={run.id}>
                  <th scope="row">
                    {run.error ? (
                      <>
                        {run.name} <Badge kind="bad">cannot be read</Badge>
                      </>
                    ) : (
                      <a href={link("runs", run.id)}>{run.name}</a>
                    )}
                  </th>
                  <td>{run.environment}</td>
                  <td>
                    {run.agent} {run.model && <span class="quiet">{run.model}</span>}
                  </td>
                  <td>{run.judged ? `${percent(run.passed / run.judged)} of ${run.judged}` : "–"}</td>
                  <td>{run.mean_reward === null ? "–" : run.mean_reward.toFixed(3)}</td>
                  <td>{run.rollouts}</td>
                  <td>{milliseconds(run.median_seconds)}</td>
                  <td>{run.began ? day(run.began) : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
