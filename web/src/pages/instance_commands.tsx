/** Commands in an instance, one at a time, with what they print as it comes. */

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { events, path } from "../api";
import { Badge } from "../ui";

interface Ran {
  command: string;
  output: { stream: string; text: string }[];
  code: number | null;
  error?: string;
}

export function Commands({ id }: { id: string }): JSX.Element {
  const [line, type] = useState("");
  const [ran, note] = useState<Ran[]>([]);
  const running = useRef<AbortController | null>(null);
  const [busy, wait] = useState(false);
  const run = async (event: Event) => {
    event.preventDefault();
    const entry: Ran = { command: line, output: [], code: null };
    note((before) => [...before, entry]);
    type("");
    wait(true);
    running.current = new AbortController();
    const draw = () => note((before) => [...before]);
    try {
      const asked = { body: { command: line, timeout: 600 }, signal: running.current.signal };
      await events("POST", path("env-instance", id, "exec"), asked, (name, data) => {
        const said = JSON.parse(data) as { text?: string; base64?: string; code?: number };
        if (name === "exit") entry.code = said.code ?? null;
        else entry.output.push({ stream: name, text: said.text ?? `(bytes) ${said.base64 ?? ""}\n` });
        draw();
      });
    } catch (error) {
      entry.error = running.current.signal.aborted ? "stopped" : (error as Error).message;
    }
    wait(false);
    draw();
  };
  return (
    <div class="console">
      <div class="screen" role="log" aria-label="Output of commands" tabIndex={0}>
        {ran.map((entry, at) => (
          <div key={at}>
            <div class="prompt">
              $ {entry.command} {entry.code !== null && entry.code !== 0 && <Badge kind="bad">exit {entry.code}</Badge>}
            </div>
            <pre>
              {entry.output.map((piece, index) => (
                <span key={index} class={piece.stream}>
                  {piece.text}
                </span>
              ))}
              {entry.error && <span class="stderr">{entry.error}</span>}
            </pre>
          </div>
        ))}
      </div>
      <form class="row" onSubmit={run}>
        <input
          class="command"
          aria-label="Command"
          placeholder="Command for the shell, as in: ls -l"
          spellcheck={false}
          autocomplete="off"
          value={line}
          onInput={(event) => type(event.currentTarget.value)}
          required
        />
        {busy ? (
          <button type="button" class="danger" onClick={() => running.current?.abort()}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary">
            Run
          </button>
        )}
      </form>
    </div>
  );
}
