/** What an instance prints, as it comes. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { events, path } from "../api";
import { Problem } from "../ui";

const MAX_LINES = 5000;

export function Logs({ id }: { id: string }): JSX.Element {
  const [lines, set] = useState<string[]>([]);
  const [state, tell] = useState<{ ended?: boolean; error?: unknown }>({});
  const end = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    let fresh: string[] = [];
    const flush = setInterval(() => {
      if (!fresh.length) return;
      const more = fresh;
      fresh = [];
      set((before) => [...before, ...more].slice(-MAX_LINES));
    }, 100);
    events("GET", `${path("env-instance", id, "logs")}?follow=1`, { signal: stop.signal }, (_, data) => fresh.push(data)).then(
      () => tell({ ended: true }),
      (error: unknown) => stop.signal.aborted || tell({ error }),
    );
    return () => {
      stop.abort();
      clearInterval(flush);
    };
  }, [id]);
  useLayoutEffect(() => {
    const box = end.current;
    if (box && box.scrollHeight - box.scrollTop - box.clientHeight < 200) box.scrollTop = box.scrollHeight;
  }, [lines]);
  return (
    <>
      {state.error !== undefined && <Problem error={state.error} />}
      <pre class="screen logs" ref={end} role="log" tabIndex={0} aria-label="Log">
        {lines.length ? lines.join("\n") : "It has not printed anything yet."}
      </pre>
      {state.ended && <p class="quiet">The log ends here.</p>}
    </>
  );
}
