/** The environment centre: sign-in, the frame around all pages, and which page an address shows. */

import { Component, render, type ComponentChildren, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./style.css";
import { ask, type ApiError } from "./api";
import { live } from "./live";
import { here, link, usePlace, type Place } from "./router";
import { session, type Caller } from "./session";
import { SignIn } from "./sign_in";
import { nextTheme, theme } from "./theme";
import { Empty, Problem } from "./ui";
import { AdminPage } from "./pages/admin";
import { EnvironmentPage } from "./pages/environment";
import { EnvironmentsPage } from "./pages/environments";
import { InstancePage } from "./pages/instance";
import { InstancesPage } from "./pages/instances";
import { OverviewPage } from "./pages/overview";
import { RunPage } from "./pages/run";
import { RunsPage } from "./pages/runs";
import { ServicesPage } from "./pages/services";

interface PageProps {
  place: Place;
  caller: Caller;
}

const PAGES: Record<string, (props: PageProps) => JSX.Element> = {
  "": OverviewPage,
  environments: ({ place, caller }) =>
    place.parts[1] ? <EnvironmentPage place={place} caller={caller} /> : <EnvironmentsPage place={place} />,
  instances: ({ place, caller }) =>
    place.parts[1] ? <InstancePage place={place} caller={caller} /> : <InstancesPage place={place} caller={caller} />,
  services: ServicesPage,
  runs: ({ place }) => (place.parts[1] ? <RunPage place={place} /> : <RunsPage />),
  admin: ({ caller }) => (caller.role === "admin" ? <AdminPage /> : <Empty title="Only administrators see tokens and quotas" whole />),
};

const MENU = [
  ["", "Overview"],
  ["environments", "Environments"],
  ["instances", "Instances"],
  ["services", "Services"],
  ["runs", "Runs"],
] as const;

function Centre(): JSX.Element {
  const place = usePlace();
  const [, draw] = useState(0);
  const [caller, know] = useState<Caller | null>(null);
  const [error, fail] = useState<unknown>(null);
  const [refusal, refuse] = useState("");
  useEffect(
    () =>
      session.onChange(() => {
        know(null); // the next one may be somebody else
        fail(null);
        live.forget();
        draw((count) => count + 1);
      }),
    [],
  );
  useEffect(() => {
    if (session.isRefused) return;
    ask<Caller>("GET", "/session").then((found) => {
      session.hasRuns = found.runs ?? false;
      know(found);
      // What only reads sends no origin, so it passes also where nothing else does.
      if (!found.runs) ask("POST", "/session").catch((error: ApiError) => error.status === 403 && refuse(error.message));
    }, fail);
  }, [session.token, session.isRefused]);
  const notice = refusal && <Refusal message={refusal} />;
  if (session.isRefused || (caller?.role === "anonymous" && !session.token)) {
    return (
      <>
        {notice}
        <SignIn />
      </>
    );
  }
  if (!caller || caller.role === "anonymous") return error ? <Problem error={error} /> : <div class="loading" />;
  const section = place.parts[0] ?? "";
  const Page = PAGES[section];
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => (event.preventDefault(), focusContent())}>
        Skip to the content
      </a>
      <Frame section={section} caller={caller} />
      <main id="content" tabIndex={-1}>
        {notice}
        <Guard key={place.parts.join("/")}>
          {Page ? <Page place={place} caller={caller} /> : <Empty title="There is no such page" whole />}
        </Guard>
      </main>
    </>
  );
}

/** The gateway is open by a name that it was not told, so it takes its own page for one of a stranger. */
function Refusal({ message }: { message: string }): JSX.Element {
  return (
    <p class="problem" role="alert">
      Here you can look, but not act: {message}. Start the gateway with <code>--allow-origin {location.origin}</code>
    </p>
  );
}

/** A page that fails does not take the others with it. */
class Guard extends Component<{ children: ComponentChildren }, { error?: unknown }> {
  override state: { error?: unknown } = {};

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ error });
  }

  render(): ComponentChildren {
    return this.state.error === undefined ? this.props.children : <Problem error={this.state.error} />;
  }
}

const focusContent = (): void => document.getElementById("content")?.focus();

function Frame({ section, caller }: { section: string; caller: Caller }): JSX.Element {
  const [, draw] = useState(0);
  const shown = theme();
  const all = caller.role === "admin" ? [...MENU, ["admin", "Admin"] as const] : MENU;
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }); // on a phone
  }, [section]);
  const menu = caller.platform === false ? all.filter(([name]) => name === "runs") : all;
  return (
    <header class="frame">
      <a class="brand" href="#/">
        aenv
      </a>
      <nav aria-label="Pages" ref={nav}>
        {menu.map(([name, title]) => (
          <a key={name} href={name ? link(name) : "#/"} aria-current={section === name ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <div class="who">
        {caller.platform !== false && <Connection />}
        <span class="quiet user">{caller.user}</span>
        <button type="button" class="plain" onClick={() => (nextTheme(), draw((count) => count + 1))}>
          {shown === "dark" ? "Light" : "Dark"}
        </button>
        {session.token && !caller.runs && (
          <button type="button" class="plain" onClick={() => session.signOut()}>
            Sign out
          </button>
        )}
      </div>
    </header>
  );
}

/** Said only while the live stream is lost: pages show what was last known. */
function Connection(): JSX.Element {
  const [state, set] = useState(live.state);
  useEffect(() => live.watch(() => set(live.state)), []);
  return (
    <span role="status" class={`connection ${state}`}>
      {state === "lost" ? "Connection lost, trying again" : ""}
    </span>
  );
}

/** `#key=…`, which `aenv view` has put into the address: exchanged once, and taken out of the history. */
async function enter(): Promise<void> {
  const key = /^#key=([\w-]+)$/.exec(location.hash)?.[1];
  if (key) {
    history.replaceState(null, "", "#/runs");
    const { token } = await ask<{ token: string }>("POST", "/view/session", { body: { key } });
    session.signIn(token);
  }
}

theme();
enter()
  .catch((error: Error) => {
    session.problem = error.message;
    session.refuse();
  })
  .finally(() => {
    here();
    render(<Centre />, document.getElementById("app")!);
  });
