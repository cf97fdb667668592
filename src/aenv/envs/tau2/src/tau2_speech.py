"""A scenario's lines as the customer says them to the agent.

A scenario is written to the player of the customer: "You are Emma Kim. If the agent refuses, insist." What
describes the customer is put into the first person; what directs the player is left out.
"""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\bi\.e\.)(?<!\be\.g\.)\s+|\n+")
_ASIDE = re.compile(r"\s*\([^()]*\bagent\b[^()]*\)")  # a note to the player, within a sentence for the customer
# The player must keep it for itself, or behave in some way: no part of the sentence is the customer's.
_SECRET = re.compile(r"(?<!\byou )\b(?:do not|don't) (?:reveal|share|mention|say|tell)\b", re.IGNORECASE)
_DIRECTION = re.compile(
    r"\bmention\b|\bswear\b|\bpretend\b|\bmake up a\b|\brespond\b|\bconversation\b|\bupfront\b"
    r"|\bwhen asked\b|\binteracting with\b|\b(?:it|they) refuses?\b"
    r"|\buse (?:the )?\w+(?: tool\b|_\w+)|^be (?!sure\b)",
    re.IGNORECASE,
)
# What depends on something the agent does, up to the end of the sentence.
_DEPENDING = re.compile(
    r"(?:^|,? (?:but|and) |, )(?:but |and |or )?(?:if and only if|if|when|once|after|unless|until)\b"
    r"[^,.;]{0,80}\bthe agent (?!can\b).*",
    re.IGNORECASE,
)

_SUBJECT = r"(?:\byou )?\b"
_TO_THE_AGENT = (
    (rf"{_SUBJECT}(?:ask|tell) the agent not to\b", "please do not"),
    (rf"{_SUBJECT}(?:ask|tell) the agent to\b", "please"),
    (rf"{_SUBJECT}ask the agent (?=how|what|which|when|where|if|whether|about)", "please tell me "),
    (r"\btell the agent (?:that )?(?=you\b)", ""),
    (r"\bif the agent can (?:help (?:you )?|just )?", "if it is possible to "),
    (r"\bthe agent (should|may|might) be able to\b", r"it \1 be possible to"),
    (r"\b(?:through|with) the agent\b", "here"),
    (r" on its own\b", ""),
)
_ADDRESSED = (
    (rf"{_SUBJECT}ask the agent\b", "I ask THEE"),
    (r"\b(want|need) the agent to\b", r"\1 THEE to"),
    (r"\bask them to\b", "ask THEE to"),
)
_OF_THE_PLAYER = (
    (r"^(first, |then, )?try to\b", r"\1you want to"),
    (r"^(first, |then, )?request\b", r"\1I request"),
    (r"(^|, so |, and )insist\b", r"\1I insist"),
    (r"\byou will see that\b", "I see that"),
    (r"\byou (?:are|become) angry and\b(?= ask for\b)", "you"),
    (r"\byou (?:are|become) angry and\b ", ""),
)
_PREPOSITIONS = "about|at|behind|by|for|from|of|to|toward|with|without"
# Most are nouns too, and then "you" is a subject: "the help you need".
_TAKE_AN_OBJECT = (
    "allows?|asks?|caused?|charged?|contacts?|gave|gives?|helps?|informs?|lets?|makes?|offers?|reminds?|saves?|sends?"
    "|sent|shows?|tells?|told|upgrades?"
)
_VERBS = "are|were|can|could|did|do|had|have|may|might|must|need|prefer|should|want|will|would"
_FIRST_PERSON = (
    # "You name is" and "your forgot" are slips of the published scenarios.
    (r"\byou (?=name\b|reservation\b|mobile\b|skateboard\b|phone\b|order\b|email\b|user id\b)", "my "),
    (r"\byour (?=forgot\b)", "I "),
    (r"\byourself\b", "myself"),
    (r"\byours\b", "mine"),
    (r"\byour\b", "my"),
    (rf"\b({_PREPOSITIONS}) you\b(?!'|’)", r"\1 me"),
    (rf"\b({_TAKE_AN_OBJECT}) you\b(?!'|’| (?:{_VERBS})\b)", r"\1 me"),
    (r"\byou(?:'|’)re\b", "I'm"),
    (r"\bare you\b", "am I"),
    (r"\bwere you\b", "was I"),
    (r"\byou ((?:also |just |still |\w+ly )?)are\b", r"I \1am"),
    (r"\byou ((?:also |just |still |\w+ly )?)were\b", r"I \1was"),
    (r"\byou ((?:also |just |still |\w+ly )?)aren(?:'|’)t\b", r"I'm \1not"),
    (r"\byou ((?:also |just |still |\w+ly )?)weren(?:'|’)t\b", r"I \1wasn't"),
    (r"\byou\b", "I"),
    (r"^(I\b[^.,;]*\b(?:and|but)) are\b", r"\1 am"),
)
_THEE = re.compile(r"\bTHEE\b")


def spoken(text: str | None) -> list[str]:
    """The sentences of a scenario that the customer can say, in the first person."""
    lines = (_sentence(part) for part in _SENTENCE_END.split(text or ""))
    return [line for line in lines if line]


def _sentence(text: str) -> str:
    """One sentence as the customer says it; empty, where it is for the player."""
    text = " ".join(text.lstrip(". ").split())
    if _SECRET.search(text):
        return ""
    for rules in (_TO_THE_AGENT, _ADDRESSED):
        text = _rewritten(text, rules)
    text = _DEPENDING.sub("", _ASIDE.sub("", text)).strip()
    if _DIRECTION.search(text):
        return ""
    text = _rewritten(text, _OF_THE_PLAYER)
    if re.search(r"\bthe agent\b", text, re.IGNORECASE) or not re.search(r"\w", text):
        return ""
    # Last, because from here on "you" is the agent.
    text = _THEE.sub("you", _rewritten(text, _FIRST_PERSON))
    text = text[:1].upper() + text[1:]
    return text if text[-1] in ".!?:;)}" else f"{text}."


def _rewritten(text: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    return text
