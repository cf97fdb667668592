/** The app, in a frame without an origin, and what its console says. Messages of the frame are text, and nothing more. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useWorkshop } from "./workshop";

interface Line {
  id: number;
  level: string;
  text: string;
}

const MOST_LINES = 200;
const DRAWN_EVERY = 150; // milliseconds
const SETTLED = 250; // milliseconds without a change, after which the app is loaded again
const LEVELS = new Set(["debug", "log", "info", "warn", "error"]);
const WIDTHS = { full: "Full width", phone: "Phone", tablet: "Tablet" };

/** A value that follows another one once that has been the same for a while. */
function useSettled<T>(value: T): T {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), SETTLED);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

export function Preview({ repair }: { repair: (text: string) => void }): JSX.Element {
  const { state, preview } = useWorkshop();
  const [round, again] = useState(0);
  const [width, setWidth] = useState<keyof typeof WIDTHS>("full");
  const frame = useRef<HTMLIFrameElement>(null);
  const revision = useSettled(state!.revision);
  const { lines, clear } = useConsole(frame);
  const errors = lines.filter((one) => one.level === "error");
  return (
    <section class="preview" aria-labelledby="preview-title">
      <div class="bar">
        <h2 id="preview-title">Preview</h2>
        <label class="quiet">
          <span class="unseen">Width of the preview</span>
          <select value={width} onChange={(event) => setWidth(event.currentTarget.value as keyof typeof WIDTHS)}>
            {Object.entries(WIDTHS).map(([name, title]) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <button type="button" class="plain" onClick={() => again(round + 1)}>
          Reload
        </button>
      </div>
      <div class={`stage ${width}`}>
        {preview && (
          <iframe
            // Another frame for each revision: one that goes elsewhere would fill the history of the tab.
            key={`${preview} ${revision} ${round}`}
            ref={frame}
            title="Preview of the app"
            sandbox="allow-scripts allow-forms"
            referrerpolicy="no-referrer"
            src={`${preview}?revision=${revision}`}
          />
        )}
      </div>
      <div class="bar">
        <h2 id="console-title">Console</h2>
        {errors.length > 0 && (
          <button type="button" onClick={() => repair(request(errors))} disabled={state!.busy}>
            Ask the agent to mend it
          </button>
        )}
        <button type="button" class="plain" onClick={clear}>
          Clear
        </button>
      </div>
      <div class="console" role="log" aria-labelledby="console-title" tabIndex={0}>
        {lines.map((line) => (
          <pre key={line.id} class={`wrap of-${line.level}`}>
            {line.level === "error" ? "error: " : line.level === "warn" ? "warning: " : ""}
            {line.text}
          </pre>
        ))}
      </div>
    </section>
  );
}

const request = (errors: Line[]): string => {
  const told = errors.slice(-5).map((one) => `- ${one.text.slice(0, 500)}`);
  return `The console of the app shows errors:\n${told.join("\n")}\nMend them.`;
};

/** What the frame's console says; emptied when a page is loaded. */
function useConsole(frame: { current: HTMLIFrameElement | null }): { lines: Line[]; clear: () => void } {
  const [lines, set] = useState<Line[]>([]);
  const kept = useRef<{ lines: Line[]; count: number; timer: number }>({ lines: [], count: 0, timer: 0 });
  const draw = () => {
    const now = kept.current;
    now.timer ||= window.setTimeout(() => {
      now.timer = 0;
      set([...now.lines]);
    }, DRAWN_EVERY);
  };
  useEffect(() => {
    const hear = (event: MessageEvent) => {
      if (!frame.current || event.source !== frame.current.contentWindow) return;
      const said = (event.data as { aenvPreview?: { level?: unknown; text?: unknown } } | null)?.aenvPreview;
      if (typeof said?.level !== "string" || typeof said.text !== "string") return;
      const now = kept.current;
      if (said.level === "loaded") now.lines = [];
      else if (LEVELS.has(said.level)) {
        now.lines.push({ id: now.count++, level: said.level, text: said.text.slice(0, 2000) });
        if (now.lines.length > MOST_LINES) now.lines.shift();
      } else return;
      draw();
    };
    addEventListener("message", hear);
    return () => removeEventListener("message", hear);
  }, []);
  const clear = () => {
    kept.current.lines = [];
    draw();
  };
  return { lines, clear };
}
