/** The files of an instance's workspace. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, send } from "../api";
import { Text } from "../content";
import { Empty, Problem, useAsked } from "../ui";
import { bytes, day } from "../words";

interface Entry {
  path: string;
  kind: string;
  size_bytes: number;
  modified_at: string;
}

const MAX_SHOWN = 512 * 1024;

export function Files({ id }: { id: string }): JSX.Element {
  const [folder, go] = useState("");
  const [open, look] = useState<string | null>(null);
  const { value, error } = useAsked(
    (signal) => ask<Entry[]>("GET", `/env-instance/${encodeURIComponent(id)}/files?limit=1000&path=${encodeURIComponent(folder)}`, { signal }),
    [id, folder],
  );
  const parts = folder.split("/").filter(Boolean);
  return (
    <div class="split">
      <div>
        <nav aria-label="Folder" class="crumbs">
          <button type="button" class="plain" onClick={() => go("")}>
            workspace
          </button>
          {parts.map((part, at) => (
            <button type="button" class="plain" key={at} onClick={() => go(parts.slice(0, at + 1).join("/"))}>
              / {part}
            </button>
          ))}
        </nav>
        {error !== undefined && <Problem error={error} />}
        {value && !value.length && <Empty title="The folder is empty" />}
        <ul class="files">
          {(value ?? []).map((entry) => (
            <li key={entry.path}>
              <button type="button" class="plain" onClick={() => (entry.kind === "folder" || entry.kind === "directory" ? go(entry.path) : look(entry.path))}>
                {entry.path.split("/").pop()}
                {entry.kind === "file" ? "" : "/"}
              </button>
              <span class="quiet">{entry.kind === "file" ? bytes(entry.size_bytes) : ""}</span>
              <span class="quiet">{day(entry.modified_at)}</span>
            </li>
          ))}
        </ul>
      </div>
      <div>{open !== null && <FileView id={id} name={open} />}</div>
    </div>
  );
}

function FileView({ id, name }: { id: string; name: string }): JSX.Element {
  const { value, error } = useAsked((signal) => read(id, name, signal), [id, name]);
  return (
    <article>
      <h2>{name}</h2>
      {error !== undefined && <Problem error={error} />}
      {value && (value.text === null ? <p>This file is not text, or longer than {bytes(MAX_SHOWN)}.</p> : <Text text={value.text} />)}
      {value && (
        <button type="button" onClick={() => save(value.content, name)}>
          Download
        </button>
      )}
    </article>
  );
}

async function read(id: string, name: string, signal: AbortSignal): Promise<{ text: string | null; content: Blob }> {
  const at = name.split("/").map(encodeURIComponent).join("/");
  const content = await (await send("GET", `/env-instance/${encodeURIComponent(id)}/files/${at}`, { signal })).blob();
  if (content.size > MAX_SHOWN) return { text: null, content };
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(await content.arrayBuffer()), content };
  } catch {
    return { text: null, content };
  }
}

function save(content: Blob, name: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name.split("/").pop() ?? "file";
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
