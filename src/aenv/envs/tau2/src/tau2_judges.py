"""Judges of assertions in plain language: one that assumes, one that denies, and a model."""

from __future__ import annotations

import json
import re
from typing import Any

from tau2_models import Ask

from aenv import ModelFailed

Json = dict[str, Any]

_TASK = """
You judge a conversation between a customer service agent and a user. For each numbered assertion decide whether
the conversation shows that it is true. Answer with JSON only, one entry for each assertion, in their order:
{"results": [{"assertion": "...", "met": true or false, "justification": "..."}]}
""".strip()


def assume(messages: list[Json], assertions: list[str]) -> bool:
    """Take every assertion for true."""
    return True


def deny(messages: list[Json], assertions: list[str]) -> bool:
    """Take every assertion for false."""
    return False


class ModelJudge:
    """Ask a model. ModelFailed when it does not answer each assertion."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, messages: list[Json], assertions: list[str]) -> bool:
        numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(assertions, 1))
        asked = (
            f"<conversation>\n{transcript(messages)}\n</conversation>\n\n<assertions>\n{numbered}\n</assertions>"
        )
        answer = self._ask([{"role": "system", "content": _TASK}, {"role": "user", "content": asked}], [])
        results = _results(answer.get("content") or "")
        if len(results) != len(assertions):
            raise ModelFailed(f"the judge answered {len(results)} of {len(assertions)} assertions")
        return all(results)


def transcript(messages: list[Json]) -> str:
    """One line for each message, tool calls and results included."""
    return "\n".join(f"{message['role']}: {message.get('content')}" for message in messages)


def _results(text: str) -> list[bool]:
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        entries = json.loads(found[0] if found else "")["results"]
        return [entry["met"] is True for entry in entries]
    except (ValueError, KeyError, TypeError):
        raise ModelFailed("the judge did not answer with the JSON that it was asked for") from None
