/** What the page knows of the project and the conversation: told by one stream of events, which opens again when it breaks. */

import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, events } from "../api";

export interface FileRow {
  path: string;
  digest: string;
  bytes: number;
}

export interface Version {
  number: number;
  parent: number | null;
  summary: string;
  by: string;
  at: number;
}

export interface Project {
  revision: number;
  shown: number;
  can_undo: boolean;
  can_redo: boolean;
  /** What the script knows; empty for a model. */
  wishes: string[];
  versions: Version[];
  files: FileRow[];
}

export interface Entry {
  id: number;
  kind: "user" | "assistant" | "tool" | "error";
  text: string;
  tool?: string;
  about?: string;
  state?: "running" | "done" | "failed";
}

interface State extends Project {
  project: string;
  model: string;
  is_script: boolean;
  busy: boolean;
  entries: Entry[];
}

const LONGEST_WAIT = 5_000;
const SILENCE = 45_000; // the server says at least something every 15 seconds

class Workshop {
  state: State | null = null;
  /** What addresses of the preview begin with. */
  preview = "";
  connection: "connecting" | "live" | "lost" | "ended" = "connecting";
  private listeners = new Set<() => void>();

  watch(tell: () => void): () => void {
    this.listeners.add(tell);
    return () => this.listeners.delete(tell);
  }

  /** Follow the events for as long as the page is open. */
  async follow(): Promise<void> {
    for (let wait = 250; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
      try {
        await events("GET", "/ide/events", {}, (name, data) => {
          wait = 250;
          this.connection = "live";
          this.take(name, JSON.parse(data));
        }, SILENCE);
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) {
          this.connection = "ended";
          this.changed();
          return;
        }
      }
      this.connection = "lost";
      this.changed();
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  /** Take what a request says of the project, without waiting for the event. */
  async act(method: "POST" | "PUT" | "DELETE", path: string, body: unknown = {}): Promise<void> {
    const project = await ask<Project | null>(method, path, { body });
    if (project) this.take("project", project);
  }

  private take(name: string, data: unknown): void {
    const state = this.state;
    if (name === "preview") this.preview = (data as { path: string }).path;
    else if (name === "state") this.state = data as State;
    else if (!state) return;
    else if (name === "project") this.state = { ...state, ...(data as Project) };
    else if (name === "busy") this.state = { ...state, busy: data as boolean };
    else if (name === "entry") this.state = { ...state, entries: replaced(state.entries, data as Entry) };
    this.changed();
  }

  private changed(): void {
    this.listeners.forEach((tell) => tell());
  }
}

function replaced(entries: Entry[], entry: Entry): Entry[] {
  const at = entries.findIndex((one) => one.id === entry.id);
  return at < 0 ? [...entries, entry] : entries.with(at, entry);
}

export const workshop = new Workshop();

/** The workshop; the component is drawn again when it changes. */
export function useWorkshop(): Workshop {
  const [, draw] = useState(0);
  useEffect(() => {
    const tell = () => draw((count) => count + 1);
    tell(); // what came between the first drawing and now, to which nothing listened
    return workshop.watch(tell);
  }, []);
  return workshop;
}
