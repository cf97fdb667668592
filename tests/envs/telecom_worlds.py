"""Worlds of tau2's telecom domain in the process of a test, and episodes played in them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import aenv

SOURCES = Path(aenv.__file__).parent / "envs" / "tau2" / "src"
if str(SOURCES) not in sys.path:
    sys.path.insert(0, str(SOURCES))

from tau2_evaluation import evaluate  # noqa: E402
from tau2_telecom import TelecomSource, TelecomWorld, load  # noqa: E402
from tau2_telecom_carrier import TelecomDB  # noqa: E402
from tau2_telecom_phone import TelecomUserDB  # noqa: E402
from tau2_toolkit import database_hash  # noqa: E402

__all__ = ["TelecomDB", "TelecomSource", "TelecomUserDB", "TelecomWorld", "database_hash", "load"]

Json = dict[str, Any]
OVERDUE = "[service_issue]overdue_bill_suspension[PERSONA:Easy]"
BAD_VPN = "[mobile_data_issue]bad_vpn|user_abroad_roaming_disabled_on[PERSONA:None]"
LINE = {"customer_id": "C1001", "line_id": "L1002"}


@cache
def telecom(shared: Path, *, workflow: bool = False) -> TelecomSource:
    """The domain, loaded once for all tests."""
    return load(shared / "data" / "tau2" / "domains" / "telecom", workflow=workflow)


def begun(source: TelecomSource, task: Json, *, solo: bool = False) -> TelecomWorld:
    """A world in which a task begins."""
    world = source.open(solo=solo)
    world.set_state(task["initial_state"], [])
    return world


def hashes(world: TelecomWorld) -> tuple[str, str]:
    return database_hash(world.agent.db), database_hash(world.user.db)


def user(world: TelecomWorld, name: str, **arguments: Any) -> str:
    """What the user's tool says."""
    return world.execute(name, arguments, "user").content


def agent(world: TelecomWorld, name: str, **arguments: Any) -> str:
    """What the agent's tool says."""
    return world.execute(name, arguments).content


def gold_calls(world: TelecomWorld, task: Json) -> list[Json]:
    """Play the reference solution. The messages of it; in solo mode the agent makes the user's calls, too."""
    messages: list[Json] = []
    for number, action in enumerate(task["evaluation_criteria"]["actions"]):
        requestor = "assistant" if world.solo else action["requestor"]
        name, arguments = action["name"], action["arguments"]
        call = {"id": str(number), "name": name, "arguments": arguments, "requestor": requestor}
        answer = world.execute(name, arguments, requestor)
        assert not answer.error, answer.content
        messages.append({"role": requestor, "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "id": str(number), "content": answer.content, "error": False})
    return messages


def reward(source: TelecomSource, task: Json, calls: list[Json], *, solo: bool = False) -> float:
    """Of an episode in which the agent says nothing but that it is done."""
    messages = [*calls, {"role": "assistant", "content": "Done."}]
    verdict = evaluate(source, task, messages, "agent_stop", _no_judge, solo=solo)
    assert verdict.error is None, verdict.error
    return verdict.reward


def _no_judge(messages: list[Json], assertions: list[str]) -> bool:
    raise AssertionError("telecom has nothing to judge in plain language")
