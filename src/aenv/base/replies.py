"""What a gateway or a runtime answers: the data of its envelope, or the error that it carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import errors, mcp
from .addresses import Origin
from .errors import AEnvError, NotJudged
from .http1 import Response
from .outcomes import NOT_JUDGED


def unwrap(response: Response, body: bytes, origin: Origin, *, whole: bool = False) -> Any:
    """The `data` of an envelope, from gateway or runtime, or all of it; raises the error that it carries."""
    try:
        envelope = mcp.loads(body)
    except ValueError:
        envelope = None
    if not isinstance(envelope, dict) or "success" not in envelope:
        shown = body[:200].decode("utf-8", "replace")
        error = errors.from_code("", f"{origin} answered {response.status}: {shown!r}", status=response.status)
        error.details["foreign"] = True  # not one of our servers, or something in between
        raise error
    if envelope["success"]:
        return envelope if whole else envelope.get("data")
    raise _error_of(response, envelope)


def _error_of(response: Response, envelope: Mapping[str, Any]) -> AEnvError:
    if envelope.get("outcome") in NOT_JUDGED:
        details = envelope.get("details")
        reason = str(envelope.get("error") or "the environment gave no reason")
        return NotJudged(envelope["outcome"], reason, details if isinstance(details, dict) else None)
    # Gateways put the text into `message` and a code into `error`; runtimes put the text into `error`.
    message = envelope.get("message") or envelope.get("errorMessage") or envelope.get("error") or "unknown error"
    code = envelope.get("error") if envelope.get("message") else ""
    retry_after = response.header(b"retry-after") or ""
    wait = float(retry_after) if retry_after.replace(".", "", 1).isdecimal() else None
    return errors.from_code(str(code or ""), str(message), status=response.status, retry_after=wait)
