"""The documentation is true: its snippets are files that run, and nothing public is left out."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from aenv.artifacts.data import builtin
from aenv.base import errors, settings
from aenv.cli import scaffold
from tests.command_line import aenv, environ
from tests.gateways import running_gateway

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
SOURCES = ROOT / "docs" / "src"
SNIPPET = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_snippet_is_its_file(page):
    for name, text in SNIPPET.findall(page.read_text()):
        assert text == (ROOT / name).read_text(), f"{page.name} differs from {name}; run scripts/fix"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page):
    """The names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower())) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_section_leads_to_its_heading(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"


async def run(*command: str | Path, cwd: Path = SOURCES, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


@pytest.mark.slow
async def test_the_notes_environment_works_as_the_pages_show(start, tmp_path):
    runtime = await start(SOURCES / "notes_env.py", AENV_WORKSPACE=str(tmp_path))
    said = await run("use_notes.py", DUMMY_INSTANCE_IP=runtime.url)
    assert said.splitlines() == [
        "notes@1.0.0/write_note - Write a note, or replace it.",
        "notes@1.0.0/read_notes - All notes, by their titles.",
        "notes@1.0.0/export - Export the notes, and say how far it is.",
        "wrote 'today' False",
        "{'today': 'it rains'}",
        "Progress(progress=0, total=2, message='copy 0')",
        "Progress(progress=1, total=2, message='copy 1')",
        "ToolResult(content=[{'type': 'text', 'text': '2'}], is_error=False)",
        "1",
        f"1.0 {1 / 9}",
        "{'seed': 1}",
        "{'success': True, 'data': {'status': 'healthy'}}",
    ]
    assert await run("use_notes_sync.py", DUMMY_INSTANCE_IP=runtime.url) == "{'today': 'it rains'}\n"


@pytest.mark.slow
async def test_the_tour_of_the_readme_works(start, tmp_path):
    project = tmp_path / "my-env"
    scaffold.write(project, scaffold.render("default", "my-env", "1.0.0"))  # what the page begins with
    shutil.copy(SOURCES / "readme_env.py", project / "src" / "search_env.py")
    runtime = await start(project)
    said = await run("readme_use.py", DUMMY_INSTANCE_IP=runtime.url)
    assert said.splitlines() == [
        "['my-env@1.0.0/my_custom_echo_env', 'my-env@1.0.0/search_code']",
        '{"matches":["custom_env.py","search_env.py"]} False',
        "30",
        "1.0",
    ]
    done = await asyncio.to_thread(aenv, "call", "search_code", "query=register_tool", "--url", runtime.url)
    assert f"query=register_tool # in another terminal: {done.stdout}" in (ROOT / "README.md").read_text()
    validated = await asyncio.to_thread(aenv, "validate", project, env=environ(AENV_HOME=str(tmp_path / "home")))
    assert validated.returncode == 0, validated.stdout


def shown(page: str, command: str) -> str:
    """What a page says that a command prints."""
    return (ROOT / page).read_text().partition(f"$ {command}\n")[2].partition("```")[0]


@pytest.mark.slow  # a gateway of its own
async def test_programs_that_start_instances_print_what_their_pages_show(tmp_path):
    async with running_gateway(tmp_path / "home") as gateway:
        url = f"http://127.0.0.1:{gateway.address.port}"
        said = await run(SOURCES / "rollouts.py", cwd=tmp_path, AENV_SYSTEM_URL=url)
        assert said == shown("docs/rollouts.md", "python rollouts.py")
        assert len((tmp_path / "run.jsonl").read_text().splitlines()) > len(said.splitlines())
        assert "Linux" in await run(SOURCES / "terminal.py", cwd=tmp_path, AENV_SYSTEM_URL=url)


async def test_the_agent_of_the_page_answers_as_it_shows(start):
    runtime = await start(SOURCES / "agent_b.py")
    said = await run("use_agent_b.py", DUMMY_INSTANCE_IP=runtime.url)
    assert said == shown("docs/agents.md", "python use_agent_b.py")


@pytest.mark.slow  # pytest in pytest
async def test_the_unit_test_of_the_pages_passes():
    assert "1 passed" in await run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_notes_env.py")


def test_decisions_are_numbered_without_a_gap():
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    titles = [page.read_text().partition("\n")[0] for page in pages]
    assert [title for number, title in enumerate(titles, 1) if not title.startswith(f"# {number}. ")] == []


def test_a_decision_that_was_overtaken_names_a_later_one():
    for page in sorted((ROOT / "docs" / "adr").glob("*.md")):
        said = re.search(r"^Superseded.*(?:\n.+)*", page.read_text(), re.MULTILINE)
        later = re.findall(r"\]\((\d{4})-", said[0]) if said else ["9999"]
        assert later and min(later) > page.name[:4], page.name


def test_every_setting_is_documented():
    page = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in (*settings.KNOWN, settings.DIRECT_MODE_VARIABLE) if f"`{name}`" not in page] == []


def test_every_error_is_drawn_in_the_tree():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.AEnvError)
    ]
    missing = [
        kind.__name__
        for kind in kinds
        if not re.search(rf"{kind.__name__}\b.*{kind.status}  {kind.code}\n", errors.__doc__)
    ]
    assert missing == []


def test_the_readme_says_offline_only_of_those_that_need_nothing_else() -> None:
    text = (ROOT / "README.md").read_text()
    sentence = text.partition("come with aenv and start by name. ")[2].partition(" do so offline")[0]
    named = set(re.findall(r"`([a-z0-9-]+)`", sentence))
    ships_tasks = {"terminalbench"}  # others are data; its own come along
    projects = [project for versions in builtin.built_in().values() for project in versions.values()]
    bare = {
        one.name
        for one in projects
        if one.ref not in one.aliases
        and not (one.path / "requirements.txt").exists()
        and (one.data is None or one.name in ships_tasks)
    }
    assert named == bare


@pytest.mark.parametrize(
    "page", sorted((ROOT / "src" / "aenv" / "envs").glob("*/README.md")), ids=lambda page: page.parent.name
)
def test_an_environments_page_starts_its_example_from_wherever_the_reader_is(page: Path) -> None:
    programs = re.findall(r"\bpython (?:-m )?\S*\bexample\b[.\w]*", page.read_text())
    assert set(programs) <= {f"python -m aenv.envs.{page.parent.name}.example"}


def test_the_picture_of_the_comparison_shows_the_numbers_of_its_table() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / "lib" / "comparison_plot.py"))
    compared = drawn["rows"]((ROOT / "docs" / "performance.md").read_text())
    assert (ROOT / "docs" / "performance.svg").read_text() == drawn["draw"](compared), "run ./scripts/fix"
    assert len(compared) >= 8
    assert all(row.times >= row.target > 1 for row in compared)  # as the verdicts of the table say
