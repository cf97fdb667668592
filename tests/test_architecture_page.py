"""docs/architecture.md and the READMEs of wings name files that exist; the picture is what its script draws."""

from __future__ import annotations

import configparser
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "aenv"
PAGES = [ROOT / "docs" / "architecture.md", *sorted(PACKAGE.glob("*/README.md"))]
_FILE = re.compile(r"`([\w./-]+\.py)`")
_ROW = "importlinter:contract:row-"
_WALK = re.compile(r"^\*\*The walk.*?\*\*", re.MULTILINE)
_FOLDER = re.compile(r"`([\w./-]+/)`")


def named(pattern: re.Pattern[str], page: Path) -> list[str]:
    return sorted(set(pattern.findall(page.read_text())))


def exists(name: str, page: Path) -> bool:
    """Below the repository, the package or the page's own wing; a mere name also anywhere in that wing."""
    wing = page.parent
    if any((folder / name).exists() for folder in (ROOT, PACKAGE, PACKAGE.parent, wing)):
        return True
    return wing.parent == PACKAGE and "/" not in name.rstrip("/") and any(wing.rglob(name.rstrip("/")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_map_names_exists(page: Path) -> None:
    names = named(_FILE, page)
    assert names, "a page without a file is not a map"
    assert [name for name in names if not exists(name, page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_folder_that_a_map_names_exists(page: Path) -> None:
    in_projects = {"src/", "tests/"}
    assert [name for name in named(_FOLDER, page) if name not in in_projects and not exists(name, page)] == []


def test_the_architecture_page_names_every_wing() -> None:
    wings = {page.parent.name for page in PAGES[1:]}
    text = PAGES[0].read_text()
    assert {
        wing for wing in wings if text.count(f"\n| `{wing}/` |") != 1 or f"{wing}/README.md" not in text
    } == set()


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.parent.name)
def test_the_page_of_a_wing_has_its_words_its_walk_its_imports_and_its_likely_changes(page: Path) -> None:
    text = page.read_text()
    assert [
        part for part in ("**Words.** ", "**The walk", "import", "**Likely changes**") if part not in text
    ] == []
    assert [title for title, count in Counter(_WALK.findall(text)).items() if count > 1] == []
    assert len(re.findall(r"^\* ", text.partition("**Likely changes**")[2], re.MULTILINE)) >= 3


def test_every_wing_of_the_table_has_a_page() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", PAGES[0].read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(page.parent.name for page in PAGES[1:])


@pytest.mark.parametrize("page", ["docs/architecture.md", "AGENTS.md"])
def test_the_import_contract_forbids_what_the_table_of_wings_does_not_list(page: str) -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    rows = dict(
        re.findall(r"^\| `(?:src/aenv/)?(\w+)/` \|.*\| ([^|]+) \|$", (ROOT / page).read_text(), re.MULTILINE)
    )
    wings = {name.removeprefix(_ROW) for name in contracts.sections() if name.startswith(_ROW)}
    assert wings <= rows.keys()
    for wing in wings:
        forbidden = contracts[_ROW + wing]["forbidden_modules"].split()
        # Single modules stand in backticks, and what single modules may do follows a semicolon.
        listed = set(re.sub(r"`[^`]*`[^,;]*", "", rows[wing].partition(";")[0]).replace(",", " ").split()) & wings
        assert {f"aenv.{other}" for other in wings - listed - {wing}} == set(forbidden), wing


def test_the_picture_is_what_its_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / "lib" / "architecture_picture.py"))
    assert (ROOT / "docs" / "architecture.svg").read_text() == drawn["picture"](), "run scripts/fix"
