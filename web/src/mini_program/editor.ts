/** CodeMirror, in a shadow root: there its styles are adopted sheets, which the page's policy allows. */

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { css } from "@codemirror/lang-css";
import { html } from "@codemirror/lang-html";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Annotation, EditorState, type Extension } from "@codemirror/state";
import { EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const LANGUAGES: Record<string, () => Extension> = {
  html: () => html(),
  css: () => css(),
  js: () => javascript(),
  mjs: () => javascript(),
  ts: () => javascript({ typescript: true }),
  json: () => json(),
  py: () => python(),
};
const fromElsewhere = Annotation.define<boolean>();

// The page's own colours, light and dark: custom properties reach into a shadow root.
const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.tagName, tags.operatorKeyword], color: "var(--accent)" },
  { tag: [tags.string, tags.attributeValue, tags.regexp], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.unit, tags.color], color: "var(--warn)" },
  { tag: [tags.comment, tags.meta], color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.attributeName, tags.propertyName, tags.definition(tags.variableName)], color: "var(--text)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);
const look = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--text)", backgroundColor: "var(--panel)" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace' },
  ".cm-gutters": { color: "var(--quiet)", backgroundColor: "var(--soft)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-panels": { color: "var(--text)", backgroundColor: "var(--soft)" },
});

// Typed over a selection, a text would take the look of what it replaces: browsers write that as a style attribute,
// which the page's policy refuses.
const typeOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || event.data === null || view.state.selection.main.empty) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

/** An editor in `place`; `onChange` is told of what a person types, and of nothing else. */
export class Editor {
  private view: EditorView;

  constructor(place: HTMLElement, path: string, text: string, onChange: (text: string) => void) {
    const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
    root.replaceChildren();
    const language = LANGUAGES[path.split(".").pop() ?? ""]?.() ?? [];
    this.view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          indentOnInput(),
          bracketMatching(),
          highlightActiveLine(),
          highlightSelectionMatches(),
          syntaxHighlighting(colours),
          look,
          typeOver,
          EditorView.lineWrapping,
          // Escape, then Tab, leaves the editor with the keyboard.
          keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ "aria-label": `Text of ${path}`, tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            const isOurs = update.transactions.some((one) => one.annotation(fromElsewhere));
            if (update.docChanged && !isOurs) onChange(update.state.doc.toString());
          }),
          language,
        ],
      }),
    });
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  /** Show another text: the agent has written the file, or a version was chosen. */
  replace(text: string): void {
    if (text === this.text) return;
    this.view.dispatch({
      changes: { from: 0, to: this.view.state.doc.length, insert: text },
      annotations: fromElsewhere.of(true),
    });
  }

  close(): void {
    this.view.destroy();
  }
}
