"""tau2's own modules for tests, and episodes played straight through them, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[2] / "src" / "aenv" / "envs" / "tau2" / "src"
if str(SOURCES) not in sys.path:
    sys.path.append(str(SOURCES))  # as the runtime does; all its names begin with "tau2_"

import tau2_actions as actions  # noqa: E402
import tau2_validating as validating  # noqa: E402
from tau2_domains import source  # noqa: E402
from tau2_episode import Episode  # noqa: E402
from tau2_session import Session  # noqa: E402
from tau2_world import World  # noqa: E402

__all__ = ["MADE", "SOURCES", "Session", "actions", "full", "opened", "session", "validating"]

Json = dict[str, Any]

MADE = Path(__file__).parent / "made"
"""A folder like the shared one, with small data of our own in the benchmark's formats."""


def session(shared: Path, domain: str, task_id: str = "", **variables: str) -> Session:
    """An instance's session, for validation."""
    given = {"TAU2_DOMAIN": domain, "TAU2_TASK_ID": task_id, "TAU2_DATA_DIR": str(shared / "data")}
    return Session({**given, "AENV_VALIDATION": "1", **variables})


def opened(shared: Path, domain: str, task_id: str = "") -> World:
    """A world where a task begins, or a pristine one."""
    files = source(shared / "data" / "tau2", domain)
    world = files.open(solo=False)
    if task_id:
        initial = files.find(task_id).get("initial_state") or {}
        world.set_state(initial, initial.get("message_history") or [])
    return world


def full(shared: Path, domain: str, how: str, **variables: str) -> set[str]:
    """The tasks of the default split that are fully rewarded: played "gold", "silent" or "empty"."""
    found = set()
    for task in session(shared, domain, **variables).tasks(""):
        here = session(shared, domain, task["id"], **variables)
        if how == "gold":
            validating.play_gold(here)
        elif how == "silent":
            here.with_episode(lambda episode, here=here: _play_silently(episode, here))
        if actions.reward(here)["total_reward"] == 1.0:
            found.add(task["id"])
    return found


def _play_silently(episode: Episode, here: Session) -> None:
    for action in here.task["evaluation_criteria"].get("actions") or []:
        is_user = action.get("requestor") == "user" and not here.settings.solo
        (episode.call_as_user if is_user else episode.call)(action["name"], action["arguments"])
    episode.say("Done.")
    episode.stop()
