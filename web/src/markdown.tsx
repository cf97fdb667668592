/** Markdown as elements. Its HTML stays text, and its pictures are links: nothing of it runs, or is fetched. */

import { marked, type Token, type Tokens } from "marked";
import type { ComponentChildren, JSX } from "preact";
import { Code } from "./ui";

export function Markdown({ text }: { text: string }): JSX.Element {
  return <div class="markdown">{blocks(marked.lexer(text))}</div>;
}

function blocks(tokens: Token[]): ComponentChildren[] {
  return tokens.map((token, key) => block(token, key));
}

function block(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return heading(token as Tokens.Heading, key);
    case "paragraph":
      return <p key={key}>{inlines((token as Tokens.Paragraph).tokens)}</p>;
    case "code":
      return <Code key={key} text={(token as Tokens.Code).text} label="code" />;
    case "blockquote":
      return <blockquote key={key}>{blocks((token as Tokens.Blockquote).tokens)}</blockquote>;
    case "list":
      return list(token as Tokens.List, key);
    case "table":
      return table(token as Tokens.Table, key);
    case "hr":
      return <hr key={key} />;
    case "checkbox":
      return tick(token as Tokens.Checkbox);
    case "text":
      return <span key={key}>{inlines((token as Tokens.Text).tokens ?? [token])}</span>;
    default:
      return <p key={key}>{token.raw}</p>;
  }
}

function heading(token: Tokens.Heading, key: number): JSX.Element {
  // The page has a title of its own, so those of the text come below it.
  const Tag = `h${Math.min(token.depth + 1, 6)}` as "h2";
  return <Tag key={key}>{inlines(token.tokens)}</Tag>;
}

const tick = (token: Tokens.Checkbox): string => (token.checked ? "☑ " : "☐ ");

function list(token: Tokens.List, key: number): JSX.Element {
  const items = token.items.map((item, at) => <li key={at}>{blocks(item.tokens)}</li>);
  return token.ordered ? <ol key={key} start={Number(token.start)}>{items}</ol> : <ul key={key}>{items}</ul>;
}

function table(token: Tokens.Table, key: number): JSX.Element {
  return (
    <div class="scroll" key={key} tabIndex={0} role="region" aria-label="table">
      <table>
        <thead>
          <tr>
            {token.header.map((cell, at) => (
              <th key={at}>{inlines(cell.tokens)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, column) => (
                <td key={column}>{inlines(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inlines(tokens: Token[] | undefined): ComponentChildren[] {
  return (tokens ?? []).map((token, key) => inline(token, key));
}

function inline(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inlines((token as Tokens.Strong).tokens)}</strong>;
    case "em":
      return <em key={key}>{inlines((token as Tokens.Em).tokens)}</em>;
    case "del":
      return <del key={key}>{inlines((token as Tokens.Del).tokens)}</del>;
    case "codespan":
      return <code key={key}>{(token as Tokens.Codespan).text}</code>;
    case "checkbox":
      return tick(token as Tokens.Checkbox);
    case "br":
      return <br key={key} />;
    case "link":
    case "image":
      return outward(token as Tokens.Link, key);
    case "text":
      return (token as Tokens.Text).tokens ? inlines((token as Tokens.Text).tokens) : plain((token as Tokens.Text).text);
    case "escape":
      return plain((token as Tokens.Escape).text);
    default:
      return token.raw;
  }
}

/** A link to a web page; any other address is shown as text. */
function outward(token: Tokens.Link | Tokens.Image, key: number): ComponentChildren {
  const inside = token.type === "link" ? inlines(token.tokens) : token.text || token.href;
  if (!/^https?:\/\//i.test(token.href)) return <span key={key}>{inside}</span>;
  return (
    <a key={key} href={token.href} target="_blank" rel="noopener noreferrer nofollow">
      {inside}
    </a>
  );
}

const NAMED: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: " " };

const plain = (text: string): string => text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name: string) => NAMED[name]!);
