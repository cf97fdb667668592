"""What an instance is told by its variables. Whatever is wrong in them is said with the variable's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tau2_domains import DOMAINS
from tau2_models import Model, model_of

from aenv import ToolError

_YES = ("true", "1", "yes", "on")
_NO = ("false", "0", "no", "off", "")
_JUDGES = ("assume", "deny", "llm")


@dataclass(frozen=True)
class Settings:
    """Every knob of an instance. Its models hold keys, which nothing shows."""

    domain: str = "telecom"
    task_id: str = ""
    solo: bool = False
    max_steps: int = 100
    patience: int = 3
    judge: str = "assume"
    user_model: Model | None = None
    judge_model: Model | None = None
    is_validation: bool = False


def read(variables: Mapping[str, str]) -> Settings:
    """ToolError names the variable that is wrong, and what would be right."""
    domain = variables.get("TAU2_DOMAIN") or "telecom"
    if domain not in DOMAINS:
        raise ToolError(f"TAU2_DOMAIN={domain!r} is unknown; use one of {', '.join(DOMAINS)}")
    solo = _flag(variables, "TAU2_SOLO_MODE")
    if solo and not DOMAINS[domain].has_solo:
        able = ", ".join(known.name for known in DOMAINS.values() if known.has_solo)
        raise ToolError(
            f"TAU2_SOLO_MODE=true: {domain.title()} domain does not support solo mode; "
            f"leave it out, or set TAU2_DOMAIN to one of {able}"
        )
    judge = variables.get("TAU2_NL_JUDGE") or "assume"
    if judge not in _JUDGES:
        raise ToolError(f"TAU2_NL_JUDGE={judge!r} is unknown; use one of {', '.join(_JUDGES)}")
    user_model = model_of(variables, "TAU2_USER_LLM")
    judge_model = model_of(variables, "TAU2_NL_JUDGE_LLM") or user_model
    if judge == "llm" and judge_model is None:
        raise ToolError("TAU2_NL_JUDGE=llm needs a model: set TAU2_NL_JUDGE_LLM or TAU2_USER_LLM to its name")
    return Settings(
        domain=domain,
        task_id=variables.get("TAU2_TASK_ID") or "",
        solo=solo,
        max_steps=_count(variables, "TAU2_MAX_STEPS", Settings.max_steps),
        patience=_count(variables, "TAU2_USER_PATIENCE", Settings.patience),
        judge=judge,
        user_model=user_model,
        judge_model=judge_model,
        is_validation=variables.get("AENV_VALIDATION") == "1",
    )


def _flag(variables: Mapping[str, str], name: str) -> bool:
    value = variables.get(name, "").strip().lower()
    if value not in (*_YES, *_NO):
        raise ToolError(f"{name}={variables[name]!r} is neither true nor false")
    return value in _YES


def _count(variables: Mapping[str, str], name: str, default: int) -> int:
    value = variables.get(name) or str(default)
    if not value.isdecimal() or len(value) > 9 or int(value) < 1:
        shown = value if len(value) <= 20 else f"{value[:20]}…"
        raise ToolError(f"{name}={shown!r} is not a number from 1 to 999999999")
    return int(value)
