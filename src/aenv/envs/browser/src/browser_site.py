"""The test site: a small town's pages, served on a loopback port of the instance.

A section is a part of the site with a state of its own. The state lives here, in the environment's process: a page
sees what its HTML shows, and changes what its forms change. What sections there are: `browser_tasks.py`.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, parse_qsl, urlsplit

from browser_look import Link, escape, home, page

logger = logging.getLogger(__name__)

HOST = "larkspur.test"
HOME = f"http://{HOST}/"
_MOST_BYTES = 64 << 10  # of a form


@dataclass(frozen=True)
class Request:
    """What a browser asks of a section; `path` is what follows the section's own."""

    method: str
    path: str
    query: dict[str, str]
    form: dict[str, list[str]]
    cookies: dict[str, str]

    def text(self, name: str) -> str:
        """A field of the form, without the space around it; empty when it is missing."""
        return self.form.get(name, [""])[0].strip()

    def number(self, name: str) -> int:
        """A field of the form that is a whole number of at most four digits; 0 when it is not."""
        return whole(self.text(name)) or 0


@dataclass(frozen=True)
class Reply:
    """A page (its body), data (JSON text), or a redirection."""

    body: str = ""
    status: int = 200
    location: str = ""
    cookie: str = ""
    is_json: bool = False


class Unknown(Exception):
    """There is no such page."""


@dataclass(frozen=True)
class Assignment:
    """What is to be done in a section, what its state is then, and the steps that lead there."""

    instruction: str
    goal: Any
    gold: Sequence[dict[str, Any]]


class Section(ABC):
    """A part of the site: pages below `/<name>`, and a state that forms change."""

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    state: Any

    @abstractmethod
    def __init__(self, chance: random.Random) -> None:
        """Make the content."""

    def get(self, request: Request) -> Reply:
        """A page; nothing is changed by looking at one."""
        raise Unknown

    def post(self, request: Request) -> Reply:
        """What a form was sent for."""
        raise Unknown

    @abstractmethod
    def assignment(self) -> Assignment:
        """The task of this section, as its content is at first."""


class Site:
    """All sections, made from a seed."""

    def __init__(self, kinds: Sequence[type[Section]], seed: int) -> None:
        self.sections = {kind.name: kind(random.Random(f"{kind.name}/{seed}")) for kind in kinds}
        self._links = {kind.name: Link(kind.title, kind.about) for kind in kinds}
        self._turn = threading.Lock()

    def state(self) -> dict[str, Any]:
        """What forms have made of the sections so far."""
        with self._turn:
            return {name: section.state for name, section in self.sections.items()}

    def answer(self, name: str, request: Request) -> Reply:
        """One request at a time: a section needs no locks."""
        section = self.sections.get(name)
        if section is None and (name or request.method != "GET"):
            raise Unknown
        with self._turn:
            if section is None:
                return Reply(home(self._links))
            reply = section.get(request) if request.method == "GET" else section.post(request)
        if reply.is_json or reply.location:
            return reply
        shown = page(section.title, reply.body, self._links, name)
        return Reply(shown, reply.status, cookie=reply.cookie)

    def missing(self) -> Reply:
        """For an address that there is not."""
        return Reply(page("There is no such page", '<p><a href="/">Home</a></p>', self._links), 404)


class Server(ThreadingHTTPServer):
    """Serves a site on a free port of the instance's loopback; which one can be changed at any time."""

    daemon_threads = True
    block_on_close = False  # a browser keeps connections open that it does not use

    def __init__(self, site: Site) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.site = site

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of an answer is no error; all else is, and is logged."""
        if not isinstance(sys.exception(), ConnectionError):
            logger.exception("the site could not answer")

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextmanager
def served(site: Site) -> Iterator[Server]:
    """A server that runs meanwhile."""
    with Server(site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30.0
    server: Server

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self.close_connection = True
            self._send(Reply("the form is too large, or does not say how large it is", 413))
            return
        body = self.rfile.read(int(length)).decode(errors="replace")
        self._answer(parse_qs(body, keep_blank_values=True))

    def log_message(self, format: str, *args: object) -> None:
        """It has no reader, and addresses may hold what an agent has typed."""

    def _answer(self, form: dict[str, list[str]]) -> None:
        target = urlsplit(self.path)
        name, _, rest = target.path.lstrip("/").partition("/")
        request = Request(self.command, rest, dict(parse_qsl(target.query)), form, self._cookies())
        try:
            reply = self.server.site.answer(name, request)
        except Unknown:
            reply = self.server.site.missing()
        self._send(reply)

    def _cookies(self) -> dict[str, str]:
        try:
            return {name: one.value for name, one in SimpleCookie(self.headers.get("Cookie", "")).items()}
        except CookieError:
            return {}

    def _send(self, reply: Reply) -> None:
        content = reply.body.encode()
        self.send_response(303 if reply.location else reply.status)
        self.send_header("Content-Type", "application/json" if reply.is_json else "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if reply.location:
            self.send_header("Location", reply.location)
        if reply.cookie:
            self.send_header("Set-Cookie", f"{reply.cookie}; Path=/; HttpOnly; SameSite=Strict")
        self.end_headers()
        self.wfile.write(content)


def whole(text: str) -> int | None:
    """The whole number that is meant; None for all else, and for what no page asks for."""
    return int(text) if text.isdecimal() and len(text) <= 4 else None


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the cells of `rows` are HTML already."""
    heads = "".join(f"<th>{escape(one)}</th>" for one in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def form(action: str, content: str, button: str, kind: str = "") -> str:
    """A form with one button; `kind` is the button's class."""
    press = f'<button class="{kind}">{escape(button)}</button>' if kind else f"<button>{escape(button)}</button>"
    return f'<form method="post" action="{action}">{content}{press}</form>'


def field_of(label: str, name: str, kind: str = "text", value: str = "") -> str:
    """A labelled field of a form."""
    return f'<label>{escape(label)} <input type="{kind}" name="{name}" value="{escape(value)}"></label>'


def tick(label: str, name: str, value: str = "1", kind: str = "checkbox", is_on: bool = False) -> str:
    """A labelled box to tick, or a button of which one is chosen."""
    on = " checked" if is_on else ""
    box = f'<input type="{kind}" name="{name}" value="{escape(value)}"{on}>'
    return f'<label class="tick">{box} {escape(label)}</label>'


def choice(label: str, name: str, options: Sequence[str], chosen: str = "") -> str:
    """A labelled list to choose from."""
    values = "".join(f"<option{' selected' if one == chosen else ''}>{escape(one)}</option>" for one in options)
    return f'<label>{escape(label)} <select name="{name}"><option value="">-</option>{values}</select></label>'


def error(text: str) -> str:
    """What was wrong with a form, for the top of the page."""
    return f'<p class="error" role="alert">{escape(text)}</p>'


def notice(text: str) -> str:
    """That something was done."""
    return f'<p class="notice" role="status">{escape(text)}</p>'


def step(tool: str, **arguments: Any) -> dict[str, Any]:
    """A call of a tool, as gold and cheats list them."""
    return {"tool": tool, "arguments": arguments}
