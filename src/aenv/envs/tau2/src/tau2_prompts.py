"""Prompts: what an agent and a model that plays the user are told."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

GREETING = "Hi! How can I help you today?"

_INSTRUCTIONS = """
You are a customer service agent. You help the user according to the <policy> below.
In each turn you do one of two things:
- you send a message to the user, or
- you call a tool.
Never do both in the same turn.
Be as helpful as the policy allows, and always follow it. Produce valid JSON only.
""".strip()

_SOLO_INSTRUCTIONS = """
You are a customer service agent. You resolve the <ticket> below according to the <policy>.
There is no user to talk to. Act by tool calls only, in every turn, also to find out what you need to know.
When the ticket is resolved, or cannot be, call the tool `done`, alone and without arguments.
Always follow the policy. Produce valid JSON only.
""".strip()

SPEAKING = (
    "To say something to the user, call the tool `tau2_send_message`; its result is the user's answer. "
    "When there is nothing left to do, call `tau2_done`."
)


def agent_prompt(policy: str, *, ticket: str | None = None) -> str:
    """The system prompt of an agent; with a ticket, of one that works alone."""
    if ticket is None:
        return f"{_block('instructions', _INSTRUCTIONS)}\n{_block('policy', policy)}"
    instructions = _block("instructions", _SOLO_INSTRUCTIONS)
    return f"{instructions}\n{_block('policy', policy)}\n{_block('ticket', ticket)}"


def user_prompt(guidelines: str, scenario: Json) -> str:
    """The system prompt of a model that plays the user."""
    return f"{guidelines}\n\n{_block('scenario', scenario_text(scenario))}"


def scenario_text(scenario: Json) -> str:
    """A task's `user_scenario` as text."""
    lines = []
    if scenario.get("persona") is not None:
        lines += ["Persona:", _indented(scenario["persona"])]
    instructions = scenario["instructions"]
    text = instructions if isinstance(instructions, str) else _instructions_text(instructions)
    return "\n".join([*lines, "Instructions:", _indented(text)])


def _instructions_text(instructions: Json) -> str:
    parts = [
        f"Domain: {instructions['domain']}",
        f"Reason for call:\n{_indented(instructions['reason_for_call'])}",
    ]
    for title, key in (("Known info", "known_info"), ("Unknown info", "unknown_info")):
        if instructions.get(key) is not None:
            parts.append(f"{title}:\n{_indented(instructions[key])}")
    parts.append(f"Task instructions:\n{_indented(instructions['task_instructions'])}")
    return "\n".join(parts)


def _indented(text: str) -> str:
    return "".join(f"\t{line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _block(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"
