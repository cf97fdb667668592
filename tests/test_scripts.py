"""The scripts: what they refuse, what they install, and that the checkers catch what they are for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "scripts" / "lib"

Project = Callable[[dict[str, str]], Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Makes a checkout out of file names and texts."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.fixture
def commands(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Puts programs of our own first on the PATH."""

    def make(**programs: str) -> dict[str, str]:
        folder = tmp_path / "commands"
        folder.mkdir()
        for name, body in programs.items():
            program = folder / name.replace("_", "-")
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    return make


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


class TestSizes:
    @pytest.mark.slow
    def test_this_repository_is_within_its_limits(self) -> None:
        done = run(sys.executable, LIB / "sizes.py", ROOT)
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize("folder", ["src/aenv", "tests", "benchmarks", "conformance"])
    def test_a_file_above_500_lines_is_found(self, project: Project, folder: str) -> None:
        root = project({f"{folder}/long.py": "x = 1\n" * 501, f"{folder}/short.py": "x = 1\n" * 500})
        done = run(sys.executable, LIB / "sizes.py", root)
        assert done.returncode == 1
        assert done.stdout == f"{folder}/long.py: 501 lines; a file has at most 500\n"

    def test_a_function_above_80_lines_is_found(self, project: Project) -> None:
        body = "    x = 1\n"
        root = project({"src/aenv/a.py": f"def short():\n{body * 79}\n\ndef long():\n{body * 80}"})
        done = run(sys.executable, LIB / "sizes.py", root)
        assert done.returncode == 1
        assert "src/aenv/a.py:83: long has 81 lines" in done.stdout
        assert "short" not in done.stdout

    def test_a_package_above_2600_lines_is_found(self, project: Project) -> None:
        root = project({f"src/aenv/big/{n}.py": "x = 1\n" * 500 for n in range(6)})
        done = run(sys.executable, LIB / "sizes.py", root)
        assert done.stdout == "src/aenv/big: 3000 lines; a package has at most 2600\n"

    @pytest.mark.slow
    def test_a_core_above_40000_lines_is_found_and_built_in_environments_do_not_count(
        self, project: Project
    ) -> None:
        def package(name: str) -> dict[str, str]:
            return {f"src/aenv/{name}/{n}.py": "x = 1\n" * 500 for n in range(5)}

        within = {name: text for n in range(16) for name, text in package(f"p{n}").items()}
        root = project({**within, **package("envs"), **package("integrations")})
        assert run(sys.executable, LIB / "sizes.py", root).returncode == 0
        project(package("p16"))
        done = run(sys.executable, LIB / "sizes.py", root)
        assert done.stdout == "src/aenv: 42500 lines; the core has at most 40000\n"


class TestHouse:
    def test_this_repository_keeps_its_rules(self) -> None:
        done = run(sys.executable, LIB / "house.py", ROOT)
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("a.py", "x = 1  # TODO: more"),
            ("a.py", "raise NotImplementedError"),
            ("client/a.py", "x = os.environ['HOME']"),
            ("cli/a.py", "print('hello')"),
            ("cli/a.py", "click.echo('hello')"),
            ("a.py", "except Exception as error:"),
            ("a.py", "except (ValueError, Exception):"),
            ("a.py", "subprocess.run(command, shell=True)"),
            ("utils.py", "x = 1"),
            ("helpers/a.py", "x = 1"),
        ],
    )
    def test_a_broken_rule_is_found(self, project: Project, name: str, line: str) -> None:
        root = project({f"src/aenv/{name}": line})
        done = run(sys.executable, LIB / "house.py", root)
        assert done.returncode == 1
        assert done.stdout.startswith(f"src/aenv/{name}")

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("settings.py", "x = os.environ['HOME']"),
            ("cli/output.py", "print('hello')"),
            ("runtime/a.py", "print('hello')"),
            ("a.py", "except Exception as error:  # boundary: author's code"),
            ("a.py", "except BaseException:"),
        ],
    )
    def test_what_the_rules_allow_passes(self, project: Project, name: str, line: str) -> None:
        done = run(sys.executable, LIB / "house.py", project({f"src/aenv/{name}": line}))
        assert done.returncode == 0, done.stdout

    def test_a_script_that_cannot_be_executed_is_found(self, project: Project) -> None:
        root = project({"scripts/go": "#!/bin/sh\n"})
        done = run(sys.executable, LIB / "house.py", root)
        assert done.returncode == 1
        assert done.stdout.startswith("scripts/go: executable")


