/** One version of an environment: what it is, what it offers, how it is used, and how it differs from others. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
import { JsonTree } from "../json_tree";
import { Markdown } from "../markdown";
import { link, setQuery, type Place } from "../router";
import { offered, sampleArguments, typeWords, type Offer, type Schema } from "../schema_words";
import type { Caller } from "../session";
import { snippets, type Snippet } from "../snippets";
import { Badge, Code, Empty, Facts, Lenient, Problem, Tabs, useAsked, useTitle } from "../ui";
import { bytes, day } from "../words";
import type { Environment } from "./environments";

interface Changes {
  files: Record<string, string[]>;
  tools: Record<string, string[]>;
}

interface Details extends Environment {
  owner: string | null;
  access: string;
  digest: string | null;
  size_bytes: number | null;
  pushed_by: string | null;
  readme: string;
  tools: Offer[];
  functions: Offer[];
  rewards: Offer[];
  dependencies: Record<string, string[]>;
  deploy_config: Record<string, unknown> | null;
  created_at: string;
  previous: string | null;
  changes: Changes | null;
}

interface Version {
  version: string;
  status: number;
  digest: string | null;
  pushed_by: string | null;
  updated_at: string;
  previous: string | null;
  changes: Changes | null;
}

const RELEASED = 7;
/** What the hub does not say of a folder on the server's disk. */
const NOTHING = { readme: "", tools: [], functions: [], rewards: [], dependencies: {}, owner: null, access: "" };

export function EnvironmentPage({ place, caller }: { place: Place; caller: Caller }): JSX.Element {
  const name = place.parts[1]!;
  const version = place.parts[2] ?? "latest";
  useTitle(`${name}@${version}`);
  const { value, error } = useAsked(
    (signal) => ask<Details>("GET", path("env", name, version), { signal }).then((said) => ({ ...NOTHING, ...said })),
    [name, version],
  );
  const history = useAsked(
    (signal) => ask<{ versions: Version[] }>("GET", path("env", name), { signal }).then((said) => said.versions),
    [name],
  );
  if (error !== undefined) return <Problem error={error} />;
  if (!value) return <div class="loading" />;
  const versions = history.value ?? [];
  const ref = `${value.name}@${value.version}`;
  const tabs = [
    { id: "readme", title: "README", show: () => <Readme text={value.readme} /> },
    { id: "tools", title: `Tools ${value.tools.length}`, show: () => <Offers kind="tools" of={value.tools} /> },
    { id: "functions", title: `Functions ${value.functions.length}`, show: () => <Offers kind="functions" of={value.functions} /> },
    { id: "rewards", title: `Rewards ${value.rewards.length}`, show: () => <Offers kind="rewards" of={value.rewards} /> },
    { id: "use", title: "Use it", show: () => <Lenient instead={<Empty title="Its tools cannot be described" />}><Use of={value} /></Lenient> },
    { id: "versions", title: "Versions", show: () => <Versions name={name} of={versions} at={value.version} /> },
    { id: "config", title: "Configuration", show: () => <Configuration of={value.deploy_config ?? {}} /> },
  ];
  return (
    <>
      <div class="title">
        <div>
          <h1>
            {value.name} <span class="quiet">{value.version}</span>
          </h1>
          <p>{value.description}</p>
        </div>
        {caller.role !== "viewer" && <Start environment={ref} />}
      </div>
      <Facts
        of={[
          ["Owner", value.owner ?? "a folder of the server"],
          ["Pushed by", value.pushed_by],
          ["Changed", <time dateTime={value.updated_at}>{day(value.updated_at)}</time>],
          ["Access", value.owner ? value.access : null],
          ["Size", value.size_bytes === null || value.size_bytes === undefined ? null : bytes(value.size_bytes)],
          ["Digest", value.digest ? <code title={value.digest}>{value.digest.slice(0, 12)}</code> : null],
          ["Status", value.status === RELEASED ? <Badge kind="good">Released</Badge> : value.owner ? "Not released" : null],
          ["Resources", resources(value.deploy_config ?? {})],
          ["Needs", (value.dependencies["requirements"] ?? []).slice(0, 6).join(", ") || null],
          ["Parts", value.dependencies["parts"]?.length ? <Parts of={value.dependencies["parts"]} /> : null],
        ]}
      />
      <p class="card-tags">
        {(value.tags ?? []).map((tag) => (
          <a key={tag} class="badge" href={`${link("environments")}?tag=${encodeURIComponent(tag)}`}>
            {tag}
          </a>
        ))}
      </p>
      <Tabs tabs={tabs} at={place.query.get("tab") ?? "readme"} go={(tab) => setQuery({ tab })} />
    </>
  );
}

/** Starts an instance, and goes to its page. */
export function Start({ environment }: { environment: string }): JSX.Element {
  const [state, set] = useState<{ busy?: boolean; error?: unknown }>({});
  const start = async () => {
    set({ busy: true });
    try {
      const made = await ask<{ id: string }>("POST", "/env-instances", { body: { envName: environment, count: 1 } });
      const [first] = made as unknown as { id: string }[];
      location.hash = link("instances", first!.id);
    } catch (error) {
      set({ error });
    }
  };
  return (
    <div class="start">
      <button type="button" class="primary" onClick={start} disabled={state.busy}>
        {state.busy ? "Starting…" : "Start an instance"}
      </button>
      {state.error !== undefined && <Problem error={state.error} />}
    </div>
  );
}

