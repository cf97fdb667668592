"""Downloads that go on where they stopped: what has arrived is kept, whatever happens."""

from __future__ import annotations

import http.client
import re
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit

from ...base.errors import InvalidRequest, NetworkError, NotFound, TooLarge
from ...base.limits import spell_bytes

OnBytes = Callable[[int], None]

_TIMEOUT = 60.0  # seconds without a byte
_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)\Z")


class _SameSafety(urllib.request.HTTPRedirectHandler):
    """Refuses a redirect from https to a scheme that others can read or change on the way."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise NetworkError(f"{req.full_url!r} leads to {newurl!r}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]  # its name


_opener = urllib.request.build_opener(_SameSafety)


def read(url: str, most_bytes: int) -> bytes | None:
    """A small file; None where there is none."""
    try:
        with _open(url) as response:
            content: bytes = response.read(most_bytes + 1)
    except NotFound:
        return None
    except (OSError, http.client.HTTPException) as error:
        raise NetworkError(f"cannot fetch {url!r}: {error}") from error
    if len(content) > most_bytes:
        raise TooLarge(f"what {url!r} gives is larger than {spell_bytes(most_bytes)}")
    return content


def download(url: str, target: Path, most_bytes: int, on_bytes: OnBytes) -> None:
    """Make the file `target` of what is at `url`; `on_bytes` is told how much of it is there.

    A connection that breaks is taken up again as long as something comes. NetworkError leaves what has come as
    `<target>.part`, and the next call goes on from there.
    """
    part = target.with_name(f"{target.name}.part")
    part.touch()
    while True:
        had = part.stat().st_size
        try:
            _more(url, part, had, most_bytes, on_bytes)
        except (OSError, http.client.HTTPException) as error:
            if part.stat().st_size <= had:
                raise NetworkError(
                    f"cannot fetch {url!r}: {error}; the part that arrived is kept, and the same command continues"
                ) from error
        else:
            part.rename(target)
            return


def _more(url: str, part: Path, had: int, most_bytes: int, on_bytes: OnBytes) -> None:
    try:
        response = _open(url, had)
    except _Beyond as beyond:
        if beyond.total == had:
            return  # all of it was there
        part.write_bytes(b"")
        raise ConnectionError("it is shorter than the part that was fetched before") from None
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        match = _RANGE.match(response.headers.get("content-range") or "")
        if response.status == 206 and (match is None or match[1] != str(had)):
            raise ConnectionError("the server sent another part than was requested")
        length = match[2] if match else response.headers.get("content-length")
        while chunk := response.read(_CHUNK):
            if file.tell() + len(chunk) > most_bytes:
                file.truncate(0)
                raise TooLarge(f"what {url!r} gives is larger than the {most_bytes} bytes that it may have")
            file.write(chunk)
            on_bytes(file.tell())
        if length and file.tell() < int(length):
            raise ConnectionError(f"the connection ended after {file.tell()} of {length} bytes")


class _Beyond(Exception):
    """The server has no bytes from there on; it may say how many there are in all."""

    def __init__(self, total: int | None) -> None:
        self.total = total


def _open(url: str, start: int = 0) -> http.client.HTTPResponse:
    if urlsplit(url).scheme not in ("https", "http"):
        raise InvalidRequest(f"cannot fetch {url!r}; it must begin with 'https://' or 'http://'")
    request = urllib.request.Request(url, headers={"range": f"bytes={start}-"} if start else {})
    try:
        response: http.client.HTTPResponse = _opener.open(request, timeout=_TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code == 416:
                match = _RANGE.match(error.headers.get("content-range") or "")
                raise _Beyond(int(match[2]) if match else None) from None
            kind = NotFound if error.code in (404, 410) else NetworkError
            raise kind(f"cannot fetch {url!r}: the server says {error.code} {error.reason}") from error
    return response
