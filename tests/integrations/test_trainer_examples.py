"""The examples of trainers, each with its real package."""

from __future__ import annotations

import pytest

from .conftest import Run
from .frameworks import ROOT

pytestmark = pytest.mark.timeout(300)
VARIABLES: dict[str, dict[str, str]] = {
    "areal": {},
    "gymnasium": {},
    "ray": {"RAY_TMPDIR": "/tmp"},  # Ray's sockets lie below it, and a path of a socket is short
    "skyrl": {},
    "trl": {},
    "verl": {},
}


def shown(name: str) -> str:
    """What the page says that an example prints."""
    page = (ROOT / "docs" / "integrations.md").read_text()
    return page.partition(f"$ python -m aenv.examples.trainers.{name}\n")[2].partition("```")[0]


@pytest.mark.parametrize("name", VARIABLES)
async def test_an_example_of_a_trainer_prints_what_the_page_shows(run: Run, name: str) -> None:
    said = await run(name, f"aenv.examples.trainers.{name}", **VARIABLES[name])
    assert said == shown(name)
    assert "reward" in said
