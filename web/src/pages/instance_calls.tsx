/** The last calls of an instance, from every client: what was asked, how long it took, and how it ended. */

import type { JSX } from "preact";
import { ask, path } from "../api";
import { Badge, Empty, Problem, useAsked } from "../ui";
import { bytes, milliseconds } from "../words";

interface Past {
  kind: string;
  name: string;
  arguments: string;
  started_at: string;
  duration_ms: number;
  ok: boolean;
  result_bytes: number;
  error?: string;
}

export function Calls({ id }: { id: string }): JSX.Element {
  const { value, error, reload } = useAsked((signal) => ask<Past[]>("GET", path("env-instance", id, "history"), { signal }), [id]);
  if (error !== undefined) return <Problem error={error} />;
  if (value && !value.length) return <Empty title="Nothing was called yet" />;
  return (
    <>
      <button type="button" onClick={reload}>
        Look again
      </button>
      <div class="scroll" tabIndex={0} role="region" aria-label="Calls">
        <table>
          <thead>
            <tr>
              <th>Time</th>
              <th>Call</th>
              <th>Arguments</th>
              <th>Took</th>
              <th>Answer</th>
            </tr>
          </thead>
          <tbody>{(value ?? []).toReversed().map((call, at) => <Row key={at} call={call} />)}</tbody>
        </table>
      </div>
    </>
  );
}

function Row({ call }: { call: Past }): JSX.Element {
  return (
    <tr>
      <td>
        <time dateTime={call.started_at}>{call.started_at.slice(11, 23)}</time>
      </td>
      <th scope="row">
        <code>{call.name}</code> {call.kind !== "tool" && <span class="quiet">{call.kind}</span>}
      </th>
      <td>
        <code class="wrap">{call.arguments}</code>
      </td>
      <td>{milliseconds(call.duration_ms / 1000)}</td>
      <td class="wrap">
        <Badge kind={call.ok ? "good" : "bad"}>{call.ok ? "ok" : "error"}</Badge> {call.error ?? bytes(call.result_bytes)}
      </td>
    </tr>
  );
}
