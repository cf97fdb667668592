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
from .episodes import Agent
from .llm import Llm, Model

NAMES = ("oracle", "nop", "random", "llm")


def agent(name: str, variables: Mapping[str, str], /, **given: Any) -> Agent:
    """The agent called `name`, or `module:function`; `given` has the options of `aenv eval`."""
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
        raise InvalidRequest(f"no agent {name!r}; use {', '.join(NAMES)}, or module:function")
    return agents.function(name)


def named(name: str) -> Agent:
    """The agent called `name` without any option."""
    return agent(name, {}, seed=0, max_steps=None, model=None, base_url=None)


def default_file(home: Path, environment: str, player: Agent) -> Path:
    """A new file for the results of one evaluation."""
    legal = re.sub(r"[^A-Za-z0-9@._-]", "-", f"{environment}-{player.name}")
    return home / "evals" / f"{legal}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
