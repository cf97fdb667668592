"""Secrets in replies: the values of variables are kept to start instances with, and never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.masks import MASK

_VARIABLES = "environmentVariables"


def masked(deploy: Mapping[str, Any]) -> dict[str, Any]:
    """A deployConfig with the values of its variables hidden."""
    hidden = dict(deploy)
    for name in (_VARIABLES, "environment_variables"):  # the second is what published clients may have written
        if isinstance(variables := deploy.get(name), dict):
            hidden[name] = dict.fromkeys(variables, MASK)
    return hidden


def unmasked(deploy: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A deployConfig that was read, changed and sent back: a value that is still hidden is the one from before."""
    variables, old = deploy.get(_VARIABLES), (before or {}).get(_VARIABLES)
    if not isinstance(variables, dict) or not isinstance(old, dict):
        return dict(deploy)
    kept = {name: old.get(name, value) if value == MASK else value for name, value in variables.items()}
    return {**deploy, _VARIABLES: kept}
