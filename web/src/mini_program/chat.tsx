/** The conversation with the agent: what was said, what it did, and a field for the next wish. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../ui";
import { useWorkshop, workshop, type Entry } from "./workshop";

const SIGNS = { running: "…", done: "✓", failed: "✗" };

export function Chat({ draft }: { draft: { text: string } }): JSX.Element {
  const { state } = useWorkshop();
  const [wish, set] = useState("");
  const [error, fail] = useState<unknown>(null);
  const log = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const { entries, busy, wishes } = state!;
  useEffect(() => log.current?.scrollTo({ top: log.current.scrollHeight }), [entries]);
  useEffect(() => {
    if (!draft.text) return;
    set(draft.text);
    field.current?.focus();
  }, [draft]);
  const send = async (text: string) => {
    fail(null);
    try {
      await workshop.act("POST", "/ide/chat", { message: text });
      set("");
    } catch (refused) {
      fail(refused);
    }
  };
  const key = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (wish.trim() && !busy) void send(wish);
  };
  return (
    <section class="chat" aria-labelledby="chat-title">
      <h2 id="chat-title">Chat</h2>
      <div class="log" ref={log} role="log" aria-label="Conversation" tabIndex={0}>
        {entries.length === 0 && <p class="quiet">Say what app you want. It appears in the preview.</p>}
        {entries.map((entry) =>
          entry.kind === "tool" ? <Call key={entry.id} entry={entry} /> : <Said key={entry.id} entry={entry} />,
        )}
        {busy && <p class="quiet working">The agent is at work…</p>}
      </div>
      {wishes.length > 0 && !busy && (
        <div class="wishes" role="group" aria-label="Wishes that the script knows">
          {wishes.map((one) => (
            <button type="button" key={one} onClick={() => send(one)}>
              {one}
            </button>
          ))}
        </div>
      )}
      {error !== null && <Problem error={error} />}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send(wish);
        }}
      >
        <textarea
          ref={field}
          aria-label="Message to the agent"
          placeholder="What should be built, or changed?"
          rows={3}
          maxLength={20000}
          value={wish}
          onInput={(event) => set(event.currentTarget.value)}
          onKeyDown={key}
        />
        <div class="row end">
          {busy && (
            <button type="button" onClick={() => workshop.act("POST", "/ide/stop").catch(fail)}>
              Stop
            </button>
          )}
          <button type="submit" class="primary" disabled={busy || !wish.trim()}>
            Send
          </button>
        </div>
      </form>
    </section>
  );
}

function Said({ entry }: { entry: Entry }): JSX.Element {
  const who = { user: "You", assistant: "Agent", error: "Problem", tool: "" }[entry.kind];
  return (
    <div class={`said ${entry.kind}`}>
      <span class="who-said">{who}</span>
      <p class="pre wrap">{entry.text}</p>
    </div>
  );
}

function Call({ entry }: { entry: Entry }): JSX.Element {
  const state = entry.state ?? "done";
  return (
    <details class={`call ${state}`}>
      <summary>
        <span aria-label={state}>{SIGNS[state]}</span> <code>{entry.tool}</code> <span class="quiet">{entry.about}</span>
      </summary>
      <pre class="wrap" tabIndex={0} aria-label={`Answer of ${entry.tool}`}>
        {entry.text}
      </pre>
    </details>
  );
}
