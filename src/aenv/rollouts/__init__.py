"""Tasks of environments: agents play them in rollouts, whose results and trajectories are typed.

from aenv.rollouts import Runner, rollout
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..base.outcomes import Outcome
    from .episodes import Timeouts
    from .results import RolloutResult
    from .runner import Runner, rollout
    from .task import Task
    from .trajectory import Trajectory

# name → the module that holds it, loaded when it is first used.
_HOMES = {
    "Outcome": "..base.outcomes",
    "RolloutResult": ".results",
    "Runner": ".runner",
    "Task": ".task",
    "Timeouts": ".episodes",
    "Trajectory": ".trajectory",
    "rollout": ".runner",
}

__all__ = ["Outcome", "RolloutResult", "Runner", "Task", "Timeouts", "Trajectory", "rollout"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
