"""A bundle as a reply: whole, or the part that a client still misses."""

from __future__ import annotations

import re

from starlette.responses import Response, StreamingResponse

from ...base.errors import NotFound
from ..serving.routes import RouteCall
from .blobs import Blobs

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")


async def reply(call: RouteCall, blobs: Blobs, digest: str) -> Response:
    """The bundle, with its digest as ETag. Several ranges at once are not worth it: then it is the whole."""
    size = await blobs.size(digest)
    if size is None:
        raise NotFound(f"bundle {digest!r} not found; push the environment again")
    asked, tag = call.request.headers, f'"{digest}"'
    headers = {"etag": tag, "accept-ranges": "bytes"}
    if tag in (asked.get("if-none-match") or ""):
        return Response(status_code=304, headers=headers)
    start, end = 0, size
    match = _RANGE.match(asked.get("range", "")) if asked.get("if-range", tag) == tag else None
    if match and any(match.groups()):
        start, end = _bounds(match[1], match[2], size)
        if start >= end:
            return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    headers["content-length"] = str(end - start)
    status = 206 if "content-range" in headers else 200
    if call.request.method == "HEAD":
        return Response(None, status, headers)
    content = blobs.read(digest, start, end)
    return StreamingResponse(content, status, headers, media_type="application/gzip")


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """From the first byte up to, not including, the end; "-500" means the last 500."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size
