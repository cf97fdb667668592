/** The public HTTP API: the only way to the server. Errors carry what the server said. */

import { createParser } from "eventsource-parser";
import { session } from "./session";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

interface Envelope<T> {
  success: boolean;
  message?: string;
  error?: string;
  data: T;
  total?: number;
}

export type Method = "GET" | "POST" | "PUT" | "DELETE";

export interface Asked {
  body?: unknown;
  signal?: AbortSignal;
  accept?: string;
}

/** The response, or an ApiError. */
export async function send(method: Method, path: string, { body, signal, accept }: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  if (session.token) headers["authorization"] = `Bearer ${session.token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (accept) headers["accept"] = accept;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (response.status === 401) session.refuse();
  if (!response.ok) throw new ApiError(response.status, await reason(response));
  return response;
}

async function reason(response: Response): Promise<string> {
  const text = await response.text();
  try {
    const said = JSON.parse(text) as { message?: string; error?: unknown };
    return said.message || String(said.error || response.statusText);
  } catch {
    return text.slice(0, 500) || response.statusText;
  }
}

/** The `data` of a reply. */
export async function ask<T>(method: Method, path: string, asked: Asked = {}): Promise<T> {
  const reply = (await (await send(method, path, asked)).json()) as Envelope<T>;
  if (!reply.success) throw new ApiError(200, String(reply.message || reply.error || "refused"));
  return reply.data;
}

/** The `data` of a list, with how many there are in all. */
export async function page<T>(path: string, signal?: AbortSignal): Promise<{ rows: T[]; total: number }> {
  const reply = (await (await send("GET", path, { signal })).json()) as Envelope<T[]>;
  return { rows: reply.data, total: reply.total ?? reply.data.length };
}

const PAGE = 1000;

/** The whole list, in as many requests as it takes. */
export async function whole<T>(path: string, signal?: AbortSignal): Promise<T[]> {
  const rows: T[] = [];
  for (;;) {
    const part = await page<T>(`${path}&limit=${PAGE}&offset=${rows.length}`, signal);
    rows.push(...part.rows);
    if (!part.rows.length || rows.length >= part.total) return rows;
  }
}

/**
 * Hand each server-sent event to `on`, until the stream ends. `silence`: the milliseconds after which a stream that
 * says nothing counts as lost. A connection whose other end has gone without a word is never closed by itself.
 */
export async function events(
  method: Method,
  path: string,
  asked: Asked,
  on: (name: string, data: string) => void,
  silence = Infinity,
): Promise<void> {
  const lost = new AbortController();
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    if (silence < Infinity) timer = window.setTimeout(() => lost.abort(), silence);
  };
  const signal = AbortSignal.any([lost.signal, ...(asked.signal ? [asked.signal] : [])]);
  heard();
  try {
    const response = await send(method, path, { ...asked, signal, accept: "text/event-stream" });
    const parser = createParser({ onEvent: (event) => on(event.event ?? "message", event.data) });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      parser.feed(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

export const path = (...parts: string[]): string => "/" + parts.map(encodeURIComponent).join("/");
