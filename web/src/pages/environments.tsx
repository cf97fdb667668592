/** All environments that the caller may see, with search and tags. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { page } from "../api";
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
  const path = `/env?limit=1000&q=${encodeURIComponent(query)}&tags=${encodeURIComponent(tag)}`;
  const { value, error } = useAsked((signal) => page<Environment>(path, signal), [path]);
  const found = value ? latest(value.rows) : [];
  const tags = [...new Set(found.flatMap((one) => one.environment.tags ?? []))].sort();
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
      {value && !found.length && (
        <Empty title={query || tag ? "No environment matches" : "There are no environments yet"}>
          {!query && !tag && (
            <p>
              Make one with <code>aenv init my-env</code>, and publish it with <code>aenv push my-env</code>.
            </p>
          )}
        </Empty>
      )}
      <ul class="cards" aria-label="Environments">
        {found.map(({ environment, versions }) => (
          <li key={environment.name}>
            <a class="card" href={link("environments", environment.name, environment.version)}>
              <h2>{environment.name}</h2>
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
    </>
  );
}

/** One entry for each name: the list is ordered by name and version, so the last one of a name is the newest. */
function latest(rows: Environment[]): { environment: Environment; versions: number }[] {
  const names = new Map<string, { environment: Environment; versions: number }>();
  for (const row of rows) {
    names.set(row.name, { environment: row, versions: (names.get(row.name)?.versions ?? 0) + 1 });
  }
  return [...names.values()];
}
