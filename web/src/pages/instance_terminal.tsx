/** A shell in the instance, in a real terminal; or why there is none. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, path } from "../api";
import type { OpenTerminal } from "../terminal";
import { Empty } from "../ui";

export function TerminalTab({ id }: { id: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const after = useRef<HTMLButtonElement>(null);
  const [round, again] = useState(0);
  const [isReadAloud, readAloud] = useState(false);
  const [state, set] = useState<{ ended?: string; none?: string }>({});
  useEffect(() => {
    let shown: OpenTerminal | undefined;
    let isLeft = false;
    set({});
    const open = async () => {
      const found = await ask<{ available: boolean; reason: string }>("GET", path("env-instance", id, "terminal"));
      if (!found.available) return set({ none: found.reason });
      const { openTerminal } = await import("../terminal");
      if (isLeft) return;
      shown = openTerminal(box.current!, id, (why) => set({ ended: why }), () => after.current?.focus(), isReadAloud);
    };
    open().catch((error: Error) => isLeft || set({ ended: error.message }));
    return () => {
      isLeft = true;
      shown?.close();
    };
  }, [id, round, isReadAloud]);
  if (state.none) return <Empty title="There is no terminal">{state.none}</Empty>;
  return (
    <div class="console">
      <div class="shell" ref={box} key={`${round} ${isReadAloud}`} role="group" aria-label="Terminal" />
      <div class="row">
        <button type="button" ref={after} onClick={() => again((count) => count + 1)}>
          {state.ended ? "Open another" : "Start again"}
        </button>
        <label class="tick">
          <input type="checkbox" checked={isReadAloud} onChange={(event) => readAloud(event.currentTarget.checked)} />
          Screen reader
        </label>
        <span class="quiet" role="status">
          {state.ended ?? "Ctrl+F6 leaves the terminal. The shell ends when this page is closed."}
        </span>
      </div>
    </div>
  );
}
