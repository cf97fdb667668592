"""`aenv config`, and the file behind it: what is kept, what is shown, and what is left alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aenv.cli import config_file, connection
from tests.command_line import aenv, environ

pytestmark = pytest.mark.slow  # each test runs several commands

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run(tmp_path: Path, home: Path) -> Run:
    """`aenv` in an empty folder, with a home of its own."""
    (tmp_path / "work").mkdir()

    def run(*arguments: str | Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        given = environ(AENV_HOME=str(home), **variables)
        return aenv(*arguments, cwd=tmp_path / "work", env=given, stdin=stdin)

    return run


def written(home: Path, values: object) -> Path:
    home.mkdir(exist_ok=True)
    file = home / "cli_config.json"
    file.write_text(values if isinstance(values, str) else json.dumps(values, indent=2))
    return file


class TestFile:
    def test_looking_makes_no_file(self, run: Run, home: Path) -> None:
        assert json.loads(run("config", "show", "--json").stdout) == config_file.DEFAULTS
        assert not home.exists()

    def test_commands_use_defaults_where_it_says_nothing_and_nothing_where_it_says_null(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AENV_HOME", str(home))
        monkeypatch.chdir(tmp_path)
        registry = config_file.ImageRegistry("docker.io", "aenv", "", "")
        assert config_file.in_use() == config_file.CliSettings(None, 30.0, "", registry)

        build = {"build_args": {"socket": "unix:///x"}, "registry": {"host": None, "password": None, "mine": 1}}
        written(home, {"build_config": build, "hub_config": {"timeout": 0}, "owner": "ada"})
        nowhere = config_file.ImageRegistry("", "aenv", "", "")
        assert config_file.in_use() == config_file.CliSettings("ada", 30.0, "unix:///x", nowhere)

    def test_only_its_user_can_read_it(self, run: Run, home: Path) -> None:
        run("config", "set", "owner", "ada")
        assert stat.S_IMODE((home / "cli_config.json").stat().st_mode) == 0o600
        written(home, {}).chmod(0o644)
        run("config", "set", "owner", "ada")
        assert stat.S_IMODE((home / "cli_config.json").stat().st_mode) == 0o600

    def test_a_change_touches_nothing_else_and_keeps_a_link(self, run: Run, home: Path, tmp_path: Path) -> None:
        written(home, {"hub_config": {"timeout": 5}, "mine": [1]}).rename(tmp_path / "real.json")
        (home / "cli_config.json").symlink_to(tmp_path / "real.json")
        assert run("config", "set", "hub_config.hub_backend", "http://h:1").returncode == 0
        assert (home / "cli_config.json").is_symlink()
        kept = json.loads((tmp_path / "real.json").read_text())
        assert kept == {"hub_config": {"timeout": 5, "hub_backend": "http://h:1"}, "mine": [1]}
        assert [path.name for path in home.iterdir()] == ["cli_config.json"]

    def test_unknown_keys_are_named_with_their_line_and_kept(self, run: Run, home: Path) -> None:
        file = written(
            home, {"owner": "ada", "hub_config": {"tiemout": 3}, "storage_config": {"custom": {"x": 1}}}
        )
        done = run("config", "set", "owner", "bob")
        assert done.returncode == 0
        assert done.stderr == f"aenv: '{file}' line 4: unknown key 'hub_config.tiemout' is kept\n"
        assert json.loads(file.read_text())["hub_config"] == {"tiemout": 3}

    @pytest.mark.parametrize("command", ["ps", "list"])
    def test_a_command_warns_of_an_unknown_key_once(self, run: Run, home: Path, command: str) -> None:
        written(home, {"mine": 1, "system_url": "http://127.0.0.1:1"})
        assert run(command).stderr.count("unknown key 'mine' is kept") == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON: Expecting property name"),
            ("[]", "must hold a JSON object"),
            ('{\n  "owner": 3\n}', "line 2: owner must be a string"),
            ('{\n  "hub_config": {\n    "timeout": "soon"}}', "line 3: hub_config.timeout must be a number"),
            ('{"hub_config": {"timeout": true}}', "line 1: hub_config.timeout must be a number"),
            ('{"logging_config": {"console": 1}}', "line 1: logging_config.console must be true or false"),
            ('{"hub_config": 3}', "line 1: hub_config must be an object"),
        ],
    )
    @pytest.mark.parametrize("command", [["config", "show"], ["config", "set", "owner", "ada"], ["list"]])
    def test_a_wrong_file_ends_every_command_with_3_and_stays_as_it_is(
        self, run: Run, home: Path, text: str, message: str, command: list[str]
    ) -> None:
        file = written(home, text)
        done = run(*command)
        assert done.returncode == 3
        assert done.stderr.startswith(f"aenv: '{file}' {message}")
        assert len(done.stderr.splitlines()) == 1
        assert file.read_text() == text

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_a_file_of_another_user_is_refused(self, run: Run, home: Path) -> None:
        os.chown(written(home, {"system_url": "http://evil"}), 12345, -1)
        done = run("config", "show")
        assert done.returncode == 3
        assert "belongs to another user" in done.stderr

    def test_the_users_file_comes_before_the_folders(self, run: Run, home: Path, tmp_path: Path) -> None:
        (tmp_path / "work" / ".aenv").mkdir()
        (tmp_path / "work" / ".aenv" / "cli_config.json").write_text('{"owner": "folder"}')
        assert run("config", "path").stdout == ".aenv/cli_config.json\n"
        assert run("config", "get", "owner").stdout == "folder\n"
        written(home, {"owner": "user"})
        assert run("config", "path").stdout == f"{home}/cli_config.json\n"
        assert run("config", "get", "owner").stdout == "user\n"


class TestCommands:
    @pytest.mark.parametrize(
        ("key", "text", "value"),
        [
            ("owner", "ada", "ada"),
            ("owner", "123", "123"),
            ("owner", "null", None),
            ("owner", '"123"', "123"),
            ("hub_config.timeout", "12.5", 12.5),
            ("logging_config.console", "false", False),
            ("build_config.build_args", '{"socket": "unix:///x"}', {"socket": "unix:///x"}),
            ("build_config.build_args.new", "[1]", [1]),
            ("build_config.registry.password", "42", "42"),
        ],
    )
    def test_a_value_that_was_set_is_there(self, run: Run, home: Path, key: str, text: str, value: object) -> None:
        done = run("config", "set", key, text)
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads((home / "cli_config.json").read_text())
        for part in key.split("."):
            found = found[part]
        assert found == value

    def test_an_unknown_key_may_be_set_with_a_warning(self, run: Run) -> None:
        done = run("config", "set", "my_own", "7")
        assert done.returncode == 0
        assert "unknown key 'my_own' is kept" in done.stderr
        assert run("config", "get", "my_own").stdout == "7\n"

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("hub_config.timeout", "soon", "hub_config.timeout must be a number"),
            ("hub_config", "3", "hub_config must be an object"),
            ("owner.name", "x", "cannot set 'owner.name': 'owner' is not an object"),
        ],
    )
    def test_a_value_that_does_not_fit_changes_nothing(
        self, run: Run, home: Path, key: str, value: str, message: str
    ) -> None:
        file = written(home, {"owner": "ada"})
        done = run("config", "set", key, value)
        assert done.returncode in (2, 3)
        assert message in done.stderr
        assert json.loads(file.read_text()) == {"owner": "ada"}

    def test_a_setting_that_is_not_an_object_has_no_keys_though_the_file_is_empty(
        self, run: Run, home: Path
    ) -> None:
        done = run("config", "set", "owner.name", "x")
        assert (done.returncode, done.stderr) == (2, "aenv: cannot set 'owner.name': 'owner' is not an object\n")
        assert not home.exists()

    @pytest.mark.parametrize(
        "command", [["show"], ["show", "--json"], ["show", "--key", "hub_config"], ["export"]]
    )
    def test_secrets_are_shown_only_when_asked_for(self, run: Run, home: Path, command: list[str]) -> None:
        written(home, {"hub_config": {"api_key": "sesame"}, "build_config": {"registry": {"password": "sesame"}}})
        assert "sesame" not in run("config", *command).stdout
        assert "sesame" in run("config", *command, "--reveal").stdout

    def test_get_masks_a_secret_too(self, run: Run, home: Path) -> None:
        written(home, {"hub_config": {"api_key": "sesame"}})
        assert run("config", "get", "hub_config.api_key").stdout == "****\n"
        assert run("config", "get", "hub_config.api_key", "--reveal").stdout == "sesame\n"

    def test_the_table_has_a_line_for_each_key(self, run: Run) -> None:
        lines = run("config", "show", "--format", "table").stdout.splitlines()
        assert ["hub_config.timeout", "30"] in [line.split() for line in lines]
        assert ["registry.host", "docker.io"] not in [line.split() for line in lines]
        (line,) = run("config", "show", "--key", "storage_config.custom").stdout.splitlines()[1:]
        assert line.split() == ["storage_config.custom.prefix", "~/.aenv/envs"]

    def test_an_unknown_key_is_a_failure(self, run: Run) -> None:
        done = run("config", "get", "hub_config.nothing")
        assert done.returncode == 1
        assert done.stderr.startswith("aenv: no setting 'hub_config.nothing'\n")

    def test_init_makes_the_defaults_once(self, run: Run, home: Path, tmp_path: Path) -> None:
        assert run("config", "init").stdout == f"{home}/cli_config.json\n"
        assert json.loads((home / "cli_config.json").read_text()) == config_file.DEFAULTS
        assert run("config", "init").returncode == 1
        run("config", "init", "--path", tmp_path / "other.json")
        assert stat.S_IMODE((tmp_path / "other.json").stat().st_mode) == 0o600

    def test_reset_asks_first(self, run: Run, home: Path) -> None:
        file = written(home, {"owner": "ada"})
        assert run("config", "reset").returncode == 1
        assert json.loads(file.read_text()) == {"owner": "ada"}
        assert run("config", "reset", "--force").returncode == 0
        assert json.loads(file.read_text()) == config_file.DEFAULTS

    def test_what_is_exported_can_be_loaded(self, run: Run, home: Path, tmp_path: Path) -> None:
        written(home, {"owner": "ada", "hub_config": {"api_key": "sesame"}})
        run("config", "export", "--output", tmp_path / "all.json", "--reveal")
        assert stat.S_IMODE((tmp_path / "all.json").stat().st_mode) == 0o600
        run("config", "reset", "--force")
        assert run("config", "load", tmp_path / "all.json").returncode == 0
        assert run("config", "get", "hub_config.api_key", "--reveal").stdout == "sesame\n"

    def test_a_wrong_file_is_not_loaded(self, run: Run, home: Path, tmp_path: Path) -> None:
        file = written(home, {"owner": "ada"})
        (tmp_path / "bad.json").write_text('{"owner": 3}')
        assert run("config", "load", tmp_path / "bad.json").returncode == 3
        assert json.loads(file.read_text()) == {"owner": "ada"}


class TestAddresses:
    """The hub's address and key, as every command finds them."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("HUB_BACKEND", raising=False)

    @pytest.fixture
    def file(self, tmp_path: Path) -> Callable[..., None]:
        return lambda **values: written(tmp_path / "aenv-home", values) and None

    def found(self) -> tuple[str | None, str | None]:
        where = connection.hub_address()
        return where.url, where.api_key

    def test_variables_come_before_the_file_and_the_hub_before_the_gateway(
        self, monkeypatch: pytest.MonkeyPatch, file: Callable[..., None]
    ) -> None:
        assert connection.hub_address().url is None
        file(system_url="http://file-gateway")
        assert connection.hub_address().url == "http://file-gateway"
        file(system_url="http://file-gateway", hub_config={"hub_backend": "http://file-hub"})
        assert connection.hub_address().url == "http://file-hub"
        monkeypatch.setenv("AENV_SYSTEM_URL", "http://gateway")
        assert connection.hub_address().url == "http://gateway"
        monkeypatch.setenv("HUB_BACKEND", "http://hub")
        assert connection.hub_address().url == "http://hub"

    def test_the_key_of_the_variable_wins_over_the_file(
        self, monkeypatch: pytest.MonkeyPatch, file: Callable[..., None]
    ) -> None:
        file(hub_config={"api_key": "file", "timeout": 7})
        assert (connection.hub_address().api_key, connection.hub_timeout()) == ("file", 7)
        monkeypatch.setenv("AENV_API_KEY", "variable")
        assert connection.hub_address().api_key == "variable"

    def test_a_key_that_is_kept_goes_only_where_it_is_kept_for(
        self, monkeypatch: pytest.MonkeyPatch, file: Callable[..., None]
    ) -> None:
        file(system_url="http://ours:8080", hub_config={"api_key": "secret"})
        assert connection.gateway().api_key == "secret"
        assert connection.gateway("http://ours").api_key == "secret"  # the same: 8080 is the port that is left out
        assert connection.gateway("http://other").api_key is None
        monkeypatch.setenv("AENV_SYSTEM_URL", "http://other")
        assert (connection.gateway().url, connection.gateway().api_key) == ("http://other", None)
        assert self.found() == ("http://other", None)

    def test_what_the_published_command_line_wrote_by_itself_is_no_choice(
        self, monkeypatch: pytest.MonkeyPatch, file: Callable[..., None]
    ) -> None:
        file(hub_config={"hub_backend": "https://localhost:8080"})
        monkeypatch.setenv("AENV_SYSTEM_URL", "http://gateway")
        assert connection.hub_address().url == "http://gateway"

    def test_a_file_that_came_with_a_folder_names_no_address_and_gets_no_key(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("AENV_API_KEY", "secret")
        (tmp_path / ".aenv").mkdir()
        (tmp_path / ".aenv" / "cli_config.json").write_text('{"hub_config": {"hub_backend": "http://evil"}}')
        assert self.found() == (None, "secret")
        monkeypatch.setenv("HUB_BACKEND", "http://ours")
        assert self.found() == ("http://ours", "secret")
