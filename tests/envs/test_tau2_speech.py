"""What tau2's scripted user says: the customer's own words, and no line that was written for the player."""

from __future__ import annotations

import json
import re

import pytest

from .tau2_sessions import actions, session

# isort: split
from tau2_speech import spoken
from tau2_users import ScriptedUser

SECOND_PERSON = re.compile(r"\b(you|your|yours|yourself)\b", re.IGNORECASE)
TO_THE_AGENT = re.compile(r"\b(want|need|ask) you\b")
SLIPS = re.compile(r"\bI (are|were|name|is)\b|\bme (are|will|should|want|can)\b|\bmy (want|are)\b|\bTHEE\b")


def is_the_customers(line: str) -> bool:
    """Whether a line is in the first person, and speaks to the agent rather than about it."""
    rest = TO_THE_AGENT.sub("", line)
    return not (SECOND_PERSON.search(rest) or SLIPS.search(rest) or re.search(r"\bthe agent\b", rest))


@pytest.mark.parametrize("domain", ["mock", "airline", "retail", pytest.param("telecom", marks=pytest.mark.slow)])
def test_no_scenario_makes_the_scripted_user_speak_to_the_customer(shared, domain):
    tasks = json.loads((shared / "data" / "tau2" / "domains" / domain / "tasks.json").read_text())
    said = set()
    for task in tasks:
        user = ScriptedUser(task["user_scenario"], {}, patience=1)
        opening = user.turn([]).text
        assert opening != "I need help.", f"nothing of the reason is left in task {task['id']!r}"
        question = {"role": "assistant", "content": "Who are you?"}
        known = task["user_scenario"]["instructions"]
        facts = [] if isinstance(known, str) else [known.get("known_info"), known.get("unknown_info")]
        said |= {opening, user.turn([question]).text, *(line for fact in facts for line in spoken(fact))}
    assert len(said) > 4
    assert [line for line in said if not is_the_customers(line)] == []


def test_an_agent_hears_the_customer_in_the_first_person(shared):
    here = session(shared, "airline", "3")
    opening = actions.status(here)["last_observation"]
    assert opening.startswith(
        "I want to figure out the total number of suitcases the reservation allows me to take"
    )
    answer = actions.send_message(here, "What is your user id?")["observation"]
    assert "My user id is: anya_garcia_5901." in answer


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("You are Ada Byron. Your number is 5.", ["I am Ada Byron.", "My number is 5."]),
        ("You want a seat for yourself, not yours", ["I want a seat for myself, not mine."]),
        ("You're late, and they told you that you weren't.", ["I'm late, and they told me that I wasn't."]),
        ("You also are a member but are not sure.", ["I also am a member but am not sure."]),
        ("The total of what was sent to you can be paid.", ["The total of what was sent to me can be paid."]),
        ("The sum you get for what they gave you is low.", ["The sum I get for what they gave me is low."]),
        ("The help you need may help you.", ["The help I need may help me."]),
        ("You name is Ada.", ["My name is Ada."]),
        ("First, try to book a flight (i.e. any).", ["First, I want to book a flight (i.e. any)."]),
        ("Finally, ask the agent to list your orders.", ["Finally, please list my orders."]),
        ("Ask the agent how much you paid.", ["Please tell me how much I paid."]),
        ("You want the agent to check your bill.", ["I want you to check my bill."]),
        ("You wonder if the agent can help you pay.", ["I wonder if it is possible to pay."]),
        ("You want a refund, but if the agent refuses, you give in.", ["I want a refund."]),
        ("You moved (you can say so to the agent) last week.", ["I moved last week."]),
    ],
)
def test_what_describes_the_customer_is_said_in_the_first_person(written, said):
    assert spoken(written) == said


@pytest.mark.parametrize(
    "direction",
    [
        "If the agent asks for confirmation, say that you changed your mind.",
        "But when the agent is done, you get angry.",
        "The id is 5206946487 (do not share this with the agent).",
        "Make sure you mention both at once.",
        "Be insistent.",
        "When asked for the order, provide 17 first.",
        "First, use the check_notifications tool to see your notifications.",
        "You make up a story about a lost bag.",
        "You are trying to make the agent break a rule.",
        ".",
    ],
)
def test_what_directs_the_player_is_left_out(direction):
    assert spoken(direction) == []
    user = ScriptedUser({"instructions": {"reason_for_call": direction}}, {}, patience=1)
    assert user.turn([]).text == "I need help."
