/** The files of the project, and an editor of one of them, which saves what is typed. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, ApiError } from "../api";
import { Confirm, Problem } from "../ui";
import { Editor } from "./editor";
import { useWorkshop, workshop, type FileRow } from "./workshop";

const PAUSE = 600; // milliseconds without a key, after which a text is saved

export function Code(): JSX.Element {
  const { state } = useWorkshop();
  const [chosen, choose] = useState("");
  const [isNew, setNew] = useState(false);
  const [removing, remove] = useState("");
  const [error, fail] = useState<unknown>(null);
  const files = state!.files;
  const open = files.find((one) => one.path === chosen) ?? files.find((one) => one.path === "index.html") ?? files[0];
  const act = (work: Promise<void>) => work.then(() => fail(null), fail);
  return (
    <section class="project-files" aria-labelledby="files-title">
      <div class="bar">
        <h2 id="files-title">Files</h2>
        <button type="button" class="plain" onClick={() => setNew(!isNew)} aria-expanded={isNew}>
          New file
        </button>
      </div>
      {isNew && (
        <NewFile
          add={(path) => {
            setNew(false);
            choose(path);
            void act(workshop.act("PUT", "/ide/file", { path, content: "", digest: "" }));
          }}
        />
      )}
      {error !== null && <Problem error={error} />}
      <div class="two">
        <Tree files={files} open={open?.path ?? ""} choose={choose} remove={remove} />
        {open ? (
          <FileEditor key={open.path} file={open} />
        ) : (
          <p class="quiet pad">There is no file yet.</p>
        )}
      </div>
      {removing && (
        <Confirm
          question={`Remove ${removing}? Undo brings it back.`}
          action="Remove"
          run={() => void act(workshop.act("DELETE", "/ide/file", { path: removing }))}
          close={() => remove("")}
        />
      )}
    </section>
  );
}

function NewFile({ add }: { add: (path: string) => void }): JSX.Element {
  const [path, set] = useState("");
  return (
    <form
      class="row pad"
      onSubmit={(event) => {
        event.preventDefault();
        add(path.trim().replace(/^\/+/, ""));
      }}
    >
      <input
        aria-label="Path of the new file"
        placeholder="css/more.css"
        autocomplete="off"
        spellcheck={false}
        required
        value={path}
        onInput={(event) => set(event.currentTarget.value)}
      />
      <button type="submit">Create</button>
    </form>
  );
}

interface TreeProps {
  files: FileRow[];
  open: string;
  choose: (path: string) => void;
  remove: (path: string) => void;
}

/** Folders as headings, with their files below them. */
function Tree({ files, open, choose, remove }: TreeProps): JSX.Element {
  const folders = new Map<string, FileRow[]>();
  for (const one of files) {
    const folder = one.path.split("/").slice(0, -1).join("/");
    folders.set(folder, [...(folders.get(folder) ?? []), one]);
  }
  return (
    <nav class="tree" aria-label="Files of the project">
      {[...folders].sort().map(([folder, rows]) => (
        <div key={folder}>
          {folder && <p class="folder">{folder}/</p>}
          <ul>
            {rows.map(({ path, bytes }) => (
              <li key={path}>
                <button
                  type="button"
                  class="plain file"
                  aria-current={path === open ? "true" : undefined}
                  title={`${bytes} bytes`}
                  onClick={() => choose(path)}
                >
                  {path.split("/").pop()}
                </button>
                <button type="button" class="plain" aria-label={`Remove ${path}`} onClick={() => remove(path)}>
                  ×
                </button>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  );
}

interface Loaded {
  text: string | null;
  digest: string;
}

async function load(path: string): Promise<Loaded> {
  const found = await ask<{ content: string; digest: string }>("GET", `/ide/file?path=${encodeURIComponent(path)}`);
  const bytes = Uint8Array.from(atob(found.content), (one) => one.charCodeAt(0));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), digest: found.digest };
  } catch {
    return { text: null, digest: found.digest };
  }
}

/** What a file holds in the project, as this page knows it. */
const current = (path: string): string => workshop.state?.files.find((one) => one.path === path)?.digest ?? "";

async function digestOf(text: string): Promise<string> {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

/** Saves a text after a pause. What another has written meanwhile is never lost: the person is asked. */
function FileEditor({ file }: { file: FileRow }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const held = useRef({ digest: "", isDirty: false, isSaving: false, timer: 0 });
  const [kind, setKind] = useState<"loading" | "text" | "other">("loading");
  const [saying, say] = useState("");
  const [conflict, setConflict] = useState(false);
  const [error, fail] = useState<unknown>(null);

  const take = async () => {
    const found = await load(file.path);
    held.current.digest = found.digest;
    held.current.isDirty = false;
    setConflict(false);
    fail(null);
    if (found.text === null) return setKind("other");
    setKind("text");
    if (editor.current) editor.current.replace(found.text);
    else if (place.current) editor.current = new Editor(place.current, file.path, found.text, typed);
  };
  const save = async () => {
    const now = held.current;
    if (now.isSaving || !now.isDirty || !editor.current) return;
    now.isSaving = true;
    now.isDirty = false;
    say("Saving…");
    try {
      const content = editor.current.text;
      await workshop.act("PUT", "/ide/file", { path: file.path, content, digest: now.digest });
      // Not what the project says now: the agent may have written meanwhile.
      now.digest = await digestOf(content);
      say("Saved");
      fail(null);
    } catch (refused) {
      now.isDirty = true;
      say("Not saved");
      if (refused instanceof ApiError && refused.message.includes("changed meanwhile")) setConflict(true);
      else fail(refused);
      return;
    } finally {
      now.isSaving = false;
    }
    if (now.isDirty) void save();
    else follow();
  };
  /** Show what another has written, unless that would lose what was typed. */
  const follow = () => {
    const now = held.current;
    const digest = current(file.path);
    if (!digest || now.digest === digest || now.isSaving) return;
    if (now.isDirty) setConflict(true);
    else take().catch(fail);
  };
  const typed = () => {
    held.current.isDirty = true;
    say("Not saved yet");
    clearTimeout(held.current.timer);
    held.current.timer = window.setTimeout(save, PAUSE);
  };
  const keepMine = async () => {
    held.current.digest = current(file.path);
    setConflict(false);
    await save();
  };
  useEffect(follow, [file.digest]);
  useEffect(
    () => () => {
      clearTimeout(held.current.timer);
      void save(); // begins before the editor is gone
      editor.current?.close();
    },
    [],
  );
  return (
    <div class="editor">
      <p class="bar small">
        <span class="wrap">{file.path}</span>
        <span class="quiet" role="status">
          {saying}
        </span>
      </p>
      {kind === "other" && <p class="quiet pad">This file is not text.</p>}
      {conflict && (
        <div class="problem" role="alert">
          <p>{file.path} has changed while you typed.</p>
          <div class="row">
            <button type="button" onClick={() => take().catch(fail)}>
              Take the new text
            </button>
            <button type="button" onClick={keepMine}>
              Keep mine
            </button>
          </div>
        </div>
      )}
      {error !== null && <Problem error={error} />}
      <div class="code-place" ref={place} hidden={kind === "other"} />
    </div>
  );
}