/** The environments that it is composed of, in the versions that its push took: texts as "web: browser@1.0.0". */
function Parts({ of }: { of: string[] }): JSX.Element {
  return (
    <ul class="plain-list">
      {of.map((part) => {
        const [, as, name, version] = /^([^:]+): ([^@]+)@(.+)$/.exec(part) ?? [];
        return (
          <li key={part}>
            {as && as !== name && `${as}: `}
            {name && version ? <a href={link("environments", name, version)}>{`${name}@${version}`}</a> : part}
          </li>
        );
      })}
    </ul>
  );
}

function resources(config: Record<string, unknown>): string | null {
  const { cpu, memory, ephemeralStorage, gpu } = config;
  const parts = [cpu && `${cpu} CPU`, memory && `${memory} memory`, ephemeralStorage && `${ephemeralStorage} disk`, gpu && `${gpu} GPU`];
  return parts.filter(Boolean).join(", ") || null;
}

function Configuration({ of }: { of: Record<string, unknown> }): JSX.Element {
  return Object.keys(of).length ? <JsonTree value={of} open={3} /> : <Empty title="It has no settings of its own" />;
}

function Readme({ text }: { text: string }): JSX.Element {
  return text ? <Markdown text={text} /> : <Empty title="It has no README" />;
}

function Offers({ kind, of }: { kind: string; of: Offer[] }): JSX.Element {
  if (!of.length) return <Empty title={`It has no ${kind}`} />;
  return (
    <ul class="offers">
      {of.map((offer, at) => (
        <li key={at}>
          <Lenient instead={<JsonTree value={offer} open={2} />}>
            <Offered offer={offer} />
          </Lenient>
        </li>
      ))}
    </ul>
  );
}

function Offered({ offer }: { offer: Offer }): JSX.Element {
  const schema = offered(offer);
  return (
    <>
      <h2>
        <code>{offer.name}</code>
      </h2>
      {offer.description && <p class="pre">{offer.description}</p>}
      {schema !== undefined && <Parameters of={offer.name} schema={schema} />}
    </>
  );
}

function Parameters({ of, schema }: { of: string; schema: Schema }): JSX.Element {
  const rows = Object.entries(schema.properties ?? {});
  return (
    <>
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Parameters of ${of}`}>
          <table>
            <thead>
              <tr>
                <th>Parameter</th>
                <th>Type</th>
                <th>Default</th>
                <th>Meaning</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(([name, part]) => (
                <tr key={name}>
                  <td>
                    <code>{name}</code>
                  </td>
                  <td>{typeWords(part, schema)}</td>
                  <td>{schema.required?.includes(name) ? "required" : part.default === undefined ? "–" : <code>{JSON.stringify(part.default)}</code>}</td>
                  <td>{part.description}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <JsonTree name="schema" value={schema} open={0} />
    </>
  );
}

function Use({ of }: { of: Details }): JSX.Element {
  const [tool] = of.tools;
  const used = {
    ref: `${of.name}@${of.version}`,
    tool: tool?.name ?? "TOOL",
    values: sampleArguments(tool && offered(tool)),
    hasReward: of.rewards.length > 0,
    hasTasks: of.functions.some((one) => one.name === "list_tasks"),
  };
  const all = snippets(used, location.origin);
  return (
    <>
      {all.filter((one) => !one.kind).map((one) => (
        <section key={one.id}>
          <h2>{one.title}</h2>
          {one.note && <p class="quiet">{one.note}</p>}
          <Code text={one.text} label={one.title} />
        </section>
      ))}
      <Folded title="Agents of frameworks" of={all.filter((one) => one.kind === "agents")} />
      <Folded title="Trainers" of={all.filter((one) => one.kind === "trainers")} />
    </>
  );
}

function Folded({ title, of }: { title: string; of: Snippet[] }): JSX.Element | null {
  if (!of.length) return null;
  return (
    <section>
      <h2>{title}</h2>
      {of.map((one) => (
        <details key={one.id} class="use">
          <summary>{one.title}</summary>
          <p class="quiet">{one.note}</p>
          <Code text={one.text} label={one.title} />
        </details>
      ))}
    </section>
  );
}

function Versions({ name, of, at }: { name: string; of: Version[]; at: string }): JSX.Element {
  return (
    <ul class="offers">
      {of.map((one) => (
        <li key={one.version}>
          <h2>
            <a href={link("environments", name, one.version)} aria-current={one.version === at ? "true" : undefined}>
              {one.version}
            </a>{" "}
            {one.status === RELEASED && <Badge kind="good">Released</Badge>}
          </h2>
          <p class="quiet">
            {day(one.updated_at)}
            {one.pushed_by && `, pushed by ${one.pushed_by}`}
            {one.digest && `, ${one.digest.slice(0, 12)}`}
          </p>
          {one.changes && one.previous && <ChangeList previous={one.previous} changes={one.changes} />}
        </li>
      ))}
    </ul>
  );
}

function ChangeList({ previous, changes }: { previous: string; changes: Changes }): JSX.Element {
  const rows = (["tools", "files"] as const).flatMap((kind) =>
    Object.entries(changes[kind]).flatMap(([what, names]) => (names.length ? [{ kind, what, names }] : [])),
  );
  if (!rows.length) return <p class="quiet">The same files and tools as {previous}</p>;
  return (
    <dl class="changes">
      {rows.map(({ kind, what, names }) => (
        <div key={kind + what}>
          <dt>
            {kind} {what} since {previous}
          </dt>
          <dd>
            {names.map((one) => (
              <code key={one} class={what}>
                {one}
              </code>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}
