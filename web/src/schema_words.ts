/** JSON schemas in words, and values that fit them, for pages and for code to copy. */

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  required?: string[];
}

/** A schema is as deep as its author likes; words are not. */
const DEEPEST = 3;

/** A part of a schema, with what its `$ref` names in its place. What the part says itself stays. */
export function named(part: Schema, whole: Schema): Schema {
  const ref = part.$ref ?? (part.allOf?.length === 1 ? part.allOf[0]!.$ref : undefined);
  const found = ref?.startsWith("#/$defs/") ? whole.$defs?.[ref.slice("#/$defs/".length)] : undefined;
  return found ? { ...found, ...part } : part;
}

/** The one schema that a value which may be null has otherwise, as in `Optional[Colour]`; else the part itself. */
export function beyondNull(part: Schema, whole: Schema): Schema {
  const choices = (part.anyOf ?? part.oneOf)?.filter((one) => one.type !== "null");
  return choices?.length === 1 ? { ...named(choices[0]!, whole), description: part.description, default: part.default } : named(part, whole);
}

/** The type as people say it, as in "list of string or null". */
export function typeWords(part: Schema, whole: Schema, depth = 0): string {
  const meant = named(part, whole);
  const schema = Array.isArray(meant.enum) ? meant : part;
  if (Array.isArray(schema.enum)) return schema.enum.map(String).join(" | ");
  if (schema.const !== undefined) return String(schema.const);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices) && depth < DEEPEST) return unique(choices.map((one) => typeWords(one, whole, depth + 1)));
  if (Array.isArray(schema.type)) return unique(schema.type);
  if (schema.type === "array") {
    return schema.items?.type || schema.items?.$ref ? `list of ${depth < DEEPEST ? typeWords(schema.items, whole, depth + 1) : "any"}` : "list";
  }
  return schema.type ?? schema.$ref?.split("/").at(-1) ?? "any";
}

const unique = (words: string[]): string => [...new Set(words)].join(" or ");

/** Arguments that a call needs, with its parameters' names in capitals where a text is wanted. */
export function sampleArguments(schema: Schema | undefined, whole = schema, depth = 0): Record<string, unknown> {
  const needed = (schema?.required ?? []).filter((name) => schema?.properties?.[name]);
  return Object.fromEntries(needed.map((name) => [name, sample(name, schema!.properties![name]!, whole!, depth + 1)]));
}

export function sample(name: string, part: Schema, whole: Schema, depth = 0): unknown {
  const schema = beyondNull(part, whole);
  if (Array.isArray(schema.enum)) return schema.enum[0];
  if (schema.const !== undefined) return schema.const;
  if (schema.properties && depth < DEEPEST) return sampleArguments(schema, whole, depth);
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

/** A tool, function or reward as the hub describes it. */
export interface Offer {
  name: string;
  description?: string;
  inputSchema?: Schema;
  input_schema?: Schema;
  parameters?: Record<string, { type: string; default: string | null }>;
}

/** The schema of its arguments. The hub tells a function's by its parameters, with defaults as Python writes them. */
export function offered({ inputSchema, input_schema, parameters }: Offer): Schema | undefined {
  const schema = inputSchema ?? input_schema;
  if (schema || !parameters) return schema;
  const properties = Object.entries(parameters).map(([name, { type, default: word }]) => [name, { type, default: fromPython(type, word) }]);
  return { type: "object", properties: Object.fromEntries(properties) };
}

function fromPython(type: string, word: string | null): unknown {
  if (word === null) return undefined;
  if (type === "boolean") return word === "True";
  return type === "number" || type === "integer" ? Number(word) : type === "string" ? word : undefined;
}
