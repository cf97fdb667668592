"""Which agent a name means, with what the command line said about it; and where its results go."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.errors import InvalidRequest
from ..client.chat import Chat
from . import agents
from .capture import Capture
from .capture.named_capture import parsed
from .episodes import Agent
from .llm import Llm, Model

NAMES = ("oracle", "nop", "random", "llm")
READY = ("claude-code", "codex", "openhands", "mini-swe-agent", "smolagents")
"""Agents of others, which ask their model through a capture."""


def agent(name: str, variables: Mapping[str, str], /, **given: Any) -> Agent:
    """The agent called `name`, or `module:function`; `given` has the options of `aenv eval`."""
    if name in READY:
        return _ready(name, given["model"], given["max_steps"])
    match name:
        case "oracle":
            return agents.Oracle()
        case "nop":
            return agents.Nop()
        case "random":
            return agents.RandomCalls(given["seed"], given["max_steps"])
        case "llm":
            for option in ("model", "base_url"):
                if not given[option]:
                    raise InvalidRequest(f"agent 'llm' needs --{option.replace('_', '-')}")
            model = Model(
                given["model"], given["temperature"], given["price_in"], given["price_out"], given["max_tokens"]
            )
            key = variables.get(given["api_key_env"])
            return Llm(Chat(given["base_url"], key), model, given["max_steps"])
    if ":" not in name:
        raise InvalidRequest(f"no agent {name!r}; use {', '.join((*NAMES, *READY))}, or module:function")
    return agents.function(name)


def _ready(name: str, model: str | None, max_steps: int | None) -> Agent:
    from .ready.claude_code import ClaudeCode
    from .ready.codex_agent import Codex
    from .ready.mini_swe_agent import MiniSweAgent
    from .ready.openhands_agent import OpenHands
    from .ready.program_agent import ProgramAgent, ReadyProgram
    from .ready.smolagents_agent import Smolagents

    if not model:
        raise InvalidRequest(f"agent {name!r} needs the name of its model: --model, or model=… of Runner.run")
    programs: tuple[ReadyProgram, ...] = (ClaudeCode(), Codex(), OpenHands(), MiniSweAgent(), Smolagents())
    return ProgramAgent(next(one for one in programs if one.name == name), model, max_steps)


def capture(name: str, variables: Mapping[str, str], /, **given: Any) -> Capture | None:
    """What records the exchanges of the agent called `name` with the model at --base-url, where that is wanted."""
    is_ready = name in READY
    if given["parameter"] and not (is_ready or given["capture"]):
        raise InvalidRequest("--parameter is for requests that are captured; add --capture")
    if not is_ready and not given["capture"]:
        return None
    if name in NAMES:
        what = "records what it asks by itself" if name == "llm" else "asks no model"
        raise InvalidRequest(f"agent {name!r} {what}; leave out --capture")
    if not given["base_url"]:
        raise InvalidRequest(f"agent {name!r} is captured, and needs --base-url or OPENAI_BASE_URL")
    key = variables.get(given["api_key_env"])
    return Capture(given["base_url"], key, parameters=parsed(given["parameter"]))


def named(name: str, model: str | None = None, seed: int = 0) -> Agent:
    """The agent called `name` without any option but its model and its seed."""
    return agent(name, {}, seed=seed, max_steps=None, model=model, base_url=None)


def default_file(home: Path, environment: str, player: Agent) -> Path:
    """A new file for the results of one evaluation."""
    legal = re.sub(r"[^A-Za-z0-9@._-]", "-", f"{environment}-{player.name}")
    return home / "evals" / f"{legal}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
