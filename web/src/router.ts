/** Addresses after `#`: `#/instances/ID?tab=logs`. A page of ours never has the path of a route of the API. */

import { useEffect, useState } from "preact/hooks";

export interface Place {
  parts: string[];
  query: URLSearchParams;
}

export function here(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(...parts: string[]): string {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

/** Change the query of the page that is shown, without a new entry of the history. */
export function setQuery(changes: Record<string, string>): void {
  const { parts, query } = here();
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  history.replaceState(null, "", link(...parts) + (text ? `?${text}` : ""));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function usePlace(): Place {
  const [place, set] = useState(here);
  useEffect(() => {
    const changed = () => set(here());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}
