/** All instances of the caller, live. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Chosen } from "../chosen";
import { isLive, useLive, type InstanceRow } from "../live";
import { link, setQuery, type Place } from "../router";
import type { Caller } from "../session";
import { Table, type Column } from "../table";
import { Empty, Sparkline, Status, useTitle } from "../ui";
import { bytes, duration, percent, shortId } from "../words";

export function InstancesPage({ place, caller }: { place: Place; caller: Caller }): JSX.Element {
  useTitle("Instances");
  const live = useLive();
  const words = place.query.get("q") ?? "";
  const status = place.query.get("status") ?? "live";
  const [selected, select] = useState<Set<string>>(new Set());
  const rows = [...live.rows.values()].filter((row) => matches(row, words.toLowerCase(), status));
  const chosen = new Set([...selected].filter((id) => live.rows.has(id)));
  const mayChange = caller.role === "user" || caller.role === "admin";
  return (
    <div class="full">
      <div class="title">
        <h1>
          Instances <span class="quiet count">{rows.length.toLocaleString("en")}</span>
        </h1>
        <div class="row">
          <select
            aria-label="Status"
            value={status}
            onChange={(event) => setQuery({ status: event.currentTarget.value })}
          >
            <option value="live">Alive</option>
            <option value="Running">Running</option>
            <option value="Creating">Creating</option>
            <option value="Failed">Failed</option>
            <option value="Terminated">Terminated</option>
            <option value="all">All that this page has seen</option>
          </select>
          <input
            type="search"
            class="search"
            placeholder="Id, environment, owner, label=value"
            aria-label="Filter instances"
            value={words}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
        </div>
      </div>
      {mayChange && chosen.size > 0 && <Chosen ids={chosen} kind="instance" route="env-instance" done={select} />}
      {rows.length === 0 ? (
        <Empty title={live.state === "connecting" ? "Looking…" : words || status !== "live" ? "No instance matches" : "No instance is running"}>
          {!words && status === "live" && live.state === "live" && (
            <p>
              Start one from the page of an <a href={link("environments")}>environment</a>.
            </p>
          )}
        </Empty>
      ) : (
        <Table
          label="Instances"
          rows={rows}
          columns={columns(caller)}
          id={(row) => row.id}
          selected={chosen}
          select={mayChange ? select : undefined}
        />
      )}
    </div>
  );

  function columns(who: Caller): Column<InstanceRow>[] {
    const now = Date.now();
    const left = (row: InstanceRow) => (row.expires_at ? (Date.parse(row.expires_at) - now) / 1000 : -1);
    const last = (values: number[] | undefined) => values?.at(-1);
    const shown: Column<InstanceRow>[] = [
      { title: "Id", width: "minmax(11rem, 1.5fr)", by: (row) => row.id, cell: (row) => <a href={link("instances", row.id)}>{shortId(row.id)}</a> },
      { title: "Environment", width: "minmax(9.5rem, 1.5fr)", by: (row) => row.env, cell: (row) => row.env, wide: true },
      { title: "Status", width: "6.5rem", by: (row) => row.status, cell: (row) => <Status status={row.status} frozen={live.frozen.has(row.id)} /> },
      { title: "Owner", width: "minmax(5rem, 1fr)", by: (row) => row.owner ?? "", cell: (row) => row.owner ?? "", wide: true },
      { title: "Age", width: "6rem", by: (row) => -Date.parse(row.created_at), cell: (row) => duration((now - Date.parse(row.created_at)) / 1000), wide: true },
      { title: "Ends in", width: "6rem", by: left, cell: (row) => (row.expires_at ? duration(left(row)) : (row.reason ?? "–")), wide: true },
      {
        title: "CPU",
        width: "8.5rem",
        by: (row) => last(live.tracks.get(row.id)?.cpu) ?? -1,
        cell: (row) => <Used values={live.tracks.get(row.id)?.cpu} say={percent} what="CPU" />,
        wide: true,
      },
      {
        title: "Memory",
        width: "9rem",
        by: (row) => last(live.tracks.get(row.id)?.memory) ?? -1,
        cell: (row) => <Used values={live.tracks.get(row.id)?.memory} say={bytes} what="Memory" />,
        wide: true,
      },
    ];
    const hasOwners = who.role === "admin" && rows.some((row) => row.owner);
    return hasOwners ? shown : shown.filter((one) => one.title !== "Owner");
  }
}

function Used(props: { values: number[] | undefined; say: (value: number) => string; what: string }): JSX.Element {
  const value = props.values?.at(-1);
  if (value === undefined) return <span class="quiet">–</span>;
  return (
    <span class="used">
      <Sparkline values={props.values!} label={`${props.what} lately`} /> {props.say(value)}
    </span>
  );
}

function matches(row: InstanceRow, words: string, status: string): boolean {
  if (status === "live" ? !isLive(row) : status !== "all" && row.status !== status) return false;
  if (!words) return true;
  const labels = Object.entries(row.labels).map(([name, value]) => `${name}=${value}`);
  const text = [row.id, row.env, row.owner ?? "", ...labels].join(" ").toLowerCase();
  return words.split(/\s+/).every((word) => text.includes(word));
}
