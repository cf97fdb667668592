"""What an agent can do in an episode, and what comes back: the shapes that tools and functions of tau2 have.

Not here: registering them (`tau2_environment.py`).
"""

from __future__ import annotations

from typing import Any

from tau2_domains import specs
from tau2_episode import Episode
from tau2_evaluation import Verdict
from tau2_prompts import SPEAKING
from tau2_session import Session

from aenv import ModelFailed, ToolError

Json = dict[str, Any]

_DONE_SCHEMA = {"properties": {}, "title": "parameters", "type": "object"}
DONE_DESCRIPTION = "Say that you are done: the ticket is resolved, or cannot be."


def call_tool(session: Session, name: str, arguments: Json) -> Json:
    """A domain's tool, for the agent."""

    def run(episode: Episode) -> Json:
        if episode.is_done:
            observation = f"Error: the episode is over ({episode.termination}); nothing was done"
        else:
            observation = episode.call(name, arguments).content
        return {"observation": observation, "reward": 0.0, "done": episode.is_done, "step": episode.steps}

    return session.with_episode(run)


def send_message(session: Session, message: str) -> Json:
    if not message.strip():
        raise ToolError("message is empty; say something, or call tau2_done to end")

    def run(episode: Episode) -> Json:
        return {"observation": episode.send(message), "done": episode.is_done}

    return session.with_episode(run)


def stop(session: Session) -> Json:
    def run(episode: Episode) -> Json:
        episode.stop()
        return _status(episode)

    return session.with_episode(run)


def status(session: Session) -> Json:
    return session.with_episode(_status)


def _status(episode: Episode) -> Json:
    return {
        "done": episode.is_done,
        "steps": episode.steps,
        "last_observation": episode.last_observation,
        "termination": episode.termination,
    }


def system_prompt(session: Session) -> str:
    return session.with_episode(session.system_prompt)


def available_tools(session: Session) -> list[Json]:
    """The domain's tools as OpenAI's functions; alone, an agent also has `done`."""
    settings = session.settings
    tools = [spec.openai() for spec in specs(settings.domain, solo=settings.solo).values()]
    if settings.solo:
        done = {"name": "done", "description": DONE_DESCRIPTION, "parameters": _DONE_SCHEMA}
        tools.append({"type": "function", "function": done})
    return tools


def task_info(session: Session) -> Json:
    """What an agent may know of its task: nothing of the user's instructions, and nothing of what is judged."""
    settings = session.settings
    info: Json = {
        "domain": settings.domain,
        "task_id": session.task["id"],
        "solo_mode": settings.solo,
        "max_steps": settings.max_steps,
        "user": "none" if settings.solo else "llm" if settings.user_model else "scripted",
        "tools": [tool["function"]["name"] for tool in available_tools(session)],
    }
    if settings.solo:
        info["ticket"] = session.task.get("ticket")
    return info


def task_for_agents(session: Session) -> Json:
    """The task as `get_task` gives it: the first thing that an agent reads, and its system prompt."""

    def run(episode: Episode) -> Json:
        return {
            "id": session.task["id"],
            "instruction": episode.last_observation if not episode.steps else session.task.get("ticket") or "",
            "system": session.system_prompt(episode) + ("" if session.settings.solo else f"\n{SPEAKING}"),
            "max_steps": session.settings.max_steps,
        }

    return session.with_episode(run)


def reward(session: Session) -> Json:
    """What the episode is worth, part by part."""

    def run(episode: Episode) -> Json:
        try:
            verdict = session.verdict(episode)
        except ModelFailed as error:  # the judge could not be asked
            return _rewarded(episode, Verdict(0.0), invalid=str(error))
        found = _rewarded(episode, verdict, invalid=episode.failure)
        if verdict.is_judged:
            found["judge"] = {"assume": "assumed", "deny": "denied"}.get(session.settings.judge, "llm")
        if verdict.error:
            found["error"] = verdict.error
        return found

    return session.with_episode(run)


def _rewarded(episode: Episode, verdict: Verdict, *, invalid: str | None) -> Json:
    # One number a step, as in other environments: nothing is earned before the end.
    rewards = [*[0.0] * max(0, episode.steps - 1), verdict.reward]
    found: Json = {
        "rewards": rewards,
        "total_reward": verdict.reward,
        "done": episode.is_done,
        "steps": episode.steps,
        "parts": verdict.parts,
    }
    return found if invalid is None else {**found, "invalid": invalid}
