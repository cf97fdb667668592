"""The threat model claims nothing without a test, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "threat-model.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
WHO = (
    "The agent",
    "The author",
    "Another tenant",
    "A viewer",
    "A local user",
    "A page in a browser",
    "A malicious hub",
)


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("who", WHO)
def test_every_line_about_an_attacker_names_a_test(who: str) -> None:
    section = next(text for title, text in sections().items() if title.startswith(who))
    found = rows(section)
    assert found
    for against, how, tested in found:
        assert against
        assert how
        assert NAMED.search(tested), f"no test is named for: {against}"
        assert re.fullmatch(rf"{NAMED.pattern}(, {NAMED.pattern})*", tested), f"more than names: {tested}"
