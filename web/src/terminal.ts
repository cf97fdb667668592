/** A terminal of an instance: xterm.js at one end of a WebSocket. Loaded when a person opens one. */

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { path } from "./api";
import { session } from "./session";

const PIECE = 32 << 10; // characters: a message has at most 64 KiB

export interface OpenTerminal {
  close: () => void;
  focus: () => void;
}

/**
 * Fill `box` with a terminal. `ended` is told why, once; `leave` is called by the key that leaves the terminal.
 * `isReadAloud`: for a screen reader, which then gets the lines as text; keyboards of phones do not work with that.
 */
export function openTerminal(
  box: HTMLElement,
  id: string,
  ended: (why: string) => void,
  leave: () => void,
  isReadAloud: boolean,
): OpenTerminal {
  const colours = getComputedStyle(document.documentElement);
  const background = colours.getPropertyValue("--screen").trim();
  const foreground = colours.getPropertyValue("--screen-text").trim();
  const shown = new Terminal({
    cursorBlink: false,
    fontSize: 14,
    screenReaderMode: isReadAloud,
    scrollback: 5000,
    theme: { background, foreground, cursor: foreground },
  });
  const fit = new FitAddon();
  shown.loadAddon(fit);
  shown.open(box);
  fit.fit();
  const socket = new WebSocket(address(id, shown.cols, shown.rows), protocols());
  socket.binaryType = "arraybuffer";
  const tell = (said: unknown) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(said));
  const type = (bytes: Uint8Array<ArrayBuffer>) => {
    if (socket.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += PIECE) socket.send(bytes.subarray(at, at + PIECE));
  };
  const text = new TextEncoder();
  let exit = "";
  socket.onopen = () => shown.focus();
  socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
    if (typeof data === "string") {
      exit = `The shell has ended with code ${String((JSON.parse(data) as { exit: number }).exit)}.`;
    } else {
      // Acknowledged when it is drawn: a flood waits in the instance.
      shown.write(new Uint8Array(data), () => tell({ ack: data.byteLength }));
    }
  };
  socket.onclose = ({ code, reason }) => {
    shown.options.disableStdin = true;
    ended(exit || (reason && `The terminal has ended: ${reason}.`) || `The connection to the terminal was lost (${code}).`);
  };
  shown.onData((typed) => type(text.encode(typed)));
  shown.onBinary((typed) => type(Uint8Array.from(typed, (one) => one.charCodeAt(0))));
  shown.onResize(({ cols, rows }) => tell({ resize: [cols, rows] }));
  shown.attachCustomKeyEventHandler((event) => {
    if (!(event.ctrlKey && event.key === "F6")) return true;
    leave();
    return false;
  });
  const sized = new ResizeObserver(() => box.isConnected && fit.fit());
  sized.observe(box);
  return {
    focus: () => shown.focus(),
    close: () => {
      socket.onclose = null;
      sized.disconnect();
      socket.close();
      shown.dispose();
    },
  };
}

function address(id: string, columns: number, rows: number): string {
  const url = new URL(`${path("env-instance", id, "terminal")}?columns=${columns}&rows=${rows}`, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = "";
  return url.href;
}

/** The token goes among the protocols: a page can send no other header, and addresses end up in logs. */
const protocols = (): string[] => ["aenv.terminal", ...(session.token ? [`aenv.bearer.${session.token}`] : [])];
