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
    │   │   └── GrantExceeded               403  grant_exceeded
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

    def __init_subclass__(cls, *, status: int | None = None, code: str | None = None) -> None:
        cls.status = status or cls.status
        cls.code = code or cls.code

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}


class ToolError(AEnvError, code="tool_failed"):
    """A tool could not be called, or the call broke before it gave a result."""

    def __init__(self, message: str, tool_name: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details)
        self.tool_name = tool_name


class ToolTimeoutError(ToolError, status=504, code="tool_timeout"):
    """The tool did not answer within its time limit."""

    def __init__(
        self,
        message: str,
        tool_name: str | None = None,
        timeout: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, tool_name, details)
        self.timeout = timeout


class ToolServerError(ToolError, status=502, code="tool_server"):
    """The server that holds the tool answered with an HTTP error."""

    def __init__(
        self,
        message: str,
        tool_name: str | None = None,
        status_code: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, tool_name, details)
        self.status_code = status_code


class EnvironmentError(AEnvError, code="environment_failed"):
    """Something about an environment or an instance failed. (The published name; it shadows a builtin.)"""

    def __init__(self, message: str, env_name: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details)
        self.env_name = env_name


class UnrecoverableEnvironmentError(EnvironmentError, status=503, code="unrecoverable"):
    """The instance failed so often in a row that calling it again is pointless."""


class InvalidRequest(EnvironmentError, status=400, code="invalid_request"):
    """The request is wrong; the message names the field and the fix."""


class Unauthenticated(EnvironmentError, status=401, code="unauthenticated"):
    """No credentials, or unknown credentials."""


class Forbidden(EnvironmentError, status=403, code="forbidden"):
    """Known, but not allowed."""


class GrantExceeded(Forbidden, code="grant_exceeded"):
    """An instance asked for more than its grant allows; the message names the field of the grant and its value."""


class NotFound(EnvironmentError, status=404, code="not_found"):
    """No such environment, instance, tool, function or route."""


class MethodNotAllowed(EnvironmentError, status=405, code="method_not_allowed"):
    """The route exists, with other methods."""

    def __init__(self, message: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class Conflict(EnvironmentError, status=409, code="conflict"):
    """The thing exists already, with other content."""


class TooLarge(EnvironmentError, status=413, code="too_large"):
    """A body above the limit; the message names the limit."""


class TooManyRequests(EnvironmentError, status=429, code="too_many_requests"):
    """A rate limit or quota; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StartFailed(EnvironmentError, code="start_failed"):
    """An instance was made but never became ready; the message carries what it printed last."""

    def __init__(self, message: str, env_name: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(sayable(message), env_name, details)


class Unsupported(EnvironmentError, status=501, code="unsupported"):
    """This engine cannot do it; another may."""


class Unavailable(EnvironmentError, status=503, code="unavailable"):
    """Something we depend on does not answer now; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NetworkError(AEnvError, status=503, code="network"):
    """The other side could not be reached, or the connection broke."""


class ConnectFailed(NetworkError, code="connect_failed"):
    """No connection was made, so nothing was sent: always safe to try again."""


# With this status: published clients read `success` in the body, and take any other status for a broken server
class NotJudged(AEnvError, status=200, code="not_judged"):
    """A reward function gives no number: nothing can be said (`invalid`), or something is missing (`not_ready`).

    Authors raise it, `call_reward` raises it again: `raise NotJudged("not_ready", "no gcc; install gcc")`
    """

    def __init__(self, outcome: str, reason: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(reason, details)
        self.outcome = Outcome(outcome)
        if self.outcome not in NOT_JUDGED:
            raise ValueError(f"outcome must be one of {', '.join(NOT_JUDGED)}, got {outcome!r}")

    @property
    def reason(self) -> str:
        return self.message


class ValidationError(AEnvError, status=400, code="validation"):
    """A value does not have the shape that it must have."""


class RegistrationError(AEnvError, ValueError, code="registration"):
    """An author's mistake in a decorated function: found when the module is imported."""


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
# Not what 500 says, which is no more than that something about an environment failed. Of two the later counts.
_BY_STATUS = {kind.status: kind for kind in EnvironmentError.__subclasses__() if kind.status != 500}


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
