"""The preview: pages that an agent has written, for a frame that has no origin and reaches their project alone.

The policy of each answer puts the page into a sandbox, also outside of the frame. So it has no origin: it cannot
read the IDE's page, storage or token, and the server refuses what it sends elsewhere. Its address has an
unguessable part, which opens the files of the project and nothing else.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from mimetypes import guess_type
from pathlib import Path
from typing import Protocol

from starlette.responses import Response

from ...base.errors import AEnvError, EnvironmentError, NotFound

_BRIDGE = Path(__file__).parent / "preview_bridge.js"
_BRIDGE_NAME = ".aenv-preview.js"
_DOCTYPE = b"<!doctype"
_TOP = 2048  # bytes of a page in which its doctype is looked for
_EMPTY = b'<!doctype html><html lang="en"><meta charset="utf-8"><title>Nothing yet</title>' + (
    b'<body style="font:16px system-ui,sans-serif;color:#555;text-align:center;padding:20vh 1rem 0">'
    b"<p>The app appears here.</p></body></html>"
)


class ProjectFiles(Protocol):
    """Where the files of the project are."""

    async def read(self, path: str) -> dict[str, str]:
        """A file in base64, as `content`. EnvironmentError where there is none."""


class Preview:
    """The files of a project as a browser loads them."""

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self._part = secrets.token_urlsafe(24)

    @property
    def path(self) -> str:
        """What the addresses of the preview begin with."""
        return f"/preview/{self._part}/"

    async def answer(self, path: str, origin: str) -> Response:
        """The file that a path below `/preview/` names; `origin` is the server's own."""
        part, _, name = path.partition("/")
        if not hmac.compare_digest(part.encode(), self._part.encode()):
            raise NotFound("there is no such preview; reload the page of the IDE")
        headers = {
            "content-security-policy": _policy(f"{origin}{self.path}", origin),
            "access-control-allow-origin": "null",  # the frame's own scripts and fetches, since it has no origin
            "cross-origin-resource-policy": "cross-origin",
            "cache-control": "no-store",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }
        status, content, media = await self._found(name or "index.html")
        return Response(content, status, media_type=media, headers=headers)

    async def _found(self, name: str) -> tuple[int, bytes, str]:
        if name == _BRIDGE_NAME:
            return 200, _BRIDGE.read_bytes(), "text/javascript; charset=utf-8"
        try:
            content = base64.b64decode((await self._files.read(name))["content"])
        except (EnvironmentError, ValueError) as error:
            if name == "index.html":
                return 200, _EMPTY, "text/html; charset=utf-8"
            return 404, str(error.message if isinstance(error, AEnvError) else error).encode(), "text/plain"
        media = guess_type(name)[0] or "application/octet-stream"
        if media == "text/html":
            content = self._with_bridge(content)
        return 200, content, f"{media}; charset=utf-8" if media.startswith("text/") else media

    def _with_bridge(self, page: bytes) -> bytes:
        """The page with our script before its own, on the line where it begins: the numbers of lines stay."""
        doctype = page[:_TOP].lower().find(_DOCTYPE)
        start = page.find(b">", doctype) + 1 if doctype >= 0 else 0  # before it there would be no standards mode
        script = f'<script src="{self.path}{_BRIDGE_NAME}"></script>'.encode()
        return page[:start] + script + page[start:]


def _policy(base: str, origin: str) -> str:
    """What a page of the preview may do: run its own scripts, and load files of its project."""
    return "; ".join(
        (
            "sandbox allow-scripts allow-forms",
            "default-src 'none'",
            f"script-src {base} 'unsafe-inline' 'unsafe-eval' blob:",
            f"style-src {base} 'unsafe-inline'",
            f"img-src {base} data: blob:",
            f"font-src {base} data:",
            f"media-src {base} data: blob:",
            f"connect-src {base} data: blob:",
            "worker-src blob:",
            f"form-action {base}",
            "base-uri 'none'",
            f"frame-ancestors {origin}",
        )
    )
