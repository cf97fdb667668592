"""τ²-bench as an environment: what it offers to agents and to trainers.

The tools are those of the domain that TAU2_DOMAIN names, so each instance registers its own when it loads this
file. All else is loaded once, ahead (`_tau2_preload.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import tau2_actions
import tau2_settings
import tau2_validating
from tau2_binding import tool_functions
from tau2_session import Session, open_session

from aenv import Depends, register_function, register_reset, register_reward, register_tool

Json = dict[str, Any]
Here = Annotated[Session, Depends(open_session)]


@register_tool
@register_function
def tau2_get_task_info(session: Here) -> Json:
    """About the task: domain, id, mode, limits, the names of the tools, and in solo mode the ticket."""
    return tau2_actions.task_info(session)


@register_tool
@register_function
def tau2_get_system_prompt(session: Here) -> str:
    """The system prompt for an agent: instructions and the domain's policy."""
    return tau2_actions.system_prompt(session)


@register_tool
@register_function
def tau2_get_available_tools(session: Here) -> list[Json]:
    """The domain's tools, as function schemas for chat completions."""
    return tau2_actions.available_tools(session)


@register_tool
@register_function
def tau2_get_status(session: Here) -> Json:
    """Whether the episode is over and why, how many steps were made, and what was last said or observed."""
    return tau2_actions.status(session)


@register_tool
@register_function
def tau2_send_message(message: str, session: Here) -> Json:
    """Say something to the user, and get the answer.

    Args:
        message: What the user reads.
    """
    return tau2_actions.send_message(session, message)


@register_tool
@register_function
def tau2_done(session: Here) -> Json:
    """End the episode: there is nothing left to do."""
    return tau2_actions.stop(session)


@register_reward
def tau2_reward(session: Here) -> Json:
    """What the episode is worth now, and its parts; one that has not ended counts as if the agent stopped here."""
    return tau2_actions.reward(session)


@register_reset
def reset(session: Here, seed: int | None = None) -> Json:
    """Start the same task over. Nothing here is random, so a seed changes nothing."""
    session.start_over()
    return tau2_actions.status(session)


@register_function
def list_tasks(session: Here, split: str = "") -> list[Json]:
    """The tasks of a split; without one, of the domain's default split."""
    settings = session.settings
    variables = {"TAU2_DOMAIN": settings.domain, "TAU2_SOLO_MODE": "true" if settings.solo else "false"}
    named = {"split": split or session.source.default_split or "base"}
    return [
        {"id": task["id"], "variables": {**variables, "TAU2_TASK_ID": task["id"]}, **named}
        for task in session.tasks(split)
    ]


@register_function
def get_task(session: Here) -> Json:
    """This instance's task: what an agent is told, and no answer."""
    return tau2_actions.task_for_agents(session)


@register_function
def play_gold(session: Here) -> Json:
    """Play the reference solution; only in an instance that is there for validation."""
    return tau2_validating.play_gold(session)


@register_function
def known_exceptions(session: Here) -> dict[str, dict[str, str]]:
    """Tasks that do not behave as tasks should: gold without full reward, or a full reward for nothing."""
    return tau2_validating.known_exceptions(session)


@register_function
def list_cheats(session: Here) -> list[Json]:
    """Attempts to get the reward without solving the task; only in an instance that is there for validation."""
    return tau2_validating.list_cheats(session)


def register_domain_tools(variables: Mapping[str, str]) -> None:
    """Offer the tools of the domain that the variables name. ToolError where they are wrong."""
    settings = tau2_settings.read(variables)
    for function in tool_functions(settings.domain, solo=settings.solo):
        register_tool(function)
    if settings.solo:
        register_tool(name="done", description=tau2_actions.DONE_DESCRIPTION)(tau2_done)


register_domain_tools(os.environ)
