/** Rows of a table that were selected, and the button that ends them. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "./api";
import { Confirm, isMissing, Problem } from "./ui";

const AT_ONCE = 8; // deletes under way

interface ChosenProps {
  ids: Set<string>;
  /** What they are: "instance". */
  kind: string;
  /** The route below which each has its id. */
  route: string;
  /** Called at the end, with those that could not be ended; they stay selected. */
  done: (left: Set<string>) => void;
}

export function Chosen({ ids, kind, route, done }: ChosenProps): JSX.Element {
  const [asks, ask_] = useState(false);
  const [left, set] = useState<number | null>(null);
  const [error, fail] = useState<unknown>(undefined);
  const count = `${ids.size.toLocaleString("en")} ${kind}${ids.size === 1 ? "" : "s"}`;
  const end = async () => {
    const todo = [...ids];
    const refused = new Map<string, unknown>();
    set(todo.length);
    fail(undefined);
    const work = async () => {
      for (let id = todo.pop(); id; id = todo.pop()) {
        // One that has ended by itself is what was wanted.
        await ask("DELETE", path(route, id)).catch((problem) => isMissing(problem) || refused.set(id!, problem));
        set((before) => (before ?? 1) - 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    set(null);
    const [first] = refused.values();
    fail(first);
    done(new Set(refused.keys()));
  };
  return (
    <div class="chosen" role="region" aria-label="Selection">
      <span>{left === null ? `${count} selected` : `Ending, ${left} left`}</span>
      <button type="button" class="danger" disabled={left !== null} onClick={() => ask_(true)}>
        End {count}
      </button>
      <button type="button" onClick={() => done(new Set())}>
        Clear
      </button>
      {error !== undefined && <Problem error={error} />}
      {asks && <Confirm question={`End ${count}? This cannot be undone.`} action="End" run={end} close={() => ask_(false)} />}
    </div>
  );
}
