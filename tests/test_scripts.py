"""The scripts: what they refuse, what they install, and that the checkers catch what they are for."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import skips

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
        kept = {name: value for name, value in os.environ.items() if name != "AENV_NO_SYSTEM"}
        return {**kept, "PATH": f"{folder}:{os.environ['PATH']}"}

    return make


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


# Files of the package, each with a line that breaks a rule of the house, or with a name that does.
BROKEN = [
    ("a.py", "x = 1  # TODO: more"),
    ("a.py", "raise NotImplementedError"),
    ("client/a.py", "x = os.environ['HOME']"),
    ("cli/a.py", "print('hello')"),
    ("cli/a.py", "click.echo('hello')"),
    ("a.py", "except Exception as error:"),
    ("a.py", "except (ValueError, Exception):"),
    ("a.py", "subprocess.run(command, shell=True)"),
    ("control/a.py", 'ttl = project.deploy.get("ttl")'),
    ("control/a.py", 'ttl = deploy["ttl"]'),
    ("cli/a.py", 'url = found.raw.get("codeUrl")'),
    ("control/services/a.py", "spec = InstanceSpec(id, ref, path)"),
    ("utils.py", "x = 1"),
    ("helpers/a.py", "x = 1"),
    ("a.py", '"""The second part of an instance."""'),
    ("a.py", "spare = Blank()"),
    ("a.py", "spares.take()  # one of the blank instances"),
    ("a.py", "lives = Lives()"),
    ("a.py", "rooting = Rooting()"),
    ("a.py", "folder = layer_for(file)"),
    ("a.py", '"""None for what is no folder."""'),
    ("a.py", "def later(project: Project) -> LazySidecar:"),
    ("sidecar_later.py", "x = 1"),
    ("second_part/a.py", "x = 1"),
    ("engines/native/seconds.py", "x = 1"),
    ("engines/native/bundles.py", "x = 1"),
    ("control/gateway/operating.py", "x = 1"),
    ("boot/apart.py", "x = 1"),
    ("isolation/sandbox/step.py", "x = 1"),
    ("isolation/cgroups/finding.py", "x = 1"),
    ("a.py", '"""Not here: the rest (`gone.py`)."""'),
]


class TestSizes:
    @pytest.mark.slow
    def test_this_repository_is_within_its_limits(self) -> None:
        done = run(sys.executable, LIB / "sizes.py", ROOT)
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize("folder", ["src/aenv/client", "tests", "benchmarks", "conformance"])
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

    def test_a_wing_above_its_budget_and_one_without_a_budget_are_found(self, project: Project) -> None:
        pages = {f"src/aenv/{wing}/{n}.py": "x = 1\n" * 500 for wing in ("client", "envs") for n in range(10)}
        done = run(sys.executable, LIB / "sizes.py", project({**pages, "src/aenv/new/a.py": "x = 1\n"}))
        assert done.returncode == 1
        over, *rest = done.stdout.splitlines()
        assert over.startswith("src/aenv/client: 5000 lines; its budget is ")
        assert rest == [
            "src/aenv/new: has no budget; give it one in scripts/lib/sizes.py",
        ]

    @pytest.mark.parametrize("beside", ["src/aenv/a.py", "docs/a.md"])
    def test_a_budget_is_raised_in_a_commit_without_code(self, project: Project, beside: str) -> None:
        name = "scripts/lib/sizes.py"
        root = project({name: 'BUDGETS = {"client": 10}\n'})
        git = ("git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b.example")
        for step in (("init", "-q"), ("add", "."), ("commit", "-qm", "One")):
            assert run(*git, *step).returncode == 0
        project({name: 'BUDGETS = {"client": 11}\n', beside: "x\n" if beside.endswith("md") else "x = 1\n"})
        for step in (("add", "."), ("commit", "-qm", "Two")):
            assert run(*git, *step).returncode == 0
        done = run(sys.executable, LIB / "sizes.py", root)
        assert ("raises the budget of client and changes src/aenv/a.py" in done.stdout) == beside.startswith("src")

    def test_a_budget_that_is_dropped_in_a_commit_with_code_counts_as_raised(self, project: Project) -> None:
        name = "scripts/lib/sizes.py"
        root = project({name: 'BUDGETS = {"client": 10, "web": 10}\n'})
        git = ("git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b.example")
        for step in (("init", "-q"), ("add", "."), ("commit", "-qm", "One")):
            assert run(*git, *step).returncode == 0
        project({name: 'BUDGETS = {"client": 10}\n', "src/aenv/a.py": "x = 1\n"})
        for step in (("add", "."), ("commit", "-qm", "Two")):
            assert run(*git, *step).returncode == 0
        done = run(sys.executable, LIB / "sizes.py", root)
        assert "raises the budget of web and changes src/aenv/a.py" in done.stdout

    def test_a_shallow_clone_is_told_that_raises_are_not_checked(self, project: Project, tmp_path: Path) -> None:
        name = "scripts/lib/sizes.py"
        root = project({f"whole/{name}": 'BUDGETS = {"client": 10}\n'}) / "whole"
        git = ("git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b.example")
        for step in (("init", "-q"), ("add", "."), ("commit", "-qm", "One")):
            assert run(*git, *step).returncode == 0
        project({f"whole/{name}": 'BUDGETS = {"client": 11}\n', "whole/src/aenv/a.py": "x = 1\n"})
        for step in (("add", "."), ("commit", "-qm", "Two")):
            assert run(*git, *step).returncode == 0
        assert "shallow" not in run(sys.executable, LIB / "sizes.py", root).stdout
        cut = tmp_path / "cut"
        assert run("git", "clone", "-q", "--depth", "1", f"file://{root}", cut).returncode == 0
        done = run(sys.executable, LIB / "sizes.py", cut)
        assert "this clone is shallow" in done.stdout
        assert "raises the budget" not in done.stdout


class TestHouse:
    @pytest.mark.slow  # reads all of it, as scripts/check does
    def test_this_repository_keeps_its_rules(self) -> None:
        done = run(sys.executable, LIB / "house.py", ROOT)
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize(("name", "line"), BROKEN)
    def test_a_broken_rule_is_found(self, project: Project, name: str, line: str) -> None:
        root = project({f"src/aenv/{name}": line})
        done = run(sys.executable, LIB / "house.py", root)
        assert done.returncode == 1
        assert done.stdout.startswith(f"src/aenv/{name}")

    def test_every_rule_and_every_old_name_has_a_line_here_that_breaks_it(self) -> None:
        house = runpy.run_path(str(LIB / "house.py"))
        patterns = [*(rule.pattern for rule in house["RULES"]), *house["OLD_NAMES"]]
        texts = [text for name, line in BROKEN for text in (f"src/aenv/{name}", line)]
        assert [one.pattern for one in patterns if not any(one.search(text) for text in texts)] == []

    @pytest.mark.parametrize(
        "name", ["conformance/a.py", "scripts/lib/a.py", "src/aenv/cli/templates/a.py.tmpl", "deploy/a.sh"]
    )
    def test_an_old_name_is_found_wherever_people_read(self, project: Project, name: str) -> None:
        done = run(sys.executable, LIB / "house.py", project({name: "# of the second part\n"}))
        assert done.returncode == 1
        assert done.stdout.startswith(f"{name}:1: # of the second part: it is called sidecar")

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("base/settings.py", "x = os.environ['HOME']"),
            ("cli/output.py", "print('hello')"),
            ("runtime/a.py", "print('hello')"),
            ("a.py", "except Exception as error:  # boundary: author's code"),
            ("a.py", "except BaseException:"),
            ("control/a.py", "ttl = project.deploy.ttl"),
            ("a.py", '"""None where there is no folder, or it is no longer used."""'),
            ("control/instances/specs.py", "return InstanceSpec(id=id)"),
        ],
    )
    def test_what_the_rules_allow_passes(self, project: Project, name: str, line: str) -> None:
        done = run(sys.executable, LIB / "house.py", project({f"src/aenv/{name}": line}))
        assert done.returncode == 0, done.stdout

    def test_too_many_vague_people_in_the_core_are_found(self, project: Project) -> None:
        text = "# whoever asks\n" + "x = 1\n" * 998
        assert (
            "nobody, whoever or somebody"
            in run(sys.executable, LIB / "house.py", project({"src/aenv/a.py": text})).stdout
        )

    def test_a_script_that_cannot_be_executed_is_found(self, project: Project) -> None:
        root = project({"scripts/go": "#!/bin/sh\n"})
        done = run(sys.executable, LIB / "house.py", root)
        assert done.returncode == 1
        assert done.stdout.startswith("scripts/go: executable")


class TestNames:
    @pytest.mark.slow  # reads all of it, as scripts/check does
    def test_each_name_of_this_repository_has_one_meaning(self) -> None:
        done = run(sys.executable, LIB / "names.py", ROOT)
        assert done.returncode == 0, done.stdout

    def test_a_class_and_a_file_that_share_a_name_with_another_are_found(self, project: Project) -> None:
        files = {"src/aenv/base/a.py": "class Place: ...", "src/aenv/control/a.py": "class Place: ..."}
        done = run(sys.executable, LIB / "names.py", project(files))
        assert done.returncode == 1
        assert done.stdout.splitlines() == [
            "a: base/a.py, control/a.py; name each after what it is",
            "Place: base/a.py, control/a.py; name each after what it is",
        ]

    def test_an_alias_and_a_folder_that_share_a_name_with_another_are_found(self, project: Project) -> None:
        files = {
            "src/aenv/base/a.py": "Sink = Callable[[str], None]\nOnLine = Callable[[str], None]\nTOP = A | B",
            "src/aenv/control/b.py": "Sink = list[int]\nOnLine = Callable[[str], None]\nTOP = A[B]",
            "src/aenv/control/c.py": "class Sink: ...",
            "src/aenv/control/a/d.py": "",
        }
        done = run(sys.executable, LIB / "names.py", project(files))
        assert done.stdout.splitlines() == [
            "a: base/a.py, control/a/; name each after what it is",
            "Sink: base/a.py, control/b.py, control/c.py; name each after what it is",
        ]

    def test_an_alias_with_a_declared_type_is_one_too(self, project: Project) -> None:
        alias = "Sink: TypeAlias = {}\n"
        files = {"src/aenv/base/a.py": alias.format("list[int]"), "src/aenv/base/b.py": alias.format("list[str]")}
        done = run(sys.executable, LIB / "names.py", project(files))
        assert done.stdout == "Sink: base/a.py, base/b.py; name each after what it is\n"

    def test_a_name_that_may_be_there_twice_and_is_not_is_found(self, project: Project) -> None:
        names = runpy.run_path(str(LIB / "names.py"))
        root = project({"src/aenv/base/a.py": "class Address: ...", "src/aenv/control/b.py": "class Address: ..."})
        said = list(names["unused"](root))
        assert "control: is used once; remove it from ALLOWED" in said
        assert not [line for line in said if line.startswith("Address:")]

    def test_commands_are_called_as_their_users_call_them(self, project: Project) -> None:
        files = {"src/aenv/client/hub.py": "x = 1", "src/aenv/cli/commands/hub.py": "x = 1"}
        assert run(sys.executable, LIB / "names.py", project(files)).returncode == 0

    @pytest.mark.parametrize("place", ["examples/b", "cli/commands/b", "integrations/b", "attacks/programs/b"])
    def test_a_class_has_its_name_alone_wherever_it_is(self, project: Project, place: str) -> None:
        files = {"src/aenv/base/a.py": "class Reply: ...", f"src/aenv/{place}.py": "class Reply: ..."}
        done = run(sys.executable, LIB / "names.py", project(files))
        assert done.returncode == 1
        assert f"{place}.py" in done.stdout and done.stdout.startswith("Reply: ")


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


class TestSystem:
    @pytest.fixture
    def system(self, tmp_path: Path) -> Path:
        """The script, with a list of its own: one command that is there, two that are not."""
        shutil.copy(LIB / "system", tmp_path)
        (tmp_path / "system-packages.txt").write_text("sh dash\nno-such-redis redis\nno-such-shell fish\n")
        return tmp_path / "system"

    def test_as_root_it_installs_what_is_missing_and_says_so(
        self, system: Path, tmp_path: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        log = tmp_path / "log"
        done = run(system, env=commands(id="echo 0", apt_get=f'echo "$*" >>{log}'))
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(
            "setup: installing for the tests, with apt-get: redis fish (AENV_NO_SYSTEM=1"
        )
        assert log.read_text().splitlines()[-1].endswith(" redis fish")

    def test_it_can_be_left_out(self, system: Path, commands: Callable[..., dict[str, str]]) -> None:
        environ = commands(id="echo 0", apt_get="echo called >&2")
        done = run(system, env={**environ, "AENV_NO_SYSTEM": "1"})
        assert (done.returncode, done.stderr) == (0, "")

    def test_without_root_it_says_the_one_command(
        self, system: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        done = run(system, env=commands(id="echo 1000", apt_get="echo called >&2"))
        assert done.returncode == 1
        assert done.stderr.endswith("run: sudo apt-get install -y redis fish\n")

    def test_where_nothing_is_missing_nothing_is_said(
        self, system: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        (system.parent / "system-packages.txt").write_text("sh dash\n")
        done = run(system, env=commands(id="echo 0", apt_get="echo called >&2"))
        assert (done.returncode, done.stderr) == (0, "")

    def test_an_index_that_cannot_be_reached_is_said(
        self, system: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        done = run(system, env=commands(id="echo 0", apt_get="exit 100"))
        assert done.returncode == 1
        assert done.stderr.endswith("apt-get failed; tests that need these packages are skipped: redis fish\n")


class TestSkips:
    def test_the_line_names_what_is_missing_and_the_command(self) -> None:
        redis = "Skipped: 'redis-server' is missing; install it with: apt-get install -y redis-server"
        data = "Skipped: no shared test data at /x; set AENV_TEST_SHARED"
        assert skips.line([redis, redis, data, "Skipped: only root can"]) == (
            "skipped: 2 need system packages (redis-server 2); 1 need data that may not be shipped; 1 cannot run "
            "on this host or for this user (-rs says why); to run them: ./scripts/setup --system && "
            "AENV_TEST_SHARED=FOLDER ./scripts/test"
        )
        assert skips.line([]) is None

    def test_frameworks_that_are_not_installed_are_counted_with_the_command_that_installs_them(self) -> None:
        missing = "Skipped: framework 'ray' is not installed; run ./scripts/test --integrations"
        assert skips.line([missing, missing]) == (
            "skipped: 2 need frameworks that ./scripts/test --integrations installs"
        )

    def test_a_cluster_that_was_not_built_is_counted_with_the_command_that_builds_it(self) -> None:
        missing = "Skipped: no test cluster: no Kubernetes in /x; run: scripts/lib/cluster/build"
        assert skips.line([missing, missing]) == (
            "skipped: 2 need a Kubernetes that sudo ./scripts/lib/cluster/build builds, once"
        )

    @pytest.mark.slow  # pytest in pytest
    def test_a_run_ends_with_it(self, tmp_path: Path) -> None:
        environ = {**os.environ, "AENV_TEST_SHARED": str(tmp_path / "none"), "CI": ""}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        done = run(*command, "tests/test_documents.py", cwd=ROOT, env=environ)
        assert (
            "need data that may not be shipped; to run them: AENV_TEST_SHARED=FOLDER ./scripts/test" in done.stdout
        )


class TestTest:
    @pytest.mark.slow  # it collects all tests
    def test_the_fast_ones_are_neither_slow_nor_of_containers_nor_of_programs_of_others(self) -> None:
        script = (ROOT / "scripts" / "test").read_text()
        (marks,) = re.findall(r"--fast\) .*-m \"([^\"]+)\"", script)
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m"]
        done = run(*command, marks, "tests/integrations", "tests/cluster", "tests/test_native_chaos.py", cwd=ROOT)
        assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout
        assert run(*command, marks, "tests/test_scripts.py", cwd=ROOT).returncode == 0


class TestSetup:
    def test_an_unknown_option_is_refused(self, checkout: Path) -> None:
        done = run(checkout / "scripts" / "setup", "--sytem")
        said = "setup: no option '--sytem'; there are --package and --system\n"
        assert (done.returncode, done.stderr) == (2, said)

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

    def test_the_package_alone_is_not_everything_but_everything_has_the_package(
        self, checkout: Path, tmp_path: Path, commands: Callable[..., dict[str, str]]
    ) -> None:
        log = tmp_path / "log"
        (checkout / ".venv" / "bin").mkdir(parents=True)
        python = checkout / ".venv" / "bin" / "python"
        python.write_text(f'#!/bin/sh\necho "$*" >>{log}\n')
        python.chmod(0o755)
        environ = commands(python3="exit 0")
        for option in (["--package"], ["--package"], [], ["--package"], []):
            done = run(checkout / "scripts" / "setup", *option, env=environ)
            assert done.returncode == 0, done.stderr
        installed = [line for line in log.read_text().splitlines() if "--editable" in line]
        assert [line.partition("--editable . ")[2] for line in installed] == ["pytest", "--group dev"]


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
