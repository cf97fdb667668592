"""A parser of pages by the standard library alone, for where tinyhtml5 could not be installed.

It finds tags that are never closed, or close nothing. Its tree is what was written: browsers repair more.
"""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from xml.etree.ElementTree import Element

_EMPTY = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
# Elements that may stay open, and what begins where they end.
_UNCLOSED: dict[str, tuple[str, ...]] = {
    "html": (),
    "head": (),
    "body": (),
    "li": ("li",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "option": ("option", "optgroup"),
    "optgroup": ("optgroup",),
    "td": ("td", "th", "tr", "tbody", "tfoot"),
    "th": ("td", "th", "tr", "tbody", "tfoot"),
    "tr": ("tr", "tbody", "tfoot"),
    "thead": ("tbody", "tfoot"),
    "tbody": ("tbody", "tfoot"),
    "tfoot": ("tbody",),
    "colgroup": ("thead", "tbody", "tr"),
    "p": ("p", "div", "section", "main", "ul", "ol", "form", "table", "h1", "h2", "h3", "header", "footer"),
}


class PlainParser(HTMLParser):
    """Parses one page."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[tuple[int, int], str, Mapping[str, Any]]] = []
        """As tinyhtml5 has them: line and column, what is wrong, and about what."""
        self._root = Element("html")
        self._open: list[tuple[Element, tuple[int, int]]] = [(self._root, (1, 0))]
        self._has_doctype = False

    def parse(self, text: str) -> Element:
        self.feed(text)
        self.close()
        self._end(0)
        if not self._has_doctype:
            self.errors.insert(0, ((1, 0), "expected-doctype", {}))
        return self._root

    def handle_decl(self, decl: str) -> None:
        self._has_doctype = self._has_doctype or decl.lower().startswith("doctype")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in reversed(attrs)}  # of two the first counts
        if len(given) < len(attrs):
            self._wrong("duplicate-attribute", tag)
        if tag == "html":
            self._root.attrib.update(given)
            return
        while tag in _UNCLOSED.get(self._open[-1][0].tag, ()):
            self._open.pop()
        element = Element(tag, given)
        self._open[-1][0].append(element)
        if tag not in _EMPTY:
            self._open.append((element, self.getpos()))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # on an element of HTML the slash means nothing

    def handle_endtag(self, tag: str) -> None:
        found = [at for at, (element, _) in enumerate(self._open) if element.tag == tag]
        if tag == "html":
            return
        if found:
            self._end(found[-1])
        else:
            self._wrong("end-tag-without-start-tag", tag)

    def handle_data(self, data: str) -> None:
        parent = self._open[-1][0]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data

    def _end(self, place: int) -> None:
        """Take this one, and what is still open in it, from those that are open."""
        for element, where in self._open[place + 1 :]:
            if element.tag not in _UNCLOSED:
                self.errors.append((where, "element-is-not-closed", {"name": element.tag}))
        del self._open[max(place, 1) :]

    def _wrong(self, code: str, tag: str) -> None:
        self.errors.append((self.getpos(), code, {"name": tag}))
