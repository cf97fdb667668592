"""The command line: what it prints where, how it fails, and the commands that need no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import aenv as package
from aenv.cli import arguments, output, scaffold
from aenv.cli.main import COMMANDS, GROUPS, cli, run
from tests import system, venvs
from tests.command_line import AENV, aenv, environ


class TestHelp:
    def test_the_top_page_names_every_command_with_what_it_does(self) -> None:
        page = CliRunner().invoke(cli, ["--help"]).output
        for name in COMMANDS:
            line = next(line for line in page.splitlines() if line.startswith(f"  {name} "))
            assert len(line.split()) > 3, line

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_option_of_every_command_is_explained(self, name: str) -> None:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.help
        options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        assert [option.name for option in options if not option.help] == []

    @pytest.mark.slow
    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_page_shows_its_usage(self, name: str) -> None:
        done = aenv(name, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"Usage: aenv {name} ")
        assert done.stderr == ""


class TestFailures:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("command", "code", "message"),
        [
            (["ini"], 2, "aenv: no command 'ini'; did you mean 'init'?"),
            (["instance", "lst"], 2, "aenv: no command 'lst'; did you mean 'list'?"),
            (["config", "frobnicate"], 2, "aenv: no command 'frobnicate'"),
            (["init"], 2, "aenv: missing argument 'NAME'"),
            (["init", "Bad_Name"], 2, "aenv: bad environment name 'Bad_Name'"),
            (["init", "x", "-v", "a b"], 2, "aenv: bad version 'a b'"),
            (["init", "x", "-v", "^1.2"], 2, "aenv: bad version '^1.2'"),
            (["init", "x", "-t", "none"], 2, "aenv: invalid value for '-t' / '--template'"),
            (["version", "--nope"], 2, "aenv: no such option"),
            (
                ["run", "--port", "99999"],
                2,
                "aenv: invalid value for '--port': must be from 0 to 65535, got '99999'",
            ),
            (["run", "--port", "x"], 2, "aenv: invalid value for '--port': must be a whole number, got 'x'"),
            (
                ["eval", "x", "--limit", "0"],
                2,
                "aenv: invalid value for '--limit': must be greater than 0, got '0'",
            ),
            (["list", "-o", "-1"], 2, "aenv: invalid value for '-o' / '--offset': must be 0 or greater, got '-1'"),
            (
                ["serve", "--workers", "100000"],
                2,
                "aenv: invalid value for '--workers': must be from 1 to 1024, got '100000'",
            ),
            (
                ["serve", "--workers", "2", "--socket", "s"],
                2,
                "aenv: --workers is for the data port, and --socket replaces the ports",
            ),
            (["serve", "--warm-memory", "x"], 2, "aenv: invalid value for '--warm-memory': bad size 'x'"),
            (["run", "nowhere"], 1, "aenv: no such file or folder: '"),
            (["run", "--work-dir", "nowhere"], 2, "aenv: invalid value for '-w' / '--work-dir'"),
            (["serve", "nowhere"], 2, "aenv: invalid value for '[PATH]...'"),
            (["serve", "--start-timeout", "soon"], 2, "aenv: invalid value for '--start-timeout'"),
            (["serve", "."], 3, "aenv: no config.json in '.'"),
            (
                ["serve", "--host", "0.0.0.0", "--port", "0", "--data-port", "0"],
                1,
                "aenv: refused to listen on '0.0.0.0'",
            ),
            (["call", "x", "y"], 2, "aenv: bad argument 'y'; write it as key=value"),
            (["call", "x", "a=1", "a=2"], 2, "aenv: argument 'a' is given twice"),
            (["call", "x", "--args", "{"], 2, "aenv: --args is not JSON"),
            (["call", "x", "--args", "[]"], 2, "aenv: --args must be a JSON object"),
            (["call", "x", "--url", "ftp://x"], 1, "aenv: bad URL 'ftp://x'"),
            (["call", "x", "--url", "http://127.0.0.1:1"], 1, "aenv: cannot connect to http://127.0.0.1:1"),
            (["call", "x", "--timeout", "soon"], 2, "aenv: invalid value for '--timeout'"),
            (["completion", "tcsh"], 2, "aenv: invalid value for '{bash|zsh|fish}'"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_a_failure_is_one_line_and_perhaps_a_hint(
        self, tmp_path: Path, command: list[str], code: int, message: str
    ) -> None:
        done = aenv(*command, cwd=tmp_path)
        first, *rest = done.stderr.splitlines()
        assert first.startswith(message)
        assert [line[:5] for line in rest] in ([], ["try: "])
        assert done.returncode == code
        assert done.stdout == ""

    def test_code_that_cannot_be_loaded_is_told_without_its_traceback(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        said = "x.py failed to load: line 2: SyntaxError: invalid syntax"
        output.error(
            f"the instance of 'x@1' failed to load: {said}\nTraceback (most recent call last):\n  File 1\n"
        )
        assert capsys.readouterr().err.splitlines() == [
            f"aenv: the instance of 'x@1' failed to load: {said}",
            "try: 'aenv run' in the project's folder, which shows the traceback",
        ]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON"),
            ("[]", "must hold a JSON object"),
            ('{"name": "x"}', "lacks 'version'"),
            ('{"name": "x", "version": "1", "tags": 3}', "config.json:1: tags: must be a list"),
        ],
    )
    @pytest.mark.parametrize("command", ["run", "serve"])
    def test_a_wrong_config_file_exits_with_3(self, tmp_path: Path, command: str, text: str, message: str) -> None:
        (tmp_path / "config.json").write_text(text)
        done = aenv(command, tmp_path)
        assert done.returncode == 3
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_a_folder_that_cannot_be_made_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        done = aenv("init", "my-env", "--work-dir", "file/below", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr == "aenv: 'file/below/my-env': not a directory\n"

    def test_a_reader_that_leaves_early_is_no_error_to_report(self) -> None:
        process = subprocess.Popen(
            [AENV, "completion", "bash"], env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout
        process.stdout.close()
        with process:
            assert process.stderr
            assert process.stderr.read() == b""

    def test_an_interrupt_exits_with_130(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        # The only way to interrupt at a known moment: a signal would race with the command's end.
        monkeypatch.setattr(cli, "main", interrupted)
        assert run(["version"]) == 130


class TestOverview:
    def test_every_command_is_in_a_group_with_its_whole_first_sentence(self) -> None:
        said = aenv("--help").stdout
        assert [line for line in said.splitlines()[1:] if line.endswith("...")] == []
        words = " ".join(said.split())
        for title, names in GROUPS.items():
            assert f"{title}:" in said
            for name in names:
                command = cli.get_command(click.Context(cli), name)
                assert command is not None
                assert f"{name} {command.get_short_help_str(1000)}" in words

    def test_groups_of_commands_cut_no_texts_either(self) -> None:
        context = click.Context(cli)
        found = [(name, cli.get_command(context, name)) for names in GROUPS.values() for name in names]
        groups = [(name, group) for name, group in found if isinstance(group, click.Group)]
        assert {"instance", "service", "hub"} <= {name for name, _ in groups}
        for name, group in groups:
            words = " ".join(CliRunner().invoke(group, ["--help"], terminal_width=60).output.split())
            for each, command in group.commands.items():
                assert f"{each} {command.get_short_help_str(1000)}" in words, name


class TestVersion:
    def test_the_line_names_aenv_and_python(self) -> None:
        python = ".".join(map(str, sys.version_info[:3]))
        said = aenv("version").stdout
        assert said.startswith(f"aenv {package.__version__} (Python {python}, {sys.platform}), installed from ")

    @pytest.mark.parametrize(
        ("told", "expected"),
        [
            ('{"url": "file:///my%20code", "dir_info": {"editable": true}}', "'/my code' (editable)"),
            ('{"url": "file:///my-code", "dir_info": {}}', "'/my-code'"),
            ('{"url": "file:///d/a-1-py3-none-any.whl", "archive_info": {}}', "'/d/a-1-py3-none-any.whl'"),
            (
                '{"url": "https://h.test/r", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}',
                "'https://h.test/r' at 12ab",
            ),
            (None, "a package index"),
        ],
    )
    def test_it_says_where_it_was_installed_from(self, tmp_path: Path, told: str | None, expected: str) -> None:
        info = tmp_path / f"aenvironment-{package.__version__}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: aenvironment\nVersion: {package.__version__}\n"
        )
        if told:
            (info / "direct_url.json").write_text(told)
        env = environ(PYTHONPATH=str(tmp_path))  # found before what is installed
        assert aenv("version", env=env).stdout.rstrip("\n").endswith(f", installed from {expected}")
        assert json.loads(aenv("version", "--json", env=env).stdout)["installed_from"] == expected

    def test_short_is_the_number_alone(self) -> None:
        assert aenv("version", "-s").stdout == f"{package.__version__}\n"

    def test_json_is_json(self) -> None:
        assert json.loads(aenv("version", "--json").stdout)["version"] == package.__version__

    def test_the_option_does_the_same(self) -> None:
        assert aenv("--version").stdout == f"{package.__version__}\n"

    def test_it_loads_nothing_heavy(self) -> None:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "aenv.cli", "version"], capture_output=True, text=True
        )
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "click" in loaded
        assert not loaded & {"pydantic", "pydantic_core", "starlette", "uvicorn", "rich", "asyncio"}


class TestInit:
    @pytest.mark.parametrize("template", scaffold.TEMPLATES)
    def test_a_project_has_all_its_files_with_the_name_filled_in(self, tmp_path: Path, template: str) -> None:
        done = aenv("init", "my-env", "--version", "2.1.0", "--template", template, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        root = tmp_path / "my-env"
        files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        assert files >= {
            ".aenvignore",
            ".gitignore",
            "Dockerfile",
            "README.md",
            "config.json",
            "requirements.txt",
            "src/custom_env.py",
            "tests/test_custom_env.py",
        }
        assert {line.removeprefix("my-env/") for line in done.stdout.splitlines()} == files
        config = json.loads((root / "config.json").read_text())
        assert (config["name"], config["version"]) == ("my-env", "2.1.0")
        assert config["deployConfig"]["service"]["storageName"] == "my-env"
        assert "aenvironment>=1.0.0" in (root / "requirements.txt").read_text().split()
        assert not [name for name in files if "$name" in (root / name).read_text()]

    @pytest.mark.slow  # pytest in pytest
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("judge", ["fastmcp2", "fastmcp4"])
    def test_the_tests_of_a_new_fastmcp_project_pass(self, tmp_path: Path, judge: str) -> None:
        python = venvs.judge(judge)
        aenv("init", "my-env", "-t", "fastmcp", "-w", tmp_path)
        # pytest is ours; fastmcp is the judge's.
        done = pytest_in(tmp_path / "my-env", Path(sys.executable), PYTHONPATH=str(site_packages(python)))
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize("template", scaffold.TEMPLATES)
    def test_the_code_of_a_new_project_is_clean(self, tmp_path: Path, template: str) -> None:
        aenv("init", "my-env", "-t", template, "-w", tmp_path)
        ruff = [sys.executable, "-m", "ruff"]
        rules = ["--isolated"]
        project = tmp_path / "my-env"  # where its own modules are known as such, and aenv is a package of others
        checked = subprocess.run(
            [*ruff, "check", *rules, "--select", "E4,E7,E9,F,I,B,UP", "."], capture_output=True, cwd=project
        )
        assert checked.returncode == 0, checked.stdout.decode()
        formatted = subprocess.run([*ruff, "format", "--check", *rules, tmp_path], capture_output=True)
        assert formatted.returncode == 0, formatted.stdout.decode()

    def test_a_folder_with_something_in_it_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "my-env").mkdir()
        (tmp_path / "my-env" / "mine.txt").write_text("mine")
        done = aenv("init", "my-env", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == "aenv: 'my-env' exists already"
        assert "--force" in done.stderr
        assert [path.name for path in (tmp_path / "my-env").iterdir()] == ["mine.txt"]

    def test_an_empty_folder_may_be_filled(self, tmp_path: Path) -> None:
        (tmp_path / "my-env").mkdir()
        assert aenv("init", "my-env", cwd=tmp_path).returncode == 0

    def test_force_replaces_the_files_of_the_template_and_no_others(self, tmp_path: Path) -> None:
        aenv("init", "my-env", cwd=tmp_path)
        config, mine = tmp_path / "my-env" / "config.json", tmp_path / "my-env" / "src" / "mine.py"
        config.write_text("changed")
        mine.write_text("mine")
        assert aenv("init", "my-env", "--force", cwd=tmp_path).returncode == 0
        assert json.loads(config.read_text())["name"] == "my-env"
        assert mine.read_text() == "mine"

    def test_config_only_writes_one_file_into_the_work_directory(self, tmp_path: Path) -> None:
        done = aenv("init", "my-env", "--config-only", "-w", tmp_path)
        assert done.returncode == 0
        assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
        assert aenv("init", "other", "--config-only", "-w", tmp_path).returncode == 1
        assert aenv("init", "other", "--config-only", "--force", "-w", tmp_path).returncode == 0
        assert json.loads((tmp_path / "config.json").read_text())["name"] == "other"


class TestCompletion:
    @pytest.mark.slow
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_script_loads_in_its_shell(self, shell: str) -> None:
        program = system.require(shell, shell)
        script = aenv("completion", shell).stdout
        # zsh's own completion must be there before anything can be added to it.
        before = "autoload -U compinit; compinit -D\n" if shell == "zsh" else ""
        done = subprocess.run([program], input=before + script, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")

    def test_bash_completes_a_command(self) -> None:
        done = aenv(env=environ(_AENV_COMPLETE="bash_complete", COMP_WORDS="aenv comp", COMP_CWORD="1"))
        assert done.stdout == "plain,completion\n"

    def test_bash_completes_an_option(self) -> None:
        words = environ(_AENV_COMPLETE="bash_complete", COMP_WORDS="aenv run --rel", COMP_CWORD="2")
        assert aenv(env=words).stdout == "plain,--reload\n"


class TestArguments:
    @pytest.mark.parametrize(
        ("text", "types", "value"),
        [
            ("123", {"string"}, "123"),
            ("123", {"integer"}, 123),
            ("1.5", {"number"}, 1.5),
            ("123", {"number"}, 123),
            ("true", {"boolean"}, True),
            ("true", {"string"}, "true"),
            ('"quoted"', {"string"}, '"quoted"'),
            ("null", {"string", "null"}, None),
            ("7", {"string", "integer"}, 7),
            ("7", {"string", "null"}, "7"),
            ('["a"]', {"array"}, ["a"]),
            ('{"a": 1}', {"object"}, {"a": 1}),
            ("[1, 2", {"array"}, "[1, 2"),
            ("NaN", {"number"}, "NaN"),
            ("7", set(), 7),
            ("seven", set(), "seven"),
        ],
    )
    def test_a_value_is_json_where_the_schema_takes_it(self, text: str, types: set[str], value: object) -> None:
        assert arguments.read(text, types) == value

    def test_types_are_found_behind_unions_and_references(self) -> None:
        schema = {
            "properties": {
                "colour": {"$ref": "#/$defs/Colour"},
                "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "free": {"anyOf": [{"type": "string"}, {}]},
            },
            "$defs": {"Colour": {"enum": ["1", "2"], "type": "string"}},
        }
        given = arguments.split(["colour=1", "size=1", "free=1", "unknown=1"], '{"size": 9, "more": true}')
        assert given.typed(schema) == {"colour": "1", "size": 1, "free": 1, "unknown": 1, "more": True}

    def test_a_published_runtime_names_types_in_its_own_way(self) -> None:
        given = arguments.split(["a=1", "b=1"], None)
        listed = {"properties": {"a": {"type": "<class 'str'>"}, "b": {"type": "<class 'int'>"}}}
        assert given.typed(listed) == {"a": "1", "b": 1}


def pytest_in(folder: Path, python: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """The project's own tests, with nothing of our configuration."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "."]
    return subprocess.run(command, cwd=folder, env=environ(**changes), capture_output=True, text=True)


def site_packages(python: Path) -> Path:
    return next(python.parent.parent.glob("lib/python*/site-packages"))
