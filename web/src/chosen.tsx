/** Rows of a table that were selected, and the button that ends them. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "./api";
import { Confirm, Problem } from "./ui";

const AT_ONCE = 8; // deletes under way

interface ChosenProps {
  ids: Set<string>;
  /** What they are: "instance". */
  kind: string;
  /** The route below which each has its id. */
  route: string;
  done: () => void;
}

export function Chosen({ ids, kind, route, done }: ChosenProps): JSX.Element {
  const [asks, ask_] = useState(false);
  const [left, set] = useState<number | null>(null);
  const [error, fail] = useState<unknown>(undefined);
  const count = `${ids.size.toLocaleString("en")} ${kind}${ids.size === 1 ? "" : "s"}`;
  const end = async () => {
    const todo = [...ids];
    set(todo.length);
    const work = async () => {
      for (let id = todo.pop(); id; id = todo.pop()) {
        await ask("DELETE", path(route, id)).catch(fail);
        set((before) => (before ?? 1) - 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    set(null);
    done();
  };
  return (
    <div class="chosen" role="region" aria-label="Selection">
      <span>{left === null ? `${count} selected` : `Ending, ${left} left`}</span>
      <button type="button" class="danger" disabled={left !== null} onClick={() => ask_(true)}>
        End {count}
      </button>
      <button type="button" onClick={done}>
        Clear
      </button>
      {error !== undefined && <Problem error={error} />}
      {asks && <Confirm question={`End ${count}? This cannot be undone.`} action="End" run={end} close={() => ask_(false)} />}
    </div>
  );
}
