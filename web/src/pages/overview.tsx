/** How the gateway is doing: what is alive, how long creates take, how full it is, what fails. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { send } from "../api";
import { Chart } from "../chart";
import { isLive, useLive, type Moment } from "../live";
import { bucketQuantile, parse, sum, type Sample } from "../metrics";
import { link } from "../router";
import type { Caller } from "../session";
import { useTitle } from "../ui";
import { bytes, milliseconds } from "../words";

const KEPT = 720;
const isFault = (labels: Record<string, string>): boolean => /^5/.test(labels["status"] ?? "");

export function OverviewPage({ caller }: { caller: Caller }): JSX.Element {
  useTitle("Overview");
  const live = useLive();
  const [samples, set] = useState<Sample[]>([]);
  const alive = [...live.rows.values()].filter(isLive);
  useEffect(() => {
    if (live.state !== "live") return;
    const stop = new AbortController();
    send("GET", "/metrics", { signal: stop.signal })
      .then((reply) => reply.text())
      .then((text) => {
        const found = parse(text);
        set(found);
        const calls = sum(found, "aenv_api_mcp_requests_total");
        const errors = sum(found, "aenv_api_requests_total", isFault) + sum(found, "aenv_api_mcp_requests_total", isFault);
        live.history = [...live.history, [Date.now() / 1000, alive.length, calls, errors] as Moment].slice(-KEPT);
      })
      .catch(() => undefined); // the stream tells when the gateway is lost, and this is asked again with it
    return () => stop.abort();
  }, [live.ticks, live.state]);
  const create = (part: number) => bucketQuantile(samples, "aenv_instance_create_seconds", part);
  const call = (part: number) => ms(bucketQuantile(samples, "aenv_api_mcp_request_duration_ms", part, () => true));
  return (
    <>
      <h1>Overview</h1>
      <div class="figures">
        <Figure title="Instances alive" value={alive.length.toLocaleString("en")}>
          {alive.filter((row) => row.status === "Creating").length} being created, {live.frozen.size} frozen
        </Figure>
        <Figure title="Create, median" value={milliseconds(create(0.5))}>
          p90 {milliseconds(create(0.9))}, p99 {milliseconds(create(0.99))}
        </Figure>
        <Figure title="Call, median" value={milliseconds(call(0.5))}>
          p90 {milliseconds(call(0.9))}, p99 {milliseconds(call(0.99))}
        </Figure>
        {live.load && (
          <Figure title="Queue" value={String(live.load.queue)}>
            requests that wait for room
          </Figure>
        )}
        <Figure title="Errors" value={(live.history.at(-1)?.[3] ?? 0).toLocaleString("en")}>
          answers of 500 and above
        </Figure>
      </div>
      <Lines of={live.history} />
      {live.load && <Capacity totals={live.load.totals} limits={live.load.limits} />}
      <ByEnvironment names={alive.map((row) => row.env)} experiments={alive.map((row) => row.labels["experiment"])} />
      <Stages samples={samples} />
      {caller.role === "admin" && !samples.length && live.state === "connecting" && <div class="loading" />}
    </>
  );
}

const ms = (value: number | null): number | null => (value === null ? null : value / 1000);

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

function Stages({ samples }: { samples: Sample[] }): JSX.Element | null {
  const name = "aenv_instance_create_stage_seconds";
  const stages = [...new Set(samples.filter((one) => one.name === `${name}_count` && one.value > 0).map((one) => one.labels["stage"]!))];
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
          {stages.map((stage) => (
            <tr key={stage}>
              <th scope="row">{stage}</th>
              {[0.5, 0.9, 0.99].map((part) => (
                <td key={part}>{milliseconds(bucketQuantile(samples, name, part, (labels) => labels["stage"] === stage))}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
