"""What is wrong with a page, found without a browser: by a parser with the rules of browsers, and by its tree."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

from mini_program_paths import cleaned
from mini_program_plain_html import PlainParser

from aenv import ToolError

_MOST = 50
_FILES = {
    "script": "src",
    "link": "href",
    "img": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "a": "href",
}
_LABELLED = frozenset({"input", "select", "textarea"})
_WIDE = re.compile(r"(?<![\w-])(?:min-)?width\s*:\s*([0-9]{3,5})px")
_PHONE = 360


class Page:
    """A page that has been parsed."""

    def __init__(self, text: str, path: str) -> None:
        # Not at the top of the module: what every instance loads is the standard library.
        try:
            parser: Any = importlib.import_module("tinyhtml5.parser").HTMLParser(namespace_html_elements=False)
            self.checked_by = "tinyhtml5, which parses as the HTML standard says"
        except ModuleNotFoundError:
            parser = PlainParser()
            self.checked_by = "html.parser, which sees the nesting of tags alone: tinyhtml5 could not be installed"
        self.path = path
        self.tree: Element = parser.parse(text)
        self.errors = [
            {"line": line, "column": column, "code": code, "message": _words(code, given)}
            for (line, column), code, given in parser.errors[:_MOST]
        ]

    def elements(self, *names: str) -> Iterator[Element]:
        for element in self.tree.iter():
            if isinstance(element.tag, str) and (not names or element.tag in names):
                yield element

    def references(self) -> Iterator[tuple[str, str, str]]:
        """Element, address, and the path in the project that it means; "" where it means none."""
        for element in self.elements(*_FILES):
            address = (element.get(_FILES[str(element.tag)]) or "").strip()
            if address and not address.startswith("#"):
                yield str(element.tag), address, target(address, self.path)

    def styles(self, files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
        """Where style is, and its text: elements, attributes, and the style sheets of the project."""
        for element in self.elements():
            if element.tag == "style":
                yield "<style>", element.text or ""
            if style := element.get("style"):
                yield f"<{element.tag} style>", style
            if element.tag == "link" and "stylesheet" in (element.get("rel") or "").lower():
                path = target(element.get("href") or "", self.path)
                if path in files:
                    yield path, files[path].decode(errors="replace")


def validated(text: str, path: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The answer of validate_html."""
    page = Page(text, path)
    warnings = list(_warnings(page, files))
    return {
        "valid": not page.errors,
        "errors": page.errors,
        "warnings": warnings[:_MOST],
        "checked_by": page.checked_by,
    }


def responsive(text: str, path: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """What check_responsive_design can tell without a browser."""
    page = Page(text, path)
    problems = []
    if not _has_viewport(page):
        problems.append('no <meta name="viewport" content="width=device-width, initial-scale=1">')
    styles = list(page.styles(files))
    for place, style in styles:
        wide = {int(found) for found in _WIDE.findall(style)}
        problems += [f"{place}: a width of {one}px is wider than a phone" for one in sorted(wide) if one > _PHONE]
    flexible = ("@media", "flex", "grid", "clamp(", "max-width", "%", "vw")
    if styles and not any(word in style for _, style in styles for word in flexible):
        problems.append("no style depends on the width of the window")
    return {"problems": problems[:_MOST]}


def broken(text: str, path: str, files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Errors that a console would show, as far as they are seen without running the page."""
    return [
        {"level": "error", "text": f"{address}: there is no such file in the project"}
        for name, address, meant in Page(text, path).references()
        if name != "a" and meant and meant not in files
    ]


def target(address: str, page: str) -> str:
    """The path in the project that an address on a page means; "" for one that leads elsewhere."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc or not parts.path:
        return ""
    folder = "" if parts.path.startswith("/") else page.rpartition("/")[0]
    steps: list[str] = []
    for step in f"{folder}/{unquote(parts.path)}".split("/"):
        steps = steps[:-1] if step == ".." else [*steps, step]
    try:
        return cleaned("/".join(steps)) if any(steps) else ""
    except ToolError:
        return ""


def _warnings(page: Page, files: Mapping[str, bytes]) -> Iterator[str]:
    root = next(page.elements("html"))
    if not root.get("lang"):
        yield "<html> has no lang, which screen readers need"
    if not any((title.text or "").strip() for title in page.elements("title")):
        yield "the page has no <title>"
    if not _has_viewport(page):
        yield 'no <meta name="viewport">, so that phones show the page as if it were wide'
    seen: set[str] = set()
    for element in page.elements():
        if name := element.get("id"):
            if name in seen:
                yield f"id {name!r} is there more than once"
            seen.add(name)
    labels = {label.get("for") for label in page.elements("label")}
    inside = {id(one) for label in page.elements("label") for one in label.iter()}
    for element in page.elements("img", *_LABELLED):
        if element.tag == "img" and element.get("alt") is None:
            yield f"<img src={element.get('src')!r}> has no alt"
        is_named = element.get("aria-label") or element.get("aria-labelledby") or element.get("title")
        is_seen = element.get("type") not in ("hidden", "submit", "button", "reset", "image")
        is_labelled = is_named or element.get("id") in labels - {None} or id(element) in inside
        if element.tag in _LABELLED and is_seen and not is_labelled:
            yield f"<{element.tag} id={element.get('id')!r}> has no label"
    for name, address, meant in page.references():
        if meant and meant not in files:
            yield f"<{name}> names {address!r}, and the project has no such file"
        elif not meant and name != "a" and urlsplit(address).scheme not in ("data", "blob"):
            yield f"<{name}> names {address!r}, which the preview does not load: it reaches the project alone"


def _has_viewport(page: Page) -> bool:
    return any(
        (meta.get("name") or "").lower() == "viewport" and "width" in (meta.get("content") or "")
        for meta in page.elements("meta")
    )


def _words(code: str, given: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name} {value!r}" for name, value in given.items())
    return code.replace("-", " ") + (f" ({told})" if told else "")
