/** Services: environments that run on, with their replicas. All of them in a table, or one. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
import { Chosen } from "../chosen";
import { useLive } from "../live";
import { link, setQuery, type Place } from "../router";
import type { Caller } from "../session";
import { Table, type Column } from "../table";
import { Code, Confirm, Empty, Facts, isMissing, Problem, Status, useAsked, useTitle } from "../ui";
import { day, shortId } from "../words";

interface Service {
  id: string;
  env: { name: string; version: string } | null;
  status: string;
  created_at: string;
  replicas: number;
  available_replicas: number;
  service_url: string | null;
  owner: string | null;
  instances: string[];
  mount_path: string | null;
  pvc_name: string | null;
  reason: string | null;
}

const COLUMNS: Column<Service>[] = [
  { title: "Service", width: "minmax(8rem, 2fr)", by: (one) => one.id, cell: (one) => <a href={link("services", one.id)}>{one.id}</a> },
  { title: "Environment", width: "minmax(8rem, 1.5fr)", by: environmentOf, cell: environmentOf, wide: true },
  { title: "Status", width: "6.5rem", by: (one) => one.status, cell: (one) => <Status status={one.status} /> },
  { title: "Replicas", width: "5.5rem", by: (one) => one.available_replicas, cell: (one) => `${one.available_replicas} of ${one.replicas}` },
  { title: "Owner", width: "minmax(4rem, 1fr)", by: (one) => one.owner ?? "", cell: (one) => one.owner ?? "–", wide: true },
  { title: "Since", width: "9.8rem", by: (one) => one.created_at, cell: (one) => day(one.created_at), wide: true },
  { title: "Address, or what is wrong", width: "minmax(9rem, 2.5fr)", cell: (one) => one.reason ?? <code>{one.service_url}</code>, wide: true },
];

export function ServicesPage({ place, caller }: { place: Place; caller: Caller }): JSX.Element {
  return place.parts[1] ? <ServicePage id={place.parts[1]} caller={caller} /> : <ServiceList place={place} caller={caller} />;
}

const mayChange = (caller: Caller): boolean => caller.role === "user" || caller.role === "admin";

function ServiceList({ place, caller }: { place: Place; caller: Caller }): JSX.Element {
  useTitle("Services");
  const live = useLive();
  const [selected, select] = useState<Set<string>>(new Set());
  // Asked again with each event of the stream that tells what is used.
  const { value, error, reload } = useAsked((signal) => ask<Service[]>("GET", "/env-service/*/list", { signal }), [live.ticks]);
  const words = (place.query.get("q") ?? "").toLowerCase().split(/\s+/);
  const all = value ?? [];
  const rows = all.filter((one) => {
    const text = [one.id, environmentOf(one), one.owner, one.status].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const chosen = new Set(all.map((one) => one.id).filter((id) => selected.has(id)));
  return (
    <div class={all.length ? "full" : ""}>
      <div class="title">
        <h1>
          Services <span class="quiet count">{value && rows.length.toLocaleString("en")}</span>
        </h1>
        {all.length > 0 && (
          <input
            type="search"
            class="search"
            placeholder="Name, environment, owner, status"
            aria-label="Filter services"
            value={place.query.get("q") ?? ""}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
        )}
      </div>
      {error !== undefined && !isMissing(error) && <Problem error={error} />}
      {mayChange(caller) && chosen.size > 0 && (
        <Chosen ids={chosen} kind="service" route="env-service" done={(left) => (select(left), reload())} />
      )}
      {value && !rows.length && (
        <Empty title={all.length ? "No service matches" : "There are no services"}>
          {!all.length && (
            <p>
              Make one with <code>aenv service create my-env</code>.
            </p>
          )}
        </Empty>
      )}
      {rows.length > 0 && (
        <Table label="Services" rows={rows} columns={COLUMNS} id={(one) => one.id} selected={chosen} select={mayChange(caller) ? select : undefined} />
      )}
    </div>
  );
}

function environmentOf({ env }: Service): string {
  return env ? `${env.name}@${env.version}` : "";
}

function ServicePage({ id, caller }: { id: string; caller: Caller }): JSX.Element {
  useTitle(id);
  const live = useLive();
  const [ends, ask_] = useState(false);
  const [problem, fail] = useState<unknown>(undefined);
  const { value, error } = useAsked((signal) => ask<Service>("GET", path("env-service", id), { signal }), [id, live.ticks]);
  if (error !== undefined) return <Problem error={error} />;
  if (!value) return <div class="loading" />;
  const end = () => ask("DELETE", path("env-service", id)).then(() => (location.hash = link("services")), fail);
  return (
    <>
      <div class="title">
        <h1>
          {id} <Status status={value.status} />
        </h1>
        {mayChange(caller) && (
          <button type="button" class="danger" onClick={() => ask_(true)}>
            End
          </button>
        )}
      </div>
      {problem !== undefined && <Problem error={problem} />}
      {value.reason && <p class="problem">{value.reason}</p>}
      <Facts
        of={[
          ["Environment", value.env && <a href={link("environments", value.env.name, value.env.version)}>{environmentOf(value)}</a>],
          ["Replicas", `${value.available_replicas} of ${value.replicas} available`],
          ["Owner", value.owner],
          ["Since", day(value.created_at)],
          ["Storage", value.pvc_name && `${value.pvc_name}${value.mount_path ? ` at ${value.mount_path}` : ""}`],
          ["Instances", value.instances.length ? value.instances.map(shortId).join(", ") : null],
        ]}
      />
      {value.service_url && (
        <section>
          <h2>Address</h2>
          <Code text={value.service_url} label="address" />
        </section>
      )}
      {ends && <Confirm question={`End the service ${id}? Its storage is kept.`} action="End" run={() => void end()} close={() => ask_(false)} />}
    </>
  );
}
