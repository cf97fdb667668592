"""Every message on docs/troubleshooting.md is one that the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aenv.base.outcomes import Outcome

ROOT = Path(__file__).resolve().parent.parent
_ROW = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)
_BETWEEN_LITERALS = re.compile(r'"\s*\n\s*f?"')
OUTCOMES = {outcome.value for outcome in Outcome}
# Messages that are put together from a name and a value.
COMPOSED = {
    "kernel.unprivileged_userns_clone is 0": "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns is 1": "kernel.apparmor_restrict_unprivileged_userns",
    "no config.json in …": "make a project with 'aenv init NAME'",
}


def messages() -> list[str]:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    return sorted({text for cell in _ROW.findall(page) for text in re.findall(r"`([^`]+)`", cell)} - OUTCOMES)


@pytest.fixture(scope="module")
def source() -> str:
    """The package's text, with literals that follow each other joined."""
    files = sorted((ROOT / "src" / "aenv").rglob("*.py"))
    return _BETWEEN_LITERALS.sub("", "".join(path.read_text() for path in files))


def test_the_page_has_messages() -> None:
    assert len(messages()) > 40


@pytest.mark.parametrize("message", messages())
def test_a_message_of_the_page_is_one_of_the_code(message: str, source: str) -> None:
    parts = [part.strip(" :;") for part in COMPOSED.get(message, message).split("…")]
    assert [part for part in parts if part and part not in source] == []
