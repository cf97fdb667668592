/** What a tool answered: text, pictures and values. All of it is data; none of it becomes a page. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { JsonTree } from "./json_tree";
import { Lenient } from "./ui";

export interface Part {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  image_url?: { url?: string };
}

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_TEXT = 200_000;

export function Content({ parts, value }: { parts: Part[]; value?: unknown }): JSX.Element {
  const hasValue = value !== undefined && value !== null;
  return (
    <div class="content">
      {hasValue && <JsonTree value={value} open={2} />}
      {parts
        .filter((part) => !(hasValue && part?.type === "text"))
        .map((part, at) => (
          <Lenient key={at} instead={<JsonTree value={part} open={1} />}>
            <One part={part} />
          </Lenient>
        ))}
    </div>
  );
}

function One({ part }: { part: Part }): JSX.Element {
  if (part.type === "text" && typeof (part.text ?? "") === "string") return <Text text={part.text ?? ""} />;
  const other = <JsonTree value={part} open={1} />;
  if (part.type === "image" && part.data && PICTURES.includes(part.mimeType ?? "")) {
    return <Picture kind={part.mimeType!} data={part.data} alt="Picture that the tool answered" other={other} />;
  }
  const [, kind, data] = /^data:([^;,]*);base64,(.*)$/s.exec((part.type === "image_url" && part.image_url?.url) || "") ?? [];
  if (kind && PICTURES.includes(kind)) return <Picture kind={kind} data={data!} alt="Picture of the message" other={other} />;
  return other;
}

interface PictureProps {
  kind: string;
  data: string;
  alt: string;
  other: JSX.Element;
}

/** A picture in base64, or `other` where it is not base64, about which a browser complains in its console. */
function Picture({ kind, data, alt, other }: PictureProps): JSX.Element {
  const isBase64 = useMemo(() => decodes(data), [data]);
  return isBase64 ? <img src={`data:${kind};base64,${data}`} alt={alt} /> : other;
}

function decodes(text: string): boolean {
  try {
    return atob(text).length > 0;
  } catch {
    return false;
  }
}

export function Text({ text }: { text: string }): JSX.Element {
  const parsed = asJson(text);
  if (parsed !== undefined) return <JsonTree value={parsed} open={2} />;
  return (
    <pre class="text" tabIndex={0}>
      {text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n… ${text.length - MAX_TEXT} characters more` : text}
    </pre>
  );
}

/** The object or list that a text is, if it is one. */
function asJson(text: string): unknown {
  if (!/^\s*[[{]/.test(text) || text.length > MAX_TEXT) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
