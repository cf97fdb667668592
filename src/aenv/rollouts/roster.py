"""Which agent a name means, with what was said about it; and where its results go."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(frozen=True)
class AgentOptions:
    """What may be said about an agent beside its name; each agent takes what it needs."""

    seed: int = 0
    """Of the random agent."""
    max_steps: int | None = None
    model: str | None = None
    base_url: str | None = None
    """The server of the model."""
    api_key: str | None = field(default=None, repr=False)
    """That the server asks for."""
    temperature: float | None = None
    max_tokens: int | None = None
    price_in: float | None = None
    """Of a million tokens, as is `price_out`."""
    price_out: float | None = None
    captures: bool = False
    """Whether the exchanges with the model are recorded."""
    parameters: tuple[str, ...] = ()
    """`NAME=JSON`, for requests that are recorded."""


def agent(name: str, options: AgentOptions | None = None) -> Agent:
    """The agent called `name`, or `module:function`."""
    options = options or AgentOptions()
    if name in READY:
        return _ready(name, options.model, options.max_steps)
    match name:
        case "oracle":
            return agents.Oracle()
        case "nop":
            return agents.Nop()
        case "random":
            return agents.RandomCalls(options.seed, options.max_steps)
        case "llm":
            return _llm(options)
    if ":" not in name:
        raise InvalidRequest(f"no agent {name!r}; use {', '.join((*NAMES, *READY))}, or module:function")
    return agents.function(name)


def _llm(options: AgentOptions) -> Agent:
    if not options.model:
        raise InvalidRequest("agent 'llm' needs --model")
    if not options.base_url:
        raise InvalidRequest("agent 'llm' needs --base-url")
    model = Model(options.model, options.temperature, options.price_in, options.price_out, options.max_tokens)
    return Llm(Chat(options.base_url, options.api_key), model, options.max_steps)


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


def capture(name: str, options: AgentOptions) -> Capture | None:
    """What records the exchanges of the agent called `name` with the model at --base-url, where that is wanted."""
    is_ready = name in READY
    if options.parameters and not (is_ready or options.captures):
        raise InvalidRequest("--parameter is for requests that are captured; add --capture")
    if not is_ready and not options.captures:
        return None
    if name in NAMES:
        what = "records what it asks by itself" if name == "llm" else "asks no model"
        raise InvalidRequest(f"agent {name!r} {what}; leave out --capture")
    if not options.base_url:
        raise InvalidRequest(f"agent {name!r} is captured, and needs --base-url or OPENAI_BASE_URL")
    return Capture(options.base_url, options.api_key, parameters=parsed(options.parameters))


def named(name: str, model: str | None = None, seed: int = 0) -> Agent:
    """The agent called `name` without any option but its model and its seed."""
    return agent(name, AgentOptions(seed=seed, model=model))


def default_file(home: Path, environment: str, player: Agent) -> Path:
    """A new file for the results of one evaluation."""
    legal = re.sub(r"[^A-Za-z0-9@._-]", "-", f"{environment}-{player.name}")
    return home / "evals" / f"{legal}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
