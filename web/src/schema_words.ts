/** JSON schemas in words, and values that fit them, for pages and for code to copy. */

export interface Schema {
  type?: string | string[];
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  properties?: Record<string, Schema>;
  required?: string[];
}

/** A schema is as deep as its author likes; words are not. */
const DEEPEST = 3;

/** The type as people say it, as in "list of string or null". */
export function typeWords(schema: Schema, depth = 0): string {
  if (Array.isArray(schema.enum)) return schema.enum.map(String).join(" | ");
  if (schema.const !== undefined) return String(schema.const);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices) && depth < DEEPEST) return unique(choices.map((one) => typeWords(one, depth + 1)));
  if (Array.isArray(schema.type)) return unique(schema.type);
  if (schema.type === "array") {
    return schema.items?.type || schema.items?.$ref ? `list of ${depth < DEEPEST ? typeWords(schema.items, depth + 1) : "any"}` : "list";
  }
  return schema.type ?? schema.$ref?.split("/").at(-1) ?? "any";
}

const unique = (words: string[]): string => [...new Set(words)].join(" or ");

/** Arguments that a call needs, with its parameters' names in capitals where a text is wanted. */
export function sampleArguments(schema: Schema | undefined): Record<string, unknown> {
  const needed = (schema?.required ?? []).filter((name) => schema?.properties?.[name]);
  return Object.fromEntries(needed.map((name) => [name, sample(name, schema!.properties![name]!)]));
}

function sample(name: string, schema: Schema): unknown {
  if (Array.isArray(schema.enum)) return schema.enum[0];
  if (schema.const !== undefined) return schema.const;
  const type = schema.anyOf?.[0]?.type ?? schema.type;
  const values: Record<string, unknown> = { integer: 1, number: 1, boolean: true, array: [], object: {}, null: null };
  return typeof type === "string" && type in values ? values[type] : name.toUpperCase();
}

/** A value of JSON as Python writes it. */
export function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${python(part)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