class TestNeed:
    def test_what_is_there_needs_nothing(self, commands: Callable[..., dict[str, str]]) -> None:
        environ = commands(apt_get="echo called >&2; exit 1")
        done = run(LIB / "need", "coreutils", "true", env=environ)
        assert (done.returncode, done.stderr) == (0, "")

    def test_without_root_it_says_the_one_command(self, commands: Callable[..., dict[str, str]]) -> None:
        environ = commands(id="echo 1000", apt_get="echo called >&2")
        done = run(LIB / "need", "strace", "false", env=environ)
        assert done.returncode == 1
        assert done.stderr == "need: 'strace' is missing; run: sudo apt-get install -y strace\n"

    def test_as_root_it_installs_the_package(
        self, tmp_path: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        installed = tmp_path / "installed"
        environ = commands(id="echo 0", apt_get=f'case "$*" in *strace*) touch {installed} ;; esac')
        done = run(LIB / "need", "strace", "test", "-e", str(installed), env=environ)
        assert done.returncode == 0, done.stderr
        assert installed.exists()

    def test_a_package_that_does_not_help_is_an_error(self, commands: Callable[..., dict[str, str]]) -> None:
        done = run(LIB / "need", "strace", "false", env=commands(id="echo 0", apt_get="true"))
        assert done.returncode == 1
        assert "'strace' is installed, and 'false' still fails" in done.stderr


class TestSetup:
    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        """The scripts and pyproject.toml, without a virtual environment."""
        root = tmp_path / "checkout"
        shutil.copytree(ROOT / "scripts", root / "scripts")
        shutil.copy(ROOT / "pyproject.toml", root)
        return root

    def test_an_old_python_is_refused_with_its_version(
        self, checkout: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        environ = commands(python3='[ "$1" = --version ] && echo Python 3.9.2; exit 1')
        done = run(checkout / "scripts" / "setup", env=environ)
        assert done.returncode == 1
        assert done.stderr == "setup: aenv needs Python 3.11 or newer; python3 is Python 3.9.2\n"

    def test_without_venv_and_without_root_it_says_the_one_command(
        self, checkout: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        python = f'case "$*" in *ensurepip*) exit 1 ;; esac; exec {sys.executable} "$@"'
        done = run(checkout / "scripts" / "setup", env=commands(python3=python, id="echo 1000"))
        assert done.returncode == 1
        assert done.stderr.endswith("run: sudo apt-get install -y python3-venv\n")
        assert not (checkout / ".venv").exists()

    def test_it_does_nothing_when_nothing_changed(
        self, checkout: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        checksum = run("cksum", input=(checkout / "pyproject.toml").read_text()).stdout
        (checkout / ".venv").mkdir()
        (checkout / ".venv" / ".stamp").write_text(f"{checkout} {checksum}")
        environ = commands(python3="echo called >&2; exit 1")
        done = run(checkout / "scripts" / "setup", env=environ)
        assert (done.returncode, done.stderr) == (0, "")
        (checkout / "pyproject.toml").write_text("[project]\n")
        assert "called" in run(checkout / "scripts" / "setup", env=environ).stderr


class TestCheck:
    @pytest.fixture
    def check(self, tmp_path: Path) -> Path:
        """The script, beside a setup that has nothing to do."""
        shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
        (tmp_path / "scripts" / "setup").write_text("#!/bin/sh\n")
        return tmp_path / "scripts" / "check"

    def test_a_part_that_nobody_knows_is_named(self, check: Path) -> None:
        done = run(check, "spelling")
        assert (done.returncode, done.stderr) == (2, "check: no part 'spelling'\n")

    def test_every_part_that_failed_is_named(self, check: Path, commands: Callable[..., dict[str, str]]) -> None:
        environ = commands(ruff='[ "$1" = check ]', mypy="exit 1", lint_imports="true")
        done = run(check, "format", "lint", "types", "imports", env=environ)
        assert (done.returncode, done.stderr) == (1, "check: failed: format types\n")

    def test_it_passes_when_every_part_does(self, check: Path, commands: Callable[..., dict[str, str]]) -> None:
        environ = commands(ruff="true", mypy="true", lint_imports="true", python="true")
        assert run(check, env=environ).returncode == 0
