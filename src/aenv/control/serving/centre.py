"""The environment centre: the static pages of the wheel at `/`, with a policy that lets nothing else run."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from ...base.errors import NotFound
from . import envelope
from .accounts import Role
from .routes import Route, RouteCall

FOLDER = Path(__file__).parents[2] / "web" / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "x-frame-options": "DENY",  # for browsers that do not know frame-ancestors
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class CentreFile:
    """One static file, as it is sent."""

    content: bytes
    media: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, 9, mtime=0)


class Centre:
    """The pages; `routes()` is the table. Files are read once, when they are first asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def routes(self) -> list[Route]:
        page, file = "the environment centre, for browsers", "a file of the environment centre"
        who = "who looks at the environment centre; the role is 'anonymous' without a token"
        may_act = "the same, for a page that asks whether it may act"
        octets = "application/octet-stream"
        return [
            Route("GET", "/", self._page, None, page, media="text/html"),
            Route("GET", "/session", self._session, Role.ANONYMOUS, who, reply=dict[str, Any]),
            # Browsers send the origin with this one, so a page learns before a form fails that it may not act.
            Route("POST", "/session", self._session, Role.ANONYMOUS, may_act, reply=dict[str, Any]),
            # Browsers send the origin with scripts, also of a gateway that was not told the name in its address.
            Route("GET", "/assets/{name}", self._asset, None, file, media=octets, any_origin=True),
        ]

    @cached_property
    def _files(self) -> Mapping[str, CentreFile]:
        """By name. The names in `assets/` have a hash of their content, so browsers may keep them."""
        found = {}
        for path in sorted(self._folder.rglob("*")):
            if path.is_file() and path.suffix in _TYPES:
                kept = "public, max-age=31536000, immutable" if path.parent.name == "assets" else "no-cache"
                name = str(path.relative_to(self._folder))
                headers = {**HEADERS, "cache-control": kept}
                found[name] = CentreFile(path.read_bytes(), _TYPES[path.suffix], headers)
        return found

    async def _page(self, call: RouteCall) -> Response:
        return self.answer(call.request, "index.html")

    async def _session(self, call: RouteCall) -> Response:
        return envelope.success({**asdict(call.caller), "version": __version__})

    async def _asset(self, call: RouteCall) -> Response:
        return self.answer(call.request, f"assets/{call.path['name']}")

    def answer(self, request: Request, name: str) -> Response:
        """The file of this name: only files that exist have one, so a name leads nowhere else."""
        file = self._files.get(name)
        if file is None:
            raise NotFound(f"no file {name!r} of the environment centre; reload the page")
        headers = {**file.headers, "etag": file.tag, "vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=file.media, headers={**headers, "content-encoding": "gzip"})
        return Response(file.content, media_type=file.media, headers=headers)
