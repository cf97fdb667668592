"""Faults: which outcome an error means, and whether another instance may do better."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..base.errors import (
    AEnvError,
    NetworkError,
    NotFound,
    NotJudged,
    StartFailed,
    ToolServerError,
    ToolTimeoutError,
    TooManyRequests,
    Unavailable,
    UnrecoverableEnvironmentError,
)
from ..base.outcomes import Outcome
from ..client.chat import ModelFailed
from .journal import NotRecorded

# Not the environment's answer: a proxy between it and us answered, or nothing did.
_INFRASTRUCTURE = (NetworkError, Unavailable, TooManyRequests, UnrecoverableEnvironmentError, ToolServerError)
_GONE = re.compile(r"instance '[^']+' not found")  # as the gateway says it: ended by its TTL, or by others
MAX_REASON = 10_000
_OUT_OF_MEMORY = "it used more memory than its limit"  # as the gateway says it


class OutOfTime(AEnvError):
    """A stage of an episode, or all of it, took longer than its limit."""

    code = "out_of_time"

    def __init__(self, stage: str, limit: float | None) -> None:
        super().__init__(f"the {stage} took longer than {limit or 0:g} s")
        self.is_start = stage == "start"


def is_infrastructure(error: BaseException) -> bool:
    """Whether a call was lost on its way, or its instance ended: nothing that an agent or environment did."""
    return any(_is_lost(one) for one in _chain(error)) and not _is_out_of_memory(error)


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, NotFound) and _GONE.match(error.message):
        return True
    # "foreign" is an answer that neither a gateway nor a runtime of ours gives.
    return isinstance(error, _INFRASTRUCTURE) or (isinstance(error, AEnvError) and "foreign" in error.details)


def may_pass(error: BaseException) -> bool:
    """Whether it is worth trying again on another instance."""
    is_start = isinstance(error, OutOfTime) and error.is_start
    return is_start or is_infrastructure(error) or any(isinstance(one, StartFailed) for one in _chain(error))


def outcome_of(error: BaseException, blamed: Outcome) -> Outcome:
    """The outcome of a rollout that ended with `error`; `blamed` is for what says nothing about itself."""
    if isinstance(error, NotJudged):
        return error.outcome
    if isinstance(error, ToolTimeoutError):
        return Outcome.TIMEOUT
    if isinstance(error, OutOfTime):
        return Outcome.INFRA_ERROR if error.is_start else Outcome.TIMEOUT
    if _is_out_of_memory(error):
        return Outcome.ENV_ERROR  # the limit is the environment's own, and another instance has the same
    if isinstance(error, ModelFailed):
        # Of these only an answer that cannot be used says something about the agent.
        if error.is_passing:
            return Outcome.INFRA_ERROR
        return Outcome.NOT_READY if fix_of(error) else Outcome.AGENT_ERROR
    if isinstance(error, NotRecorded) or is_infrastructure(error):
        return Outcome.INFRA_ERROR
    return blamed


def fix_of(error: ModelFailed) -> str:
    """What to do about the URL, the key or the name of a model, which are of the run; empty for other failures."""
    status = error.status_code or 0
    return _FIXES.get(status) or ("name the URL that it redirects to" if 300 <= status < 400 else "")


_FIXES = {
    401: "give the runner the key of its server, as capture_key=… or --api-key-env",
    402: "pay for its account",
    403: "its key may not ask this model; name another key or model",
    404: "it has no such model or path; check the URL, which ends with /v1, and the name of the model",
}


def reason_of(error: BaseException) -> str:
    """Why, in at most MAX_REASON characters."""
    if isinstance(error, ModelFailed) and (fix := fix_of(error)):
        return f"{error.reason}; {fix}"
    reason = error.message if isinstance(error, AEnvError) else f"{type(error).__name__}: {_text_of(error)}"
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}… ({len(reason):,} characters)"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # boundary: an exception of the agent's code
        return "its text cannot be read"


def _is_out_of_memory(error: BaseException) -> bool:
    return any(_OUT_OF_MEMORY in _text_of(one) for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes: the SDK says which call was in vain, and keeps what broke as the cause."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__
