"""Every error of aenv: one tree, one HTTP status and one wire code each.

    AEnvError                               500  internal
    ├── ToolError                           500  tool_failed
    │   ├── ToolTimeoutError                504  tool_timeout
    │   └── ToolServerError                 502  tool_server
    ├── EnvironmentError                    500  environment_failed
    │   ├── UnrecoverableEnvironmentError   503  unrecoverable
    │   ├── InvalidRequest                  400  invalid_request
    │   ├── Unauthenticated                 401  unauthenticated
    │   ├── Forbidden                       403  forbidden
    │   ├── NotFound                        404  not_found
    │   ├── MethodNotAllowed                405  method_not_allowed
    │   ├── Conflict                        409  conflict
    │   ├── TooLarge                        413  too_large
    │   ├── TooManyRequests                 429  too_many_requests
    │   ├── StartFailed                     500  start_failed
    │   ├── Unsupported                     501  unsupported
    │   └── Unavailable                     503  unavailable
    ├── NetworkError                        503  network
    │   └── ConnectFailed                   503  connect_failed
    ├── NotJudged                           200  not_judged
    ├── ValidationError                     400  validation
    └── RegistrationError (a ValueError)    500  registration

A server sends `code`; the client raises the same class again with `from_code`, so that
`except NotFound` works on both ends. The published names keep their constructors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from .outcomes import NOT_JUDGED, Outcome


class AEnvError(Exception):
    """Base of every error that aenv raises on purpose."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}


class ToolError(AEnvError):
    """A tool could not be called, or the call broke before it gave a result."""

    code = "tool_failed"

    def __init__(self, message: str, tool_name: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details)
        self.tool_name = tool_name


class ToolTimeoutError(ToolError):
    """The tool did not answer within its time limit."""

    status = 504
    code = "tool_timeout"

    def __init__(
        self,
        message: str,
        tool_name: str | None = None,
        timeout: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, tool_name, details)
        self.timeout = timeout


class ToolServerError(ToolError):
    """The server that holds the tool answered with an HTTP error."""

    status = 502
    code = "tool_server"

    def __init__(
        self,
        message: str,
        tool_name: str | None = None,
        status_code: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, tool_name, details)
        self.status_code = status_code


class EnvironmentError(AEnvError):
    """Something about an environment or an instance failed. (The published name; it shadows a builtin.)"""

    code = "environment_failed"

    def __init__(self, message: str, env_name: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details)
        self.env_name = env_name


class UnrecoverableEnvironmentError(EnvironmentError):
    """The instance failed so often in a row that calling it again is pointless."""

    status = 503
    code = "unrecoverable"


class InvalidRequest(EnvironmentError):
    """The request is wrong; the message names the field and the fix."""

    status = 400
    code = "invalid_request"


class Unauthenticated(EnvironmentError):
    """No credentials, or unknown credentials."""

    status = 401
    code = "unauthenticated"


class Forbidden(EnvironmentError):
    """Known, but not allowed."""

    status = 403
    code = "forbidden"


class NotFound(EnvironmentError):
    """No such environment, instance, tool, function or route."""

    status = 404
    code = "not_found"


class MethodNotAllowed(EnvironmentError):
    """The route exists, with other methods."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class Conflict(EnvironmentError):
    """The thing exists already, with other content."""

    status = 409
    code = "conflict"


class TooLarge(EnvironmentError):
    """A body above the limit; the message names the limit."""

    status = 413
    code = "too_large"


class TooManyRequests(EnvironmentError):
    """A rate limit or quota; try again after `retry_after` seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StartFailed(EnvironmentError):
    """An instance was made but never became ready; the message carries what it printed last."""

    code = "start_failed"

    def __init__(self, message: str, env_name: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(sayable(message), env_name, details)


class Unsupported(EnvironmentError):
    """This engine cannot do it; another may."""

    status = 501
    code = "unsupported"


class Unavailable(EnvironmentError):
    """Something we depend on does not answer now; try again after `retry_after` seconds."""

    status = 503
    code = "unavailable"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NetworkError(AEnvError):
    """The other side could not be reached, or the connection broke."""

    status = 503
    code = "network"


class ConnectFailed(NetworkError):
    """No connection was made, so nothing was sent: always safe to try again."""

    code = "connect_failed"


class NotJudged(AEnvError):
    """A reward function gives no number: nothing can be said (`invalid`), or something is missing (`not_ready`).

    Authors raise it, `call_reward` raises it again: `raise NotJudged("not_ready", "no gcc; install gcc")`
    """

    status = 200  # published clients read `success` in the body, and take any other status for a broken server
    code = "not_judged"

    def __init__(self, outcome: str, reason: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(reason, details)
        self.outcome = Outcome(outcome)
        if self.outcome not in NOT_JUDGED:
            raise ValueError(f"outcome must be one of {', '.join(NOT_JUDGED)}, got {outcome!r}")

    @property
    def reason(self) -> str:
        return self.message


class ValidationError(AEnvError):
    """A value does not have the shape that it must have."""

    status = 400
    code = "validation"


class RegistrationError(AEnvError, ValueError):
    """An author's mistake in a decorated function: found when the module is imported."""

    code = "registration"


def from_code(code: str, message: str, *, status: int = 500, retry_after: float | None = None) -> AEnvError:
    """The error that `code` names on the wire; for an unknown code, what `status` says best."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, EnvironmentError)
    error = kind(message)
    if retry_after is not None and isinstance(error, TooManyRequests | Unavailable):
        error.retry_after = retry_after
    return error


def _tree(root: type[AEnvError]) -> list[type[AEnvError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _tree(child))]


# Not NotJudged: it travels with its outcome, in the reply of a reward (`client/session.py`).
_BY_CODE = {kind.code: kind for kind in _tree(AEnvError) if kind is not NotJudged}
_BY_STATUS: dict[int, type[AEnvError]] = {
    kind.status: kind
    for kind in (
        Unavailable,
        InvalidRequest,
        Unauthenticated,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        Conflict,
        TooLarge,
        TooManyRequests,
        Unsupported,
    )
}


@contextmanager
def of_field(name: str) -> Iterator[None]:
    """What is InvalidRequest in the block names the field `name`, unless it names one already."""
    try:
        yield
    except InvalidRequest as error:
        if error.message.startswith("field "):
            raise
        raise InvalidRequest(f"field {name!r}: {error.message}") from None


def sayable(text: str) -> str:
    """Text of an instance's, in UTF-8 whatever it holds: half a surrogate pair could be in no reply."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
