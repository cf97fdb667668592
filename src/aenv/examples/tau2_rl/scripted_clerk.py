"""A model that is a script: it understands one kind of request, and so shows an episode without any model.

It creates the task that a customer of the domain `mock` asks for, and says goodbye.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_REQUEST = re.compile(r"task called '([^']+)' for (\w+)")


@dataclass(frozen=True)
class ClerkReply:
    """What the script says."""

    message: dict[str, Any]


class ScriptedClerk:
    """Answers as a chat model does; the last messages decide."""

    async def complete(self, body: Mapping[str, Any]) -> ClerkReply:
        """A tool call for a request that it understands; a question otherwise."""
        messages = body["messages"]
        if messages[-1]["role"] == "tool":
            return _said("I have created the task. Is there anything else I can do for you?")
        if any(message["role"] == "tool" for message in messages):
            return _said("Thank you. Goodbye.")
        told = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
        asked = _REQUEST.search(told)
        if not asked:
            return _said("Which task shall I create, and for which user?")
        call = {"name": "create_task", "arguments": json.dumps({"user_id": asked[2], "title": asked[1]})}
        calls = [{"id": "1", "type": "function", "function": call}]
        return ClerkReply({"role": "assistant", "content": None, "tool_calls": calls})


def _said(text: str) -> ClerkReply:
    return ClerkReply({"role": "assistant", "content": text})
