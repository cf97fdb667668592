/** What an instance prints, as it comes. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError, events, path } from "../api";
import { Problem } from "../ui";

const MAX_LINES = 5000;
const AGAIN = 2000; // ms until a lost connection is tried again

export function Logs({ id }: { id: string }): JSX.Element {
  const [lines, set] = useState<string[]>([]);
  const [state, tell] = useState<{ ended?: boolean; error?: unknown }>({});
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true); // until a person scrolls up
  useEffect(() => {
    const stop = new AbortController();
    let fresh: string[] = [];
    let again = 0;
    const flush = setInterval(() => {
      if (!fresh.length) return;
      const more = fresh;
      fresh = [];
      set((before) => [...before, ...more].slice(-MAX_LINES));
    }, 100);
    const read = () => {
      set((fresh = [])); // it begins with what was printed before
      events("GET", `${path("env-instance", id, "logs")}?follow=1`, { signal: stop.signal }, (_, data) => fresh.push(data)).then(
        () => tell({ ended: true }),
        (error: unknown) => {
          if (stop.signal.aborted) return;
          tell({ error });
          if (!(error instanceof ApiError) || error.status === 0) again = window.setTimeout(() => (tell({}), read()), AGAIN);
        },
      );
    };
    read();
    return () => {
      stop.abort();
      clearTimeout(again);
      clearInterval(flush);
    };
  }, [id]);
  useLayoutEffect(() => {
    if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  const scrolled = ({ scrollHeight, scrollTop, clientHeight }: Element) => (follows.current = scrollHeight - scrollTop - clientHeight < 40);
  return (
    <>
      {state.error !== undefined && <Problem error={state.error} />}
      <pre class="screen logs" ref={box} role="log" tabIndex={0} aria-label="Log" onScroll={(event) => scrolled(event.currentTarget)}>
        {lines.length ? lines.join("\n") : "It has not printed anything yet."}
      </pre>
      {state.ended && <p class="quiet">The log ends here.</p>}
    </>
  );
}
