/** The live list of instances: one event stream for all pages, opened again when it breaks. */

import { useEffect, useState } from "preact/hooks";
import { ApiError, events } from "./api";

export interface InstanceRow {
  id: string;
  env: string;
  owner: string | null;
  status: string;
  labels: Record<string, string>;
  reason: string | null;
  created_at: string;
  expires_at: string | null;
}

/** What one instance has used lately, oldest first. */
export interface Track {
  cpu: number[];
  memory: number[];
  processes: number | null;
  seconds: number;
  at: number;
}

export interface Load {
  queue: number;
  totals: Record<string, number>;
  limits: Record<string, number | null>;
}

/** Seconds since 1970, instances alive, calls and errors so far. */
export type Moment = [number, number, number, number];

/** What the gateway has done since it started. Of times, in seconds: the median, p90 and p99. */
export interface Figures {
  calls: number;
  errors: number;
  create: number[] | null;
  call: number[] | null;
  stages: Record<string, number[]>;
}

interface UsageEvent extends Partial<Load> {
  figures: Figures;
  history?: Moment[];
  at: string;
  used: Record<string, { cpu_seconds: number | null; memory_bytes: number | null; processes: number | null }>;
  frozen: string[];
}

const KEPT = 40; // points of a sparkline
const MAX_ENDED = 2000;
const MOMENTS = 720;
const LONGEST_WAIT = 10_000;
const SILENCE = 20_000; // the server says what is used every five seconds

class LiveInstances {
  rows = new Map<string, InstanceRow>();
  tracks = new Map<string, Track>();
  frozen = new Set<string>();
  load: Load | null = null;
  figures: Figures | null = null;
  history: Moment[] = [];
  state: "connecting" | "live" | "lost" = "connecting";
  version = 0;
  ticks = 0;
  private listeners = new Set<() => void>();
  private stop: AbortController | null = null;
  private told = 0;

  watch(tell: () => void): () => void {
    this.listeners.add(tell);
    if (!this.stop) void this.run((this.stop = new AbortController()).signal);
    return () => {
      this.listeners.delete(tell);
      if (this.listeners.size === 0) this.end();
    };
  }

  private end(): void {
    this.stop?.abort();
    this.stop = null;
    this.state = "connecting";
  }

  /** What another account must not see. */
  forget(): void {
    this.rows = new Map();
    this.tracks = new Map();
    this.frozen = new Set();
    this.load = null;
    this.figures = null;
    this.history = [];
  }

  private async run(signal: AbortSignal): Promise<void> {
    let wait = 250;
    while (!signal.aborted) {
      const fresh = new Map<string, InstanceRow>();
      let isReady = false;
      try {
        await events("GET", "/env-instances/live", { signal }, (name, data) => {
          if (name === "instances") {
            for (const row of JSON.parse(data) as InstanceRow[]) this.take(isReady ? this.rows : fresh, row);
          } else if (name === "ready") {
            isReady = true;
            wait = 250;
            this.rows = fresh;
            for (const id of this.tracks.keys()) if (!fresh.has(id)) this.tracks.delete(id);
            this.state = "live";
          } else if (name === "usage") {
            this.measure(JSON.parse(data) as UsageEvent);
          }
          this.changed();
        }, SILENCE);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 404)) {
          this.state = "lost";
          this.changed();
          return;
        }
      }
      this.state = "lost";
      this.changed();
      await pause(wait, signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  private take(rows: Map<string, InstanceRow>, row: InstanceRow): void {
    rows.set(row.id, row);
    if (!isLive(row)) this.tracks.delete(row.id);
  }

  private forgetOld(): void {
    const ended = [...this.rows.values()].filter((one) => !isLive(one));
    for (const row of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) this.rows.delete(row.id);
  }

  private measure(event: UsageEvent): void {
    const now = Date.parse(event.at) / 1000;
    this.frozen = new Set(event.frozen);
    for (const [id, used] of Object.entries(event.used)) {
      const track = this.tracks.get(id) ?? { cpu: [], memory: [], processes: null, seconds: -1, at: now };
      if (used.cpu_seconds !== null) {
        if (track.seconds >= 0 && now > track.at) {
          push(track.cpu, Math.max(0, (used.cpu_seconds - track.seconds) / (now - track.at)));
        }
        track.seconds = used.cpu_seconds;
      }
      if (used.memory_bytes !== null) push(track.memory, used.memory_bytes);
      track.processes = used.processes;
      track.at = now;
      this.tracks.set(id, track);
    }
    if (event.totals) this.load = { queue: event.queue!, totals: event.totals, limits: event.limits! };
    this.figures = event.figures;
    const alive = [...this.rows.values()].filter(isLive).length;
    this.history = event.history ?? [...this.history, [now, alive, event.figures.calls, event.figures.errors] as Moment].slice(-MOMENTS);
    this.forgetOld();
    this.ticks += 1;
  }

  /** Pages are drawn again at most some times a second, however much happens. */
  private changed(): void {
    this.version += 1;
    if (this.told) return;
    this.told = window.setTimeout(() => {
      this.told = 0;
      this.listeners.forEach((tell) => tell());
    }, 120);
  }
}

const push = (values: number[], value: number): void => {
  values.push(value);
  if (values.length > KEPT) values.shift();
};

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });

export const isLive = (row: InstanceRow): boolean => row.status === "Running" || row.status === "Creating";

export const live = new LiveInstances();

/** The live list; the component is drawn again when it changes. */
export function useLive(): LiveInstances {
  const [, draw] = useState(0);
  useEffect(() => {
    const tell = () => draw((count) => count + 1);
    tell(); // what came between the first drawing and now, to which this component did not listen
    return live.watch(tell);
  }, []);
  return live;
}
