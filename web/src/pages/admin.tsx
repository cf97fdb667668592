/** Accounts: make, change and revoke tokens. For administrators. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, path } from "../api";
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
  const quota = (account: Account, text: string) => {
    const body = { user: account.user, max_instances: Number(text) };
    ask("PUT", "/token", { body }).then(reload, fail);
  };
  return (
    <>
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
        <div class="scroll" tabIndex={0} role="region" aria-label="Accounts">
          <table>
            <thead>
              <tr>
                <th>User</th>
                <th>Role</th>
                <th>Instances at most</th>
                <th>Made</th>
                <th>Ends</th>
                <th>State</th>
              </tr>
            </thead>
            <tbody>
              {value.map((account) => (
                <tr key={account.id}>
                  <th scope="row">
                    {account.user} <span class="quiet">{account.id}</span>
                  </th>
                  <td>{account.role}</td>
                  <td>
                    <input
                      class="short"
                      type="number"
                      min={1}
                      aria-label={`Instances that ${account.user} may have`}
                      value={account.maxInstanceCount ?? ""}
                      placeholder="no limit"
                      disabled={account.revoked_at !== null}
                      onChange={(event) => event.currentTarget.value && quota(account, event.currentTarget.value)}
                    />
                  </td>
                  <td>{day(account.created_at)}</td>
                  <td>{account.expires_at ? day(account.expires_at) : "–"}</td>
                  <td>
                    {account.revoked_at ? (
                      <Badge kind="bad">Revoked</Badge>
                    ) : (
                      <button type="button" class="danger" aria-label={`Revoke the token of ${account.user}`} onClick={() => revoke(account)}>
                        Revoke
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {revoked && (
        <Confirm
          question={`Revoke this token of ${revoked.user}? Programs that use it stop working.`}
          action="Revoke"
          run={() => void ask("DELETE", path("token", revoked.id)).then(reload, fail)}
          close={() => revoke(null)}
        />
      )}
    </>
  );
}

function NewToken({ done, isFirst }: { done: () => void; isFirst: boolean }): JSX.Element {
  const [user, name] = useState("");
  const [role, choose] = useState("");
  const [made, show] = useState<string | null>(null);
  const [error, fail] = useState<unknown>(undefined);
  const chosen = role || (isFirst ? "admin" : "user");
  const make = async (event: Event) => {
    event.preventDefault();
    try {
      const account = await ask<{ token: string }>("POST", "/token", { body: { user, role: chosen } });
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
