"""The table of attacks is whole: every program's attack is in it, and the documentation shows all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks import ATTACKS
from tests.attacks.engines import PROGRAMS

PAGE = Path(__file__).parent.parent.parent / "docs" / "isolation.md"


@pytest.mark.parametrize("family", sorted({attack.family for attack in ATTACKS if attack.has_program}))
def test_every_attack_of_a_program_is_in_the_table(family: str) -> None:
    code = f"import attempt, {family}; print(*attempt.known())"
    found = subprocess.run([sys.executable, "-c", code], cwd=PROGRAMS, check=True, capture_output=True, text=True)
    assert sorted(found.stdout.split()) == sorted(
        attack.name for attack in ATTACKS if attack.family == family and attack.has_program
    )


def test_the_page_about_isolation_shows_every_attack() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    told = {
        attack.name: f"{attack.tries} | {attack.contained_by} | contained | "
        + ("contained" if attack.for_user else "not enforced, and said so")
        for attack in ATTACKS
    }
    assert rows == told


def test_no_attack_has_the_name_of_another() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
