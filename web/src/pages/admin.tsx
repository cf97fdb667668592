/** Accounts: make, change and revoke tokens. For administrators. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
import { Table, type Column } from "../table";
import { Badge, Code, Confirm, Empty, Problem, useAsked, useTitle } from "../ui";
import { day } from "../words";

interface Account {
  id: string;
  user: string;
  role: string;
  maxInstanceCount: number | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
}

export function AdminPage(): JSX.Element {
  useTitle("Admin");
  const { value, error, reload } = useAsked((signal) => ask<Account[]>("GET", "/token", { signal }), []);
  const [problem, fail] = useState<unknown>(undefined);
  const [revoked, revoke] = useState<Account | null>(null);
  const [words, type] = useState("");
  const quota = (account: Account, text: string) => {
    const body = { user: account.user, max_instances: Number(text) };
    ask("PUT", "/token", { body }).then(reload, fail);
  };
  const columns: Column<Account>[] = [
    { title: "User", width: "minmax(7rem, 2fr)", by: (one) => one.user, cell: (one) => <><strong>{one.user}</strong> <span class="quiet">{one.id}</span></> },
    { title: "Role", width: "4.5rem", by: (one) => one.role, cell: (one) => one.role },
    { title: "Instances at most", width: "9rem", by: (one) => one.maxInstanceCount ?? Infinity, cell: (one) => <Quota key={one.id} of={one} set={quota} />, wide: true },
    { title: "Made", width: "9.8rem", by: (one) => one.created_at, cell: (one) => day(one.created_at), wide: true },
    { title: "Ends", width: "9.8rem", by: (one) => one.expires_at ?? "~", cell: (one) => (one.expires_at ? day(one.expires_at) : "–"), wide: true },
    { title: "State", width: "6rem", by: (one) => (one.revoked_at ? 1 : 0), cell: (one) => <State of={one} revoke={revoke} /> },
  ];
  return (
    <div class={value?.length ? "full" : ""}>
      <h1>Tokens and quotas</h1>
      {error !== undefined && <Problem error={error} />}
      {problem !== undefined && <Problem error={problem} />}
      <NewToken done={reload} isFirst={value?.length === 0} />
      {value && !value.length && (
        <Empty title="There are no accounts">
          <p>Everyone who reaches this gateway is its administrator. The first account closes it: make it an administrator's.</p>
        </Empty>
      )}
      {value && value.length > 0 && (
        <>
          <input
            type="search"
            class="search"
            placeholder="User, role, id"
            aria-label="Filter accounts"
            value={words}
            onInput={(event) => type(event.currentTarget.value)}
          />
          <Table label="Accounts" rows={value.filter((one) => matches(one, words))} id={(one) => one.id} columns={columns} rowHeight={44} />
        </>
      )}
      {revoked && (
        <Confirm
          question={`Revoke this token of ${revoked.user}? Programs that use it stop working.`}
          action="Revoke"
          run={() => void ask("DELETE", path("token", revoked.id)).then(reload, fail)}
          close={() => revoke(null)}
        />
      )}
    </div>
  );
}

function matches(account: Account, words: string): boolean {
  const text = [account.user, account.role, account.id].join(" ").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function Quota({ of, set }: { of: Account; set: (account: Account, text: string) => void }): JSX.Element {
  return (
    <input
      class="short"
      type="number"
      min={1}
      aria-label={`Instances that ${of.user} may have`}
      value={of.maxInstanceCount ?? ""}
      placeholder="no limit"
      disabled={of.revoked_at !== null}
      onChange={(event) => {
        const box = event.currentTarget;
        if (box.value) set(of, box.value);
        else box.value = String(of.maxInstanceCount ?? ""); // a limit can be changed, and not taken away
      }}
    />
  );
}

function State({ of, revoke }: { of: Account; revoke: (account: Account) => void }): JSX.Element {
  if (of.revoked_at) return <Badge kind="bad">Revoked</Badge>;
  return (
    <button type="button" class="danger" aria-label={`Revoke the token of ${of.user}`} onClick={() => revoke(of)}>
      Revoke
    </button>
  );
}

function NewToken({ done, isFirst }: { done: () => void; isFirst: boolean }): JSX.Element {
  const [user, name] = useState("");
  const [role, choose] = useState("");
  const [expires, until] = useState("");
  const [made, show] = useState<string | null>(null);
  const [error, fail] = useState<unknown>(undefined);
  const chosen = role || (isFirst ? "admin" : "user");
  const make = async (event: Event) => {
    event.preventDefault();
    try {
      const account = await ask<{ token: string }>("POST", "/token", { body: { user, role: chosen, ...(expires && { expires }) } });
      show(account.token);
      fail(undefined);
      if (!isFirst) done();
    } catch (problem) {
      fail(problem);
    }
  };
  return (
    <section>
      <form class="row" onSubmit={make}>
        <input aria-label="User" placeholder="User" value={user} onInput={(event) => name(event.currentTarget.value)} required />
        <select aria-label="Role" value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
          <option>viewer</option>
          <option>user</option>
          <option>admin</option>
        </select>
        <select aria-label="Ends" value={expires} onChange={(event) => until(event.currentTarget.value)}>
          <option value="">no end</option>
          {["1d", "7d", "30d", "365d"].map((one) => (
            <option key={one} value={one}>
              ends in {one.slice(0, -1)} {one === "1d" ? "day" : "days"}
            </option>
          ))}
        </select>
        <button type="submit" class="primary">
          Make a token
        </button>
      </form>
      {error !== undefined && <Problem error={error} />}
      {made && (
        <>
          <p>This token is shown once. Give it to its user.</p>
          <Code text={made} label="token" />
        </>
      )}
    </section>
  );
}
