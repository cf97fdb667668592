/** The page of those who have no token yet, or one that is not valid any more. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { session } from "./session";
import { Problem, useTitle } from "./ui";

export function SignIn(): JSX.Element {
  useTitle("Sign in");
  const [token, set] = useState("");
  const [error, fail] = useState("");
  const enter = async (event: Event) => {
    event.preventDefault();
    // Asked here and not by `ask`: a refusal is not the end of a session.
    const headers = { authorization: `Bearer ${token.trim()}` };
    const reply = await fetch("/whoami", { headers, credentials: "omit" }).catch(() => null);
    if (reply?.ok) session.signIn(token.trim());
    else fail(reply ? "This token does not exist, was revoked, or has expired." : "The server does not answer.");
  };
  if (session.problem || session.hasRuns) {
    return (
      <main class="sign-in">
        <h1>aenv</h1>
        <Problem error={session.problem || "this session has ended; run 'aenv view' again"} />
      </main>
    );
  }
  return (
    <main class="sign-in">
      <h1>aenv</h1>
      <form onSubmit={enter}>
        <label for="token">Token of your account</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={token}
          onInput={(event) => set(event.currentTarget.value)}
          aria-describedby="token-help"
          required
        />
        <button class="primary" type="submit">
          Sign in
        </button>
        {error && <Problem error={error} />}
        <p id="token-help" class="quiet">
          An administrator makes one with <code>aenv token create --user NAME</code>. It is kept in this tab only.
        </p>
      </form>
    </main>
  );
}
