/** A form of a JSON schema's properties. What a form cannot ask for is typed as JSON. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { beyondNull, sample, type Schema } from "./schema_words";
import { Problem } from "./ui";

interface FormProps {
  schema: Schema;
  action: string;
  busy: boolean;
  run: (values: Record<string, unknown>) => void;
}

type Kind = "text" | "number" | "integer" | "boolean" | "choice" | "json";

export function SchemaForm({ schema, action, busy, run }: FormProps): JSX.Element {
  const fields = fieldsOf(schema);
  const [texts, set] = useState<Record<string, string>>({});
  const [asJson, write] = useState<string | null>(fields.length || !schema.properties ? null : "{}");
  const [error, fail] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    try {
      run(asJson === null ? read(schema, texts) : (JSON.parse(asJson) as Record<string, unknown>));
      fail("");
    } catch (problem) {
      fail((problem as Error).message);
    }
  };
  return (
    <form class="schema" onSubmit={submit}>
      {asJson === null ? (
        fields.map(([name, part]) => (
          <Field
            key={name}
            name={name}
            part={part}
            example={JSON.stringify(sample(name, part, schema))}
            needed={schema.required?.includes(name) ?? false}
            text={typed(texts, name)}
            type={(text) => set({ ...texts, [name]: text })}
          />
        ))
      ) : (
        <label class="field">
          Arguments as JSON
          <textarea rows={6} spellcheck={false} value={asJson} onInput={(event) => write(event.currentTarget.value)} />
        </label>
      )}
      {error && <Problem error={error} />}
      <div class="row">
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Running…" : action}
        </button>
        <button type="button" class="plain" onClick={() => write(asJson === null ? started(schema, texts) : null)}>
          {asJson === null ? "As JSON" : "As a form"}
        </button>
      </div>
    </form>
  );
}

function started(schema: Schema, texts: Record<string, string>): string {
  try {
    return JSON.stringify(read(schema, texts), null, 2);
  } catch {
    return "{}";
  }
}

interface FieldProps {
  name: string;
  part: Schema;
  /** What may be typed where JSON is. */
  example: string;
  needed: boolean;
  text: string | undefined;
  type: (text: string) => void;
}

function Field({ name, part, example, needed, text, type }: FieldProps): JSX.Element {
  const kind = kindOf(part);
  const shown = text ?? (part.default === undefined || part.default === null ? "" : spelled(part.default, kind));
  const id = `field-${name}`;
  const about = part.description ? `${id}-about` : undefined;
  const common = { id, "aria-describedby": about, required: needed && kind !== "boolean" };
  return (
    <div class="field">
      <label for={id}>
        <code>{name}</code> <span class="quiet">{needed ? "needed" : ""}</span>
      </label>
      {kind === "boolean" ? (
        <input {...common} type="checkbox" checked={shown === "true"} onChange={(event) => type(String(event.currentTarget.checked))} />
      ) : kind === "choice" ? (
        <select {...common} value={shown} onChange={(event) => type(event.currentTarget.value)}>
          <option value="" />
          {part.enum!.map((one) => (
            <option key={String(one)} value={JSON.stringify(one)}>
              {String(one)}
            </option>
          ))}
        </select>
      ) : kind === "number" || kind === "integer" ? (
        <input {...common} type="number" step={kind === "integer" ? 1 : "any"} value={shown} onInput={(event) => type(event.currentTarget.value)} />
      ) : (
        <textarea {...common} rows={kind === "json" ? 3 : 1} spellcheck={false} value={shown} placeholder={kind === "json" ? `JSON, as ${example}` : ""} onInput={(event) => type(event.currentTarget.value)} />
      )}
      {about && (
        <p class="quiet" id={about}>
          {part.description}
        </p>
      )}
    </div>
  );
}

/** What was typed for a parameter, which may be called as what every object has, such as "constructor". */
const typed = (texts: Record<string, string>, name: string): string | undefined => (Object.hasOwn(texts, name) ? texts[name] : undefined);

/** The parameters, each as the form asks for it. */
const fieldsOf = (schema: Schema): [string, Schema][] =>
  Object.entries(schema.properties ?? {}).map(([name, part]) => [name, beyondNull(part, schema)]);

function kindOf(part: Schema): Kind {
  if (part.enum) return "choice";
  const types = part.anyOf ? part.anyOf.flatMap((one) => one.type ?? "object") : [part.type ?? "object"].flat();
  const [only, ...others] = types.filter((one) => one !== "null");
  if (others.length || !only) return "json";
  if (only === "string") return "text";
  return only === "number" || only === "integer" || only === "boolean" ? only : "json";
}

const spelled = (value: unknown, kind: Kind): string =>
  kind === "text" ? String(value) : kind === "json" || kind === "choice" ? JSON.stringify(value) : String(value);

/** The values that were typed. What was left empty is left out, unless it is needed. */
function read(schema: Schema, texts: Record<string, string>): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const [name, part] of fieldsOf(schema)) {
    const text = typed(texts, name);
    const kind = kindOf(part);
    if (text === undefined || (text === "" && kind !== "text")) continue;
    if (kind === "text") values[name] = text;
    else if (kind === "boolean") values[name] = text === "true";
    else if (kind === "number" || kind === "integer") values[name] = Number(text);
    else values[name] = parsed(name, text);
  }
  return values;
}

function parsed(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`field '${name}' is not JSON; write texts in quotes`);
  }
}
