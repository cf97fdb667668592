/** Small parts that every page uses. */

import { Component, type ComponentChildren, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";

export function Badge({ kind, children }: { kind?: string; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${kind ?? ""}`}>{children}</span>;
}

const KINDS: Record<string, string> = { Running: "good", Creating: "busy", Updating: "busy", Failed: "bad" };

export function Status({ status, frozen }: { status: string; frozen?: boolean }): JSX.Element {
  return <Badge kind={frozen ? "" : KINDS[status]}>{frozen ? "Frozen" : status}</Badge>;
}

export function Problem({ error }: { error: unknown }): JSX.Element {
  const message = error instanceof Error ? error.message : String(error);
  return (
    <p class="problem" role="alert">
      {message}
    </p>
  );
}

/** `instead`, where data that others wrote does not have the form that `children` expect. */
export class Lenient extends Component<{ instead: ComponentChildren; children: ComponentChildren }, { failed?: boolean }> {
  override state: { failed?: boolean } = {};

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  render(): ComponentChildren {
    return this.state.failed ? this.props.instead : this.props.children;
  }
}

/** Where there is nothing to show; `whole` where that is all that the page has. */
export function Empty(props: { title: string; whole?: boolean; children?: ComponentChildren }): JSX.Element {
  const { title, whole, children } = props;
  return (
    <div class="empty">
      {whole ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

/** Text with a button that copies it. */
export function Code({ text, label }: { text: string; label?: string }): JSX.Element {
  const [copied, set] = useState(false);
  const shown = useRef<HTMLElement>(null);
  const copy = async () => {
    if (!(await toClipboard(text, shown.current!))) return;
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return (
    <div class="code">
      <pre tabIndex={0} aria-label={label}>
        <code ref={shown}>{text}</code>
      </pre>
      <button type="button" class="copy" onClick={copy} aria-label={copied ? "Copied" : `Copy ${label ?? "code"}`}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

/** Whether the text is in the clipboard now. Browsers give plain http, but for this machine, no `navigator.clipboard`. */
async function toClipboard(text: string, shown: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(shown);
    return document.execCommand("copy");
  }
}

export interface Tab {
  id: string;
  title: string;
  show: () => JSX.Element;
}

export function Tabs({ tabs, at, go }: { tabs: Tab[]; at: string; go: (id: string) => void }): JSX.Element {
  const chosen = tabs.find((one) => one.id === at) ?? tabs[0]!;
  const buttons = useRef<Record<string, HTMLButtonElement | null>>({});
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(chosen) + step + tabs.length) % tabs.length]!;
    go(next.id);
    buttons.current[next.id]?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            type="button"
            role="tab"
            key={tab.id}
            id={`tab-${tab.id}`}
            ref={(element) => void (buttons.current[tab.id] = element)}
            aria-selected={tab === chosen}
            aria-controls="tab-panel"
            tabIndex={tab === chosen ? 0 : -1}
            onClick={() => go(tab.id)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${chosen.id}`} key={chosen.id}>
        {chosen.show()}
      </div>
    </>
  );
}

const ASK_AGAIN = 2000;

/** What a request gives: asked again when `parts` change, and until the server answers. */
export function useAsked<T>(ask: (signal: AbortSignal) => Promise<T>, parts: unknown[]) {
  const [state, set] = useState<{ value?: T; error?: unknown }>({});
  const [round, again] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    ask(stop.signal).then(
      (value) => stop.signal.aborted || set({ value }),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        set((before) => ({ value: before.value, error }));
        if (isAway(error)) timer = window.setTimeout(() => again((count) => count + 1), ASK_AGAIN);
      },
    );
    return () => (clearTimeout(timer), stop.abort());
  }, [...parts, round]);
  return { ...state, reload: () => again((count) => count + 1) };
}

const isAway = (error: unknown): boolean => error instanceof ApiError && error.status === 0;

/** Whether the server has no such thing, rather than being out of order. */
export const isMissing = (error: unknown): boolean => error instanceof ApiError && error.status === 404;

/** A question before something that cannot be undone. */
export function Confirm(props: { question: string; action: string; run: () => void; close: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={props.close} aria-labelledby="question">
      <p id="question">{props.question}</p>
      <div class="row end">
        <button type="button" onClick={() => dialog.current?.close()}>
          Cancel
        </button>
        <button
          type="button"
          class="danger"
          onClick={() => {
            props.run();
            dialog.current?.close();
          }}
        >
          {props.action}
        </button>
      </div>
    </dialog>
  );
}

/** A line of the last values, without axes. */
export function Sparkline({ values, label }: { values: number[]; label: string }): JSX.Element {
  const shown = values.length === 1 ? [values[0]!, values[0]!] : values;
  const top = Math.max(...shown, 1e-9);
  const step = 72 / Math.max(shown.length - 1, 1);
  const points = shown.map((value, at) => `${(at * step).toFixed(1)},${(18 - (16 * value) / top).toFixed(1)}`);
  return (
    <svg class="spark" viewBox="0 0 72 20" role="img" aria-label={label}>
      {points.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}

export function Facts({ of }: { of: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {of.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Set the title of the browser's tab. */
export function useTitle(title: string): void {
  useEffect(() => void (document.title = `${title} · aenv`), [title]);
}
