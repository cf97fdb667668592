// In every page of the preview, before its own scripts: it tells the IDE what the console shows. The frame has no
// origin, so it has no storage either: pages get one that lasts until they are loaded again.
(() => {
  const tell = (level, text) => parent.postMessage({ aenvPreview: { level, text: String(text).slice(0, 2000) } }, "*");
  const words = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Error) return value.stack || String(value);
    try {
      return JSON.stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  };
  for (const level of ["debug", "log", "info", "warn", "error"]) {
    const own = console[level].bind(console);
    console[level] = (...values) => {
      tell(level, values.map(words).join(" "));
      own(...values);
    };
  }
  addEventListener("error", (event) => {
    const target = event.target;
    const file = String(event.filename ?? "").split("/").slice(5).join("/");
    if (event.message) tell("error", `${event.message} (${file}:${event.lineno})`);
    else if (target instanceof Element) {
      tell("error", `cannot load ${target.getAttribute("src") ?? target.getAttribute("href") ?? "a file"}`);
    }
  }, true);
  addEventListener("unhandledrejection", (event) => {
    tell("error", `not caught: ${words(event.reason)}`);
  });
  addEventListener("securitypolicyviolation", (event) => {
    tell("error", `refused: ${event.blockedURI || "inline"} (the preview reaches its own files alone)`);
  });
  class MemoryStorage {
    #kept = new Map();
    get length() { return this.#kept.size; }
    key(number) { return [...this.#kept.keys()][number] ?? null; }
    getItem(name) { return this.#kept.get(String(name)) ?? null; }
    setItem(name, value) { this.#kept.set(String(name), String(value)); }
    removeItem(name) { this.#kept.delete(String(name)); }
    clear() { this.#kept.clear(); }
  }
  for (const name of ["localStorage", "sessionStorage"]) {
    Object.defineProperty(window, name, { value: new MemoryStorage(), configurable: true });
  }
  tell("loaded", "");
})();
