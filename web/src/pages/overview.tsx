/** How the gateway is doing: what is alive, how long creates take, how full it is, what fails. */

import type { ComponentChildren, JSX } from "preact";
import { Chart } from "../chart";
import { isLive, useLive, type Figures, type Moment } from "../live";
import { link } from "../router";
import { useTitle } from "../ui";
import { bytes, milliseconds } from "../words";

export function OverviewPage(): JSX.Element {
  useTitle("Overview");
  const live = useLive();
  const alive = [...live.rows.values()].filter(isLive);
  const figures = live.figures;
  return (
    <>
      <h1>Overview</h1>
      <div class="figures">
        <Figure title="Instances alive" value={alive.length.toLocaleString("en")}>
          {alive.filter((row) => row.status === "Creating").length} being created, {live.frozen.size} frozen
        </Figure>
        <Figure title="Create, median" value={milliseconds(figures?.create?.[0])}>
          p90 {milliseconds(figures?.create?.[1])}, p99 {milliseconds(figures?.create?.[2])}
        </Figure>
        <Figure title="Call, median" value={milliseconds(figures?.call?.[0])}>
          p90 {milliseconds(figures?.call?.[1])}, p99 {milliseconds(figures?.call?.[2])}
        </Figure>
        {live.load && (
          <Figure title="Queue" value={String(live.load.queue)}>
            requests that wait for room
          </Figure>
        )}
        <Figure title="Answers of 500 and above" value={(figures?.errors ?? 0).toLocaleString("en")}>
          of environments whose code raised or refused, and of the gateway
        </Figure>
      </div>
      <Lines of={live.history} />
      {live.load && <Capacity totals={live.load.totals} limits={live.load.limits} />}
      <ByEnvironment names={alive.map((row) => row.env)} experiments={alive.map((row) => row.labels["experiment"])} />
      <Stages of={figures?.stages ?? {}} />
    </>
  );
}

function Figure({ title, value, children }: { title: string; value: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section class="figure">
      <h2>{title}</h2>
      <p class="value">{value}</p>
      <p class="quiet">{children}</p>
    </section>
  );
}

function Lines({ of }: { of: Moment[] }): JSX.Element {
  const x = of.map(([at]) => at);
  const calls = of.map(([at, , sum], index) => {
    const before = of[index - 1];
    return before ? Math.max(0, (sum - before[2]) / Math.max(at - before[0], 0.001)) : 0;
  });
  return (
    <div class="charts">
      <section>
        <h2>Instances</h2>
        <Chart label="Instances alive over time" x={x} time series={[{ label: "alive", values: of.map(([, alive]) => alive) }]} />
      </section>
      <section>
        <h2>Calls per second</h2>
        <Chart
          label="Calls of instances per second"
          x={x}
          time
          series={[{ label: "calls", values: calls }]}
        />
      </section>
    </div>
  );
}

function Capacity(props: { totals: Record<string, number>; limits: Record<string, number | null> }): JSX.Element {
  const rows: [string, number, number | null, (value: number) => string][] = [
    ["Instances", props.totals["instances"] ?? 0, props.limits["instances"] ?? null, (value) => value.toLocaleString("en")],
    ["CPU asked for", props.totals["cpu_milli"] ?? 0, props.limits["cpu_milli"] ?? null, (value) => `${(value / 1000).toLocaleString("en")} cores`],
    ["Memory asked for", props.totals["memory_bytes"] ?? 0, props.limits["memory_bytes"] ?? null, bytes],
  ];
  return (
    <section>
      <h2>Capacity</h2>
      <table class="meters">
        <tbody>
          {rows.map(([name, used, limit, say]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                {say(used)}
                {limit === null ? ", no limit" : ` of ${say(limit)}`}
              </td>
              <td class="wide">{limit !== null && <meter min={0} max={limit} value={used} aria-label={name} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function ByEnvironment({ names, experiments }: { names: string[]; experiments: (string | undefined)[] }): JSX.Element {
  const count = (values: (string | undefined)[]): [string, number][] => {
    const counts = new Map<string, number>();
    for (const value of values) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
  };
  const groups: [string, [string, number][], (name: string) => string][] = [
    ["By environment", count(names), (name) => link("environments", ...name.split("@"))],
    ["By experiment", count(experiments), (name) => `${link("instances")}?q=${encodeURIComponent(`experiment=${name}`)}`],
  ];
  return (
    <div class="charts">
      {groups
        .filter(([, rows]) => rows.length > 0)
        .map(([title, rows, to]) => (
          <section key={title}>
            <h2>{title}</h2>
            <ul class="bars">
              {rows.map(([name, size]) => (
                <li key={name}>
                  <a href={to(name)}>{name}</a>
                  <span>{size.toLocaleString("en")}</span>
                  <meter min={0} max={rows[0]![1]} value={size} aria-label={name} />
                </li>
              ))}
            </ul>
          </section>
        ))}
    </div>
  );
}

function Stages({ of }: { of: Figures["stages"] }): JSX.Element | null {
  const stages = Object.entries(of);
  if (!stages.length) return null;
  return (
    <section>
      <h2>Where the time of a create goes</h2>
      <table>
        <thead>
          <tr>
            <th>Stage</th>
            <th>Median</th>
            <th>p90</th>
            <th>p99</th>
          </tr>
        </thead>
        <tbody>
          {stages.map(([stage, seconds]) => (
            <tr key={stage}>
              <th scope="row">{stage}</th>
              {seconds.map((one, at) => (
                <td key={at}>{milliseconds(one)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
