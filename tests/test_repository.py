"""The repository as a whole: complete pages, links that lead somewhere, one version, and a start from nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import click
import pytest

import aenv
from aenv.base import settings
from aenv.cli.main import COMMANDS, GROUPS, cli
from tests.command_line import environ

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
# What is made by tools, and what git ignores.
MADE = shutil.ignore_patterns(".venv", ".venvs", ".git", ".bench", "__pycache__", ".*_cache", ".hypothesis")


def page(name: str) -> str:
    return (ROOT / name).read_text()


class TestPages:
    @pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
    def test_every_link_leads_to_a_file(self, path: Path) -> None:
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
        assert [link for link in links if link and not (path.parent / link).exists()] == []

    def test_the_index_has_every_page(self) -> None:
        names = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
        assert names - set(re.findall(r"\(([\w-]+\.md)\)", page("docs/index.md"))) == set()

    def test_the_readme_begins_with_its_two_commands(self) -> None:
        block = re.findall(r"```sh\n(.*?)```", page("README.md"), flags=re.DOTALL)[0]
        commands = [line.split()[0] for line in block.splitlines()]
        assert commands == ["./scripts/demo", "./scripts/test"]

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_is_documented_with_all_its_options(self, name: str) -> None:
        command = cli.get_command(click.Context(cli), name)
        assert command
        section = page("docs/cli.md").split(f"## aenv {name}\n")[1].split("\n## ")[0]
        options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        missing = [flag for option in options for flag in option.opts if f"`{flag}`" not in section]
        assert missing == []

    def test_the_page_of_the_commands_begins_with_the_list_that_help_prints(self) -> None:
        tables = page("docs/cli.md").partition("\n## ")[0].split("\n**")[1:]
        listed = {one.partition("**")[0]: re.findall(r"^\| \[`aenv (\w+)`\]", one, re.MULTILINE) for one in tables}
        assert listed == {title: [*names] for title, names in GROUPS.items()}

    def test_every_variable_is_documented(self) -> None:
        documented = page("docs/settings.md")
        names = [*settings.KNOWN, settings.DIRECT_MODE_VARIABLE]
        assert [name for name in names if f"`{name}`" not in documented] == []

    def test_no_page_and_no_template_installs_us_from_an_index(self) -> None:
        templates = (ROOT / "src" / "aenv" / "cli" / "templates").rglob("*.tmpl")
        sources = (ROOT / "src" / "aenv").rglob("*.py")
        told = [
            path
            for path in [*PAGES, *templates, *sources]
            if re.search(r"pip install [^\n]*aenvironment\b(?!-)", path.read_text())
        ]
        assert [str(path.relative_to(ROOT)) for path in told] == [
            "src/aenv/cli/commands/build.py"
        ]  # which warns of it

    def test_what_a_message_asks_to_install_is_what_the_extra_asks_for(self) -> None:
        sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
        lines = re.findall(r"pip install ((?:'[^']+' ?)+)", sources)
        asked = {required for line in lines for required in re.findall(r"'([^']+)'", line)}
        extras = tomllib.loads(page("pyproject.toml"))["project"]["optional-dependencies"]
        assert asked == {required for extra in extras.values() for required in extra}

    def test_the_changelog_tells_of_this_version(self) -> None:
        assert f"## [{aenv.__version__}]" in page("CHANGELOG.md")


class TestProject:
    def test_the_installed_package_has_the_version_of_the_code(self) -> None:
        assert metadata.version("aenvironment") == aenv.__version__

    def test_no_lock_file_is_kept(self) -> None:
        kept = {path.name for path in ROOT.iterdir()} & {
            "poetry.lock",
            "Pipfile.lock",
            "requirements.lock",
            "pdm.lock",
        }
        assert kept == set()
        assert "uv.lock" in page(".gitignore").split()

    def test_hooks_are_local(self) -> None:
        assert re.findall(r"repo: (\S+)", page(".pre-commit-config.yaml")) == ["local"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the repository as git would give it, in a place of its own."""
    shutil.copytree(ROOT, tmp_path / "checkout", ignore=MADE)
    return tmp_path / "checkout"


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestFresh:
    def test_the_demo_runs_from_nothing_with_an_empty_home(self, checkout: Path, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        # The real home's package index, if it has one of its own: an index is part of the machine.
        known = Path(os.environ.get("PIP_CONFIG_FILE") or Path.home() / ".config" / "pip" / "pip.conf")
        variables = environ(HOME=str(home), **({"PIP_CONFIG_FILE": str(known)} if known.exists() else {}))
        variables["PATH"] = os.pathsep.join(
            folder for folder in variables["PATH"].split(os.pathsep) if not folder.startswith(sys.prefix)
        )
        done = subprocess.run(
            [checkout / "scripts" / "demo"], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("done; nothing is left behind\n")
        assert not (checkout / ".venv" / "bin" / "ruff").exists()  # a demo needs no tools of development
        setup = [checkout / "scripts" / "setup", "--package"]
        again = subprocess.run(setup, env=variables, capture_output=True, text=True)
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    def test_a_release_is_the_same_when_it_is_built_again_and_its_wheel_works(self, checkout: Path) -> None:
        (checkout / ".venv").symlink_to(Path(sys.prefix))
        (checkout / "scripts" / "setup").write_text("#!/bin/sh\n")  # the virtual environment is that of the tests
        for words in ("init --quiet", "add --all", "-c user.name=a -c user.email=a@b commit --quiet -m x"):
            subprocess.run(["git", *words.split()], cwd=checkout, check=True)
        release = [checkout / "scripts" / "release"]
        sums = subprocess.run(release, check=True, capture_output=True, text=True).stdout
        assert sorted(line.split()[1] for line in sums.splitlines()) == [
            f"./aenvironment-{aenv.__version__}-py3-none-any.whl",
            f"./aenvironment-{aenv.__version__}.tar.gz",
        ]
        built = subprocess.run(["sha256sum", "--check"], cwd=checkout / "dist", input=sums, text=True)
        assert built.returncode == 0
        committed = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=checkout, check=True, capture_output=True, text=True
        )
        build = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "-o", checkout / "again", checkout]
        subprocess.run(build, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": committed.stdout.strip()})
        wheels = [line for line in sums.splitlines() if line.endswith(".whl")]
        again = subprocess.run(
            ["sha256sum", "--check"], cwd=checkout / "again", input="\n".join(wheels), text=True
        )
        assert again.returncode == 0
        (checkout / "README.md").write_text("changed")
        dirty = subprocess.run(release, capture_output=True, text=True)
        assert (dirty.returncode, dirty.stderr) == (1, "release: there are changes that are not committed\n")

    def test_the_wheel_holds_the_templates_and_nothing_else_than_the_package(
        self, checkout: Path, tmp_path: Path
    ) -> None:
        build = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "-o", tmp_path / "dist", checkout]
        subprocess.run(build, check=True)
        (wheel,) = (tmp_path / "dist").glob("aenvironment-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        templates = {
            path.relative_to(ROOT / "src").as_posix()
            for path in (ROOT / "src" / "aenv" / "cli" / "templates").rglob("*.tmpl")
        }
        assert templates
        assert templates <= set(names)
        assert {name.partition("/")[0] for name in names} == {"aenv", f"aenvironment-{aenv.__version__}.dist-info"}
