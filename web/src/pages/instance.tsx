/** One instance: call its tools, run commands, read its logs and files, see what happened, and renew it. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, path, send } from "../api";
import { JsonTree } from "../json_tree";
import { useLive } from "../live";
import { link, setQuery, type Place } from "../router";
import type { Caller } from "../session";
import { Badge, Confirm, Facts, Problem, Sparkline, Status, Tabs, useAsked, useTitle } from "../ui";
import { bytes, day, duration, percent, shortId } from "../words";
import { Calls } from "./instance_calls";
import { Commands } from "./instance_commands";
import { Files } from "./instance_files";
import { Logs } from "./instance_logs";
import { TerminalTab } from "./instance_terminal";
import { TryIt, type Tool } from "./instance_try";

export interface Instance {
  id: string;
  env: { name: string; version: string } | null;
  status: string;
  created_at: string;
  ttl: string;
  owner: string | null;
  labels: Record<string, string> | null;
  expires_at: string | null;
  reason: string | null;
  engine: string | null;
  isolation: string[] | null;
  not_enforced: string[] | null;
  root: string | null;
  mcp_url: string | null;
  tools: Tool[] | null;
}

export function InstancePage({ place, caller }: { place: Place; caller: Caller }): JSX.Element {
  const id = place.parts[1]!;
  useTitle(shortId(id));
  const live = useLive();
  const row = live.rows.get(id);
  const { value, error } = useAsked((signal) => ask<Instance>("GET", path("env-instance", id), { signal }), [
    id,
    row?.status,
    row?.expires_at,
  ]);
  if (error !== undefined) return <Problem error={error} />;
  if (!value) return <div class="loading" />;
  const status = row?.status ?? value.status;
  const isRunning = status === "Running";
  const acts = caller.role === "user" || caller.role === "admin";
  const track = live.tracks.get(id);
  const all = [
    { id: "try", title: "Try it", needs: acts && isRunning, show: () => <TryIt id={id} environment={value.env} tools={value.tools ?? []} /> },
    { id: "commands", title: "Commands", needs: acts && isRunning, show: () => <Commands id={id} /> },
    { id: "terminal", title: "Terminal", needs: acts && isRunning, show: () => <TerminalTab id={id} /> },
    { id: "files", title: "Files", needs: isRunning, show: () => <Files id={id} /> },
    { id: "logs", title: "Logs", needs: isRunning, show: () => <Logs id={id} /> },
    { id: "history", title: "Calls", needs: isRunning, show: () => <Calls id={id} /> },
    { id: "events", title: "Events", needs: true, show: () => <Events id={id} version={`${status} ${value.expires_at}`} /> },
    { id: "facts", title: "Details", needs: true, show: () => <JsonTree value={shown(value)} open={2} /> },
  ];
  const tabs = all.filter((tab) => tab.needs);
  return (
    <>
      <div class="title">
        <div>
          <h1>
            {shortId(id)} <Status status={status} frozen={live.frozen.has(id)} />
          </h1>
          {value.reason && <p class={status === "Failed" ? "problem" : "quiet"}>{value.reason}</p>}
        </div>
        {acts && isRunning && <Lifetime id={id} expires={value.expires_at} />}
      </div>
      <Facts
        of={[
          ["Environment", value.env && <a href={link("environments", value.env.name, value.env.version)}>{`${value.env.name}@${value.env.version}`}</a>],
          ["Owner", value.owner],
          ["Created", day(value.created_at)],
          ["Engine", value.engine],
          ["CPU", track?.cpu.length ? <><Sparkline values={track.cpu} label="CPU lately" /> {percent(track.cpu.at(-1)!)}</> : null],
          ["Memory", track?.memory.length ? <><Sparkline values={track.memory} label="Memory lately" /> {bytes(track.memory.at(-1))}</> : null],
          ["Processes", track?.processes ?? null],
          ["Health", isRunning && acts && !live.frozen.has(id) ? <Health id={id} /> : null],
          ["Isolated by", <Isolation by={value.isolation ?? []} />],
        ]}
      />
      <Tabs tabs={tabs} at={place.query.get("tab") ?? tabs[0]!.id} go={(tab) => setQuery({ tab })} />
    </>
  );
}

function Isolation({ by }: { by: string[] }): JSX.Element {
  if (!by.length) return <>nothing</>;
  return (
    <details>
      <summary>{by.length === 1 ? by[0] : `${by.length} measures`}</summary>
      {by.length > 1 && by.join(", ")}
    </details>
  );
}

interface Said {
  status?: string;
  message?: string;
}

/** What the environment says of itself, asked once: each question counts as a call. */
function Health({ id }: { id: string }): JSX.Element {
  const { value, error, reload } = useAsked(
    async (signal) => {
      const reply = (await (await send("GET", path("instances", id, "health"), { signal })).json()) as Said & { data?: Said };
      return reply.data ?? reply;
    },
    [id],
  );
  const isWell = error === undefined && ["success", "healthy", "ok"].includes(value?.status ?? "");
  const said = error instanceof Error ? error.message : (value?.message ?? "");
  return (
    <>
      <Badge kind={value || error !== undefined ? (isWell ? "good" : "bad") : ""}>{error !== undefined ? "error" : (value?.status ?? "asking")}</Badge>{" "}
      {!isWell && <span class="quiet">{said}</span>}{" "}
      <button type="button" class="plain" onClick={reload}>
        Ask again
      </button>
    </>
  );
}

/** Without what opens the instance: pages are photographed. */
function shown(value: Instance): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !["token", "tools", "socket"].includes(name)));
}

function Lifetime({ id, expires }: { id: string; expires: string | null }): JSX.Element {
  const [now, tick] = useState(Date.now);
  const [ttl, choose] = useState("30m");
  const [ends, ask_] = useState(false);
  const [error, fail] = useState<unknown>(undefined);
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const left = expires ? (Date.parse(expires) - now) / 1000 : null;
  const renew = () => ask("PUT", path("env-instance", id, "ttl"), { body: { ttl } }).then(() => fail(undefined), fail);
  return (
    <div class="lifetime">
      {left !== null && (
        <span class={left < 60 ? "soon" : ""} role="timer">
          ends in {duration(left)}
        </span>
      )}
      <select aria-label="New time to live" value={ttl} onChange={(event) => choose(event.currentTarget.value)}>
        {["5m", "30m", "2h", "12h"].map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
      <button type="button" onClick={renew}>
        Renew
      </button>
      <button type="button" class="danger" onClick={() => ask_(true)}>
        End
      </button>
      {error !== undefined && <Problem error={error} />}
      {ends && (
        <Confirm
          question="End this instance? Its files are lost."
          action="End"
          run={() => void ask("DELETE", path("env-instance", id)).catch(fail)}
          close={() => ask_(false)}
        />
      )}
    </div>
  );
}

interface Happened {
  at: string;
  what: string;
  detail: string | null;
}

function Events({ id, version }: { id: string; version: string }): JSX.Element {
  const { value, error } = useAsked((signal) => ask<Happened[]>("GET", path("env-instance", id, "events"), { signal }), [id, version]);
  if (error !== undefined) return <Problem error={error} />;
  return (
    <ol class="timeline">
      {(value ?? []).map((event, at) => (
        <li key={at}>
          <time dateTime={event.at}>{event.at.slice(11, 23)}</time> <strong>{event.what}</strong> {event.detail}
        </li>
      ))}
    </ol>
  );
}
