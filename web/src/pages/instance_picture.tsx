/** The page that an instance's browser shows, as pictures: one after the other, while somebody can see them. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, path } from "../api";
import { Problem } from "../ui";

interface Shown {
  picture: string | null;
  reason: string;
}

const PAUSE = 700; // milliseconds between an answer and the next question

export function LivePicture({ id }: { id: string }): JSX.Element {
  const [isWatched, watch] = useState(true);
  const [picture, show] = useState<string | null>(null);
  const [reason, say] = useState("");
  const [error, fail] = useState<unknown>(undefined);
  useEffect(() => {
    if (!isWatched) return;
    const stop = new AbortController();
    const { signal } = stop;
    const look = async () => {
      while (!signal.aborted) {
        await untilVisible(signal);
        try {
          const shown = await ask<Shown>("POST", path("instances", id, "functions", "live_picture"), { body: {}, signal });
          if (shown.picture) show(shown.picture);
          say(shown.reason);
          fail(undefined);
        } catch (problem) {
          if (signal.aborted) return;
          // An environment that has a tool of this name, and nothing to watch.
          if (problem instanceof ApiError && problem.status === 404) return watch(false);
          fail(problem);
        }
        await paused(signal);
      }
    };
    void look();
    return () => stop.abort();
  }, [id, isWatched]);
  return (
    <section class="live" aria-label="Page of the browser">
      <label class="tick">
        <input type="checkbox" checked={isWatched} onChange={(event) => watch(event.currentTarget.checked)} />
        Watch the page
      </label>{" "}
      <span class="quiet">{isWatched && !picture ? reason : ""}</span>
      {isWatched && picture && <img src={`data:image/jpeg;base64,${picture}`} alt="What the browser shows now" />}
      {isWatched && error !== undefined && <Problem error={error} />}
    </section>
  );
}

function untilVisible(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const look = () => document.visibilityState === "visible" && stop();
    const stop = () => {
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", stop);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    else look();
  });
}

function paused(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(stop, PAUSE);
    function stop(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      done();
    }
    signal.addEventListener("abort", stop);
  });
}
