/** What a tool answered: text, pictures and values. All of it is data; none of it becomes a page. */

import type { JSX } from "preact";
import { JsonTree } from "./json_tree";

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
        .filter((part) => !(hasValue && part.type === "text"))
        .map((part, at) => (
          <One key={at} part={part} />
        ))}
    </div>
  );
}

function One({ part }: { part: Part }): JSX.Element {
  if (part.type === "text") return <Text text={part.text ?? ""} />;
  if (part.type === "image" && part.data && PICTURES.includes(part.mimeType ?? "")) {
    return <img src={`data:${part.mimeType};base64,${part.data}`} alt="Picture that the tool answered" />;
  }
  const url = part.type === "image_url" ? part.image_url?.url : undefined;
  if (url && PICTURES.some((kind) => url.startsWith(`data:${kind};base64,`))) {
    return <img src={url} alt="Picture of the message" />;
  }
  return <JsonTree value={part} open={1} />;
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
