/** JSON as a tree that opens part by part. Values are text, whatever they say. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

const SHOWN = 100;

/** As JSON has it, but with its lines as lines. */
const quoted = (text: string): string => JSON.stringify(text).replace(/\\(.)/g, (whole, mark: string) => (mark === "n" ? "\n" : whole));

export function JsonTree({ value, name, open = 2 }: { value: unknown; name?: string; open?: number }): JSX.Element {
  const [most, show] = useState(SHOWN);
  const [isOpen, toggle] = useState(open > 0);
  const label = name === undefined ? null : <span class="json-name">{name}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <div class="json-leaf">
        {label}
        <span class={`json-${value === null ? "null" : typeof value}`}>
          {typeof value === "string" ? quoted(value) : String(value)}
        </span>
      </div>
    );
  }
  const entries = Object.entries(value);
  const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  return (
    <details class="json" open={isOpen} onToggle={(event) => toggle(event.currentTarget.open)}>
      <summary>
        {label}
        <span class="quiet">
          {begin}
          {entries.length ? `${entries.length}` : ""}
          {end}
        </span>
      </summary>
      {isOpen && (
        <div class="json-parts">
          {entries.slice(0, most).map(([key, part]) => (
            <JsonTree key={key} name={key} value={part} open={open - 1} />
          ))}
          {entries.length > most && (
            <button type="button" class="plain" onClick={() => show(most + 10 * SHOWN)}>
              {entries.length - most} more
            </button>
          )}
        </div>
      )}
    </details>
  );
}
