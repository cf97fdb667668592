"""A script in the place of a model: it builds two apps and knows a few changes. It needs no network and no key.

It has no memory: each answer follows from the messages, as a model's does. What it changes it has read before, so
that changes of a person stay.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "script"
FIRST_WISHES = ("Make a to-do list", "Make a counter")
LATER_WISHES = ("Make it green", "Make it dark", "Make the text bigger", 'Call it "Groceries"')
_APPS = Path(__file__).parent / "apps"
_FILES = ("index.html", "style.css", "app.js")
_COLOURS = {
    "red": "#b3261e",
    "green": "#1b6e3c",
    "blue": "#2b5fd9",
    "orange": "#a34a00",
    "purple": "#6b3fc4",
    "pink": "#b0246f",
    "teal": "#0b6b75",
    "brown": "#6f4a2a",
    "black": "#20242b",
    "grey": "#55606b",
}
_DARK = {"--back": "#11151c", "--card": "#1c222c", "--text": "#e6eaf0", "--accent": "#5b7fe0"}
_LIGHT = {"--back": "#f4f6fb", "--card": "#ffffff", "--text": "#1b2230"}
_TITLE = re.compile(
    r"(?:call it|name it|rename it to|titled|title(?: it)?:?)\s+[\"“']?([^\"”']{1,40})", re.IGNORECASE
)
_HELP = (
    "I am a script and no model: start the IDE with --model to build what you like. "
    "I can make a to-do list or a counter, and then change its colour (red, green, blue, orange, purple, pink, "
    "teal, brown, black, grey), make it dark or light, make the text bigger or smaller, and give it a title."
)

Edit = Callable[[str], str]


@dataclass(frozen=True)
class ScriptedReply:
    """What the script said, in the form of a model's answer."""

    message: dict[str, Any]


class ScriptedModel:
    """Answers chat completions of the IDE."""

    async def complete(self, body: Mapping[str, Any]) -> ScriptedReply:
        return ScriptedReply({"role": "assistant", **_answer(body["messages"])})


def _answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    start = max(number for number, one in enumerate(messages) if one["role"] == "user")
    wish = str(messages[start]["content"])
    results = [one["content"] for one in messages[start:] if one["role"] == "tool"]
    step = sum(one["role"] == "assistant" for one in messages[start:])
    if step == 0:
        return _calls("I look at what is there.", ("list_files", {}))
    has_app = '"index.html"' in results[0]
    app = _app(wish)
    if app and (not has_app or not _edits(wish)):
        return _built(app, step, results)
    return _changed(_edits(wish), step, results) if has_app else {"content": _HELP}


def _app(wish: str) -> str:
    words = wish.lower()
    if re.search(r"\bcount", words):
        return "counter"
    return "todo" if re.search(r"to-?\s?do|\btasks?\b|\blist\b", words) else ""


def _built(app: str, step: int, results: list[str]) -> dict[str, Any]:
    if step == 1:
        files = [(name, (_APPS / app / name).read_text()) for name in _FILES]
        writes = [("write_file", {"path": name, "content": text}) for name, text in files]
        return _calls("I write a page, its style and its script.", *writes)
    if step == 2:
        return _calls("I check the page.", ("validate_html", {}), ("log_browser_console", {}))
    found = _problems(results[-2:])
    return {"content": f"Your app is ready, and {found}. Try it on the right, and say what should be different."}


def _changed(edits: dict[str, list[Edit]], step: int, results: list[str]) -> dict[str, Any]:
    if not edits:
        return {"content": _HELP}
    names = list(edits)
    if step == 1:
        return _calls("I read what I will change.", *(("read_file", {"path": name}) for name in names))
    if step == 2:
        writes = []
        for name, text in zip(names, results[1:], strict=False):
            after = text
            for edit in edits[name]:
                after = edit(after)
            if after != text:
                writes.append(("write_file", {"path": name, "content": after}))
        if writes:
            return _calls("I change it.", *writes)
        found = f"I found nothing to change in {', '.join(names)}"
        return {"content": f"{found}: it is so already, or you have rewritten it."}
    if step == 3:
        return _calls("I check the page.", ("validate_html", {}))
    return {"content": f"Done, and {_problems(results[-1:])}."}


def _edits(wish: str) -> dict[str, list[Edit]]:
    """How the files change, by their names."""
    found: dict[str, list[Edit]] = {}
    words = set(re.findall(r"[a-z]+", _TITLE.sub("", wish).lower()))
    for name, values in (("dark", _DARK), ("light", _LIGHT)):
        if name in words:
            found.setdefault("style.css", []).append(_setting(values))
    for name, value in _COLOURS.items():  # after those, which have a colour of their own
        if name in words:
            found.setdefault("style.css", []).append(_setting({"--accent": value}))
    for names, factor in (({"bigger", "larger"}, 1.25), ({"smaller"}, 0.8)):
        if names & words:
            found.setdefault("style.css", []).append(_scaled(factor))
    if match := _TITLE.search(wish):
        found["index.html"] = [_titled(match[1].strip(" .!"))]
    return found


def _setting(values: Mapping[str, str]) -> Edit:
    def edit(style: str) -> str:
        for name, value in values.items():
            style = re.sub(rf"({name}:)[^;}}]*", rf"\1 {value}", style, count=1)
        return style

    return edit


def _scaled(factor: float) -> Edit:
    def scaled(match: re.Match[str]) -> str:
        return f"--size: {min(40, max(10, round(int(match[1]) * factor)))}px"

    return lambda style: re.sub(r"--size:\s*([0-9]{1,3})px", scaled, style, count=1)


def _titled(title: str) -> Edit:
    told = html.escape(title)

    def edit(page: str) -> str:
        for tag in ("title", "h1"):
            page = re.sub(rf"(<{tag}>).*?(</{tag}>)", lambda match: f"{match[1]}{told}{match[2]}", page, count=1)
        return page

    return edit


def _problems(results: list[str]) -> str:
    """What the checks found, in words."""
    count = 0
    for text in results:
        try:
            said = json.loads(text)
        except ValueError:
            return f"a check failed: {text[:200]}"
        errors = said.get("errors") if isinstance(said, dict) else None
        count += len(errors) if isinstance(errors, list) else errors if isinstance(errors, int) else 0
    return "the checks found no error" if not count else f"the checks found {count} errors"


def _calls(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {
            "id": f"call-{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"content": text, "tool_calls": made}
