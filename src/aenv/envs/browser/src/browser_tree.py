"""The accessibility tree as text: what Chromium tells assistive programs, one line a thing, with refs to act on.

- heading "Contact us" level=1
- textbox "Your name" [e7]
- checkbox "Send me a copy" [e11] checked
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MOST_CHARACTERS = 30_000
_MOST_OF_A_NAME = 200
_DEEPEST = 30
# Parts of the browser's own, or of a text that its parent has told already.
_SILENT = {
    *("InlineTextBox", "LineBreak", "none", "generic", "paragraph", "LayoutTable", "ListMarker", "RootWebArea"),
    "LabelText",
}
_ACTED_ON = {
    *("button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox", "option", "menuitem"),
    *("Date", "DateTime", "InputTime", "ColorWell"),
    *("slider", "spinbutton", "switch", "tab", "treeitem", "menuitemcheckbox", "menuitemradio", "textarea"),
}
_FIELDS = {"textbox", "searchbox", "spinbutton"}
_STATES = ("checked", "disabled", "expanded", "selected", "pressed", "required", "invalid")


class Tree:
    """The text, and the number of the DOM's node behind each ref."""

    def __init__(self) -> None:
        self.text = ""
        self.nodes: dict[str, int] = {}


def tree_of(nodes: list[dict[str, Any]]) -> Tree:
    """From the answer of the DevTools protocol's `Accessibility.getFullAXTree`."""
    by_id = {node["nodeId"]: node for node in nodes}
    tree = Tree()
    lines: list[str] = []
    size = 0
    for line in _lines(by_id, nodes[0], tree) if nodes else ():
        size += len(line) + 1
        if size > _MOST_CHARACTERS:
            lines.append("[the rest is left out: the page is too large]")
            break
        lines.append(line)
    tree.text = "\n".join(lines)
    return tree


def _lines(by_id: dict[str, dict[str, Any]], root: dict[str, Any], tree: Tree) -> Iterator[str]:
    waiting = [(root, 0)]  # not a recursion: a page can be nested as deep as it likes
    while waiting:
        node, depth = waiting.pop()
        role, name = _value(node, "role"), _value(node, "name")
        is_shown = not node.get("ignored") and role not in _SILENT and bool(name or role != "StaticText")
        if is_shown:
            yield "  " * depth + _line(node, role, name, tree)
        # What is written in a field is its value, told already.
        ids = () if role in _FIELDS and _value(node, "value") else node.get("childIds", ())
        children = [by_id[id] for id in ids if id in by_id]
        # A button's text is the button's name, and a label's text its field's: once is enough.
        told = [_value(one, "name") for one in children if _value(one, "role") in _ACTED_ON]
        told += [name] if is_shown else []
        below = min(depth + is_shown, _DEEPEST)
        waiting += [(child, below) for child in reversed(children) if not _is_told(child, told)]


def _is_told(node: dict[str, Any], told: list[str]) -> bool:
    text = _value(node, "name")
    return _value(node, "role") == "StaticText" and any(text in one for one in told)


def _line(node: dict[str, Any], role: str, name: str, tree: Tree) -> str:
    if role == "StaticText":
        return f"- {_cut(name)}"
    words = ["-", role]
    if name:
        words.append(f'"{_cut(name)}"')
    backend = node.get("backendDOMNodeId")
    if role in _ACTED_ON and isinstance(backend, int):
        ref = f"e{len(tree.nodes) + 1}"
        tree.nodes[ref] = backend
        words.append(f"[{ref}]")
    if value := _value(node, "value"):
        words.append(f'value="{_cut(value)}"')
    return " ".join([*words, *_states(node)])


def _states(node: dict[str, Any]) -> Iterator[str]:
    for one in node.get("properties", ()):
        value = one.get("value", {}).get("value")
        if one.get("name") in _STATES and value is not None and value is not False and value != "false":
            yield one["name"] if value is True or value == "true" else f"{one['name']}={value}"


def _value(node: dict[str, Any], key: str) -> str:
    return str(node.get(key, {}).get("value", "")).strip()


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_OF_A_NAME else f"{line[:_MOST_OF_A_NAME]}…"
