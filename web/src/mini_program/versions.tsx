/** The versions of the project, newest first; any of them can be shown again. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Problem } from "../ui";
import { useWorkshop, workshop } from "./workshop";

export function Versions(): JSX.Element {
  const { state } = useWorkshop();
  const [error, fail] = useState<unknown>(null);
  const { versions, shown, busy, can_undo, can_redo } = state!;
  const act = (path: string, body: unknown = {}) => workshop.act("POST", path, body).then(() => fail(null), fail);
  return (
    <section class="versions" aria-labelledby="versions-title">
      <div class="bar">
        <h2 id="versions-title">Versions</h2>
        <button type="button" onClick={() => act("/ide/undo")} disabled={!can_undo || busy}>
          Undo
        </button>
        <button type="button" onClick={() => act("/ide/redo")} disabled={!can_redo || busy}>
          Redo
        </button>
      </div>
      {error !== null && <Problem error={error} />}
      <ol class="history" aria-label="Versions, newest first">
        {versions.toReversed().map((one) => (
          <li key={one.number} aria-current={one.number === shown ? "true" : undefined}>
            <button
              type="button"
              class="plain"
              disabled={one.number === shown || busy}
              onClick={() => act("/ide/show", { number: one.number })}
            >
              <span class="wrap">{one.summary}</span>
              <span class="quiet">
                {" "}
                {one.by && `${one.by}, `}
                {new Date(one.at * 1000).toLocaleTimeString()}
                {one.number === shown && ", shown"}
              </span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
