/** All environments that the caller may see, with search and tags. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { whole } from "../api";
import { link, setQuery, type Place } from "../router";
import { Badge, Empty, Problem, useAsked, useTitle } from "../ui";

export interface Environment {
  name: string;
  version: string;
  description: string;
  tags: string[] | null;
  status: number;
  updated_at: string;
}

export function EnvironmentsPage({ place }: { place: Place }): JSX.Element {
  useTitle("Environments");
  const [words, type] = useState(place.query.get("q") ?? "");
  const tag = place.query.get("tag") ?? "";
  const query = place.query.get("q") ?? "";
  useEffect(() => {
    const timer = setTimeout(() => words !== query && setQuery({ q: words }), 200);
    return () => clearTimeout(timer);
  }, [words]);
  const path = `/env?q=${encodeURIComponent(query)}&tags=${encodeURIComponent(tag)}`;
  const { value, error } = useAsked(
    async (signal) => {
      const [pushed, shipped] = await Promise.all([
        whole<Environment>(path, signal),
        whole<Environment>(`${path}&builtin=true`, signal),
      ]);
      return { pushed: latest(pushed), shipped: latest(shipped) };
    },
    [path],
  );
  const pushed = value?.pushed ?? [];
  const names = new Set(pushed.map((one) => one.environment.name));
  const shipped = (value?.shipped ?? []).filter((one) => !names.has(one.environment.name));
  const tags = [...new Set([...pushed, ...shipped].flatMap((one) => one.environment.tags ?? []))].sort();
  return (
    <>
      <div class="title">
        <h1>Environments</h1>
        <input
          type="search"
          class="search"
          placeholder="Search names, descriptions, tags"
          aria-label="Search environments"
          value={words}
          onInput={(event) => type(event.currentTarget.value)}
        />
      </div>
      {error !== undefined && <Problem error={error} />}
      {(tags.length > 0 || tag) && (
        <div class="tags" role="group" aria-label="Tags">
          {(tag && !tags.includes(tag) ? [tag, ...tags] : tags).map((one) => (
            <button
              type="button"
              class="tag"
              key={one}
              aria-pressed={one === tag}
              onClick={() => setQuery({ tag: one === tag ? "" : one })}
            >
              {one}
            </button>
          ))}
        </div>
      )}
      {value && !pushed.length && !(shipped.length && (query || tag)) && (
        <Empty title={query || tag ? "No environment matches" : "There are no environments of your own yet"}>
          {!query && !tag && (
            <p>
              Make one with <code>aenv init my-env</code>, and publish it with <code>aenv push my-env</code>.
            </p>
          )}
        </Empty>
      )}
      <Group key={`hub ${path}`} title="In the hub" of={pushed} />
      <Group key={`aenv ${path}`} title="Come with aenv" of={shipped} />
    </>
  );
}

interface Listed {
  environment: Environment;
  versions: number;
}

const SHOWN = 120;

/** Cards of the first ones, and more when they are asked for. */
function Group({ title, of }: { title: string; of: Listed[] }): JSX.Element | null {
  const [most, show] = useState(SHOWN);
  if (!of.length) return null;
  return (
    <section>
      <h2>
        {title} <span class="quiet">{of.length.toLocaleString("en")}</span>
      </h2>
      <ul class="cards" aria-label={title}>
        {of.slice(0, most).map(({ environment, versions }) => (
          <li key={environment.name}>
            <a class="card" href={link("environments", environment.name, environment.version)}>
              <h3>{environment.name}</h3>
              <p class="quiet">
                {environment.version}
                {versions > 1 && ` and ${versions - 1} more`}
              </p>
              <p>{environment.description}</p>
              <p class="card-tags">
                {(environment.tags ?? []).slice(0, 6).map((one) => (
                  <Badge key={one}>{one}</Badge>
                ))}
              </p>
            </a>
          </li>
        ))}
      </ul>
      {of.length > most && (
        <p class="more">
          <button type="button" onClick={() => show(most + 4 * SHOWN)}>
            Show more: {(of.length - most).toLocaleString("en")} are left
          </button>
        </p>
      )}
    </section>
  );
}

/** One entry for each name: the list is ordered by name and version, so the last one of a name is the newest. */
function latest(rows: Environment[]): Listed[] {
  const names = new Map<string, Listed>();
  for (const row of rows) {
    names.set(row.name, { environment: row, versions: (names.get(row.name)?.versions ?? 0) + 1 });
  }
  return [...names.values()];
}
