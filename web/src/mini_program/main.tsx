/** The Mini Program IDE: chat, files, preview and versions of one project. */

import { render, type JSX } from "preact";
import { useState } from "preact/hooks";
import "../style.css";
import "./style.css";
import { ask } from "../api";
import { session } from "../session";
import { nextTheme, theme } from "../theme";
import { Empty } from "../ui";
import { Chat } from "./chat";
import { Code } from "./code";
import { Preview } from "./preview";
import { Versions } from "./versions";
import { useWorkshop, workshop } from "./workshop";

function Ide(): JSX.Element {
  const { state, connection } = useWorkshop();
  const [draft, say] = useState({ text: "" });
  if (connection === "ended" || session.isRefused) return <Ended />;
  if (!state) return <main class="loading" aria-label="Loading" />;
  return (
    <>
      <Head />
      <main class="ide">
        <div class="column">
          <Chat draft={draft} />
          <Versions />
        </div>
        <Code />
        <Preview repair={(text) => say({ text })} />
      </main>
    </>
  );
}

function Head(): JSX.Element {
  const { state, connection } = useWorkshop();
  const [shown, show] = useState(theme());
  const { project, model, is_script } = state!;
  return (
    <header class="frame">
      <h1 class="brand">Mini Program IDE</h1>
      <span class="wrap">{project}</span>
      <div class="who">
        <span role="status" class="connection lost">
          {connection === "lost" ? "Connection lost, trying again" : ""}
        </span>
        <span class="quiet">{is_script ? "a script, no model" : model}</span>
        <button type="button" class="plain" onClick={() => (nextTheme(), show(theme()))}>
          {shown === "dark" ? "Light" : "Dark"}
        </button>
      </div>
    </header>
  );
}

function Ended(): JSX.Element {
  return (
    <main>
      <Empty title="This session has ended" whole>
        <p>
          Run <code>aenv view --mini-program</code> again, and open the address that it prints. The project is saved.
        </p>
      </Empty>
    </main>
  );
}

/** `#key=…`, which the command has put into the address: exchanged once, and taken out of the history. */
async function enter(): Promise<void> {
  const key = /^#key=([\w-]+)$/.exec(location.hash)?.[1];
  if (key) {
    history.replaceState(null, "", location.pathname);
    const { token } = await ask<{ token: string }>("POST", "/view/session", { body: { key } });
    session.signIn(token);
  }
  if (!session.token) session.refuse();
}

theme();
enter()
  .catch(() => session.refuse())
  .finally(() => {
    if (!session.isRefused) void workshop.follow();
    render(<Ide />, document.getElementById("app")!);
  });
