/** The session of this tab: its token, and who it belongs to. Cookies are not used, so no other page can act with it. */

export interface Caller {
  user: string;
  role: "anonymous" | "viewer" | "user" | "admin";
  account: string | null;
  /** Whether this server shows local files of results: `aenv view` does. */
  runs?: boolean;
  /** False where there is no gateway behind this server. */
  platform?: boolean;
}

const KEY = "aenv-token";
const listeners = new Set<() => void>();
let token = sessionStorage.getItem(KEY);
let isRefused = false;

export const session = {
  hasRuns: false,
  /** Why a key in the address opened nothing. */
  problem: "",
  get token(): string | null {
    return token;
  },
  /** Whether the server wants a token, or another one. */
  get isRefused(): boolean {
    return isRefused;
  },
  signIn(given: string): void {
    token = given;
    isRefused = false;
    sessionStorage.setItem(KEY, given);
    listeners.forEach((tell) => tell());
  },
  signOut(): void {
    token = null;
    isRefused = true;
    sessionStorage.removeItem(KEY);
    listeners.forEach((tell) => tell());
  },
  refuse(): void {
    if (isRefused) return;
    isRefused = true;
    listeners.forEach((tell) => tell());
  },
  onChange(tell: () => void): () => void {
    listeners.add(tell);
    return () => listeners.delete(tell);
  },
};
