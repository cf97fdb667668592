"""Where an address comes from: one order for the SDK and the command line, and every error names the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aenv import Environment
from aenv.base import errors
from aenv.cli import connection
from aenv.client import where
from tests.command_line import aenv, environ, serving

NOBODY = "http://127.0.0.1:1"  # where nothing listens


@pytest.fixture
def login(tmp_path: Path) -> Path:
    """What `aenv login` would have written, for an address where nobody is."""
    file = tmp_path / "aenv-home" / "cli_config.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"system_url": NOBODY, "hub_config": {"hub_backend": NOBODY, "api_key": "secret"}}))
    return file


Found = tuple[str | None, str | None]


def by_sdk(url: str | None = None, key: str | None = None) -> Found:
    env = Environment("e@1", aenv_url=url, api_key=key)
    return env.dummy_instance_ip or env._url, env.api_key


def by_command_for_gateway(url: str | None = None, key: str | None = None) -> Found:
    found = connection.gateway(url, key)
    return found.url, found.api_key


def by_command_for_hub(url: str | None = None, key: str | None = None) -> Found:
    found = connection.hub_address(url, key)
    return found.url, found.api_key


@pytest.mark.parametrize("find", [by_sdk, by_command_for_gateway, by_command_for_hub])
class TestOrder:
    """Argument or option, variable, login, own platform: the same for the SDK and the command line."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_an_argument_wins_over_a_variable_that_wins_over_the_login(
        self, find: Callable[..., Found], login: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AENV_SYSTEM_URL", "http://variable")
        monkeypatch.setenv("AENV_API_KEY", "variable")
        assert find("http://given", "given") == ("http://given", "given")
        assert find("http://given") == ("http://given", "variable")
        assert find(None, "given") == ("http://variable", "given")
        assert find() == ("http://variable", "variable")
        monkeypatch.delenv("AENV_SYSTEM_URL")
        assert find() == (NOBODY, "variable")
        monkeypatch.delenv("AENV_API_KEY")
        assert find() == (NOBODY, "secret")
        login.unlink()
        assert find() == (None, None)

    def test_the_key_of_the_login_goes_to_its_own_address_alone(
        self, find: Callable[..., Found], login: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert find(NOBODY) == (NOBODY, "secret")
        assert find("http://given") == ("http://given", None)
        monkeypatch.setenv("AENV_SYSTEM_URL", "http://variable")
        assert find() == ("http://variable", None)

    def test_an_argument_wins_over_the_variable_of_a_runtime(
        self, find: Callable[..., Found], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DUMMY_INSTANCE_IP", "http://runtime")
        assert find("http://given") == ("http://given", None)

    def test_a_file_that_came_with_a_folder_names_no_address_and_no_key(
        self, find: Callable[..., Found], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hostile = {"system_url": "http://evil", "hub_config": {"hub_backend": "http://evil", "api_key": "theirs"}}
        (tmp_path / ".aenv").mkdir()
        (tmp_path / ".aenv" / "cli_config.json").write_text(json.dumps(hostile))
        assert find() == (None, None)
        monkeypatch.setenv("AENV_API_KEY", "secret")
        assert find() == (None, "secret")

    def test_the_file_of_the_machine_counts_where_this_user_has_none(
        self, find: Callable[..., Found], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine = tmp_path / "etc.json"
        machine.write_text(json.dumps({"system_url": "http://machine", "hub_config": {"api_key": "shared"}}))
        monkeypatch.setattr(where, "MACHINE_FILE", machine)  # /etc/aenv is not a test's to write
        assert find() == ("http://machine", "shared")
        own = tmp_path / "aenv-home" / "cli_config.json"
        own.parent.mkdir()
        own.write_text(json.dumps({"system_url": NOBODY}))
        assert find() == (NOBODY, None)


def test_a_command_says_that_the_address_of_a_folder_is_not_used(tmp_path: Path) -> None:
    (tmp_path / ".aenv").mkdir()
    (tmp_path / ".aenv" / "cli_config.json").write_text('{"system_url": "http://evil"}')
    env = environ(AENV_SYSTEM_URL=NOBODY, AENV_HOME=str(tmp_path / "home"))
    said = aenv("instances", cwd=tmp_path, env=env).stderr.splitlines()
    assert [line for line in said if "'.aenv/cli_config.json' are not used" in line] == said[:1]
    (tmp_path / ".aenv" / "cli_config.json").write_text('{"owner": "ada"}')
    assert "not used" not in aenv("instances", cwd=tmp_path, env=env).stderr


def test_a_command_whose_address_is_of_the_login_says_how_to_use_ones_own_platform(login: Path) -> None:
    env = environ(AENV_HOME=str(login.parent))
    for command in ("instances", "list"):
        said = aenv(command, env=env).stderr.splitlines()[1]
        assert said.startswith("try: start a gateway with 'aenv serve', or ")
        assert said.endswith(", or use your own platform after 'aenv logout'")
    assert "logout" not in aenv("instances", env={**env, "AENV_SYSTEM_URL": NOBODY}).stderr


def test_a_runtime_wins_over_a_gateway_where_variables_name_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AENV_SYSTEM_URL", "http://gateway")
    monkeypatch.setenv("DUMMY_INSTANCE_IP", "http://runtime")
    assert by_sdk() == ("http://runtime", None)
    assert Environment("e@1", runtime_url="").dummy_instance_ip is None
    assert Environment("e@1", runtime_url="", aenv_url="http://given")._url == "http://given"


async def failure(**arguments: object) -> str:
    with pytest.raises(errors.ConnectFailed) as caught:
        await Environment("e@1", max_retries=0, **arguments).initialize()  # type: ignore[arg-type]
    return caught.value.message


async def test_the_sdk_names_the_source_of_each_address(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"cannot connect to {NOBODY}: Connection refused; the address comes from "
    assert await failure() == f"{said}{str(login)!r}, which aenv login writes"
    monkeypatch.setenv("AENV_SYSTEM_URL", NOBODY)
    assert await failure() == f"{said}the variable AENV_SYSTEM_URL"
    assert await failure(aenv_url=NOBODY) == f"{said}the argument aenv_url"
    assert await failure(runtime_url=NOBODY) == f"{said}the argument runtime_url"
    monkeypatch.setenv("DUMMY_INSTANCE_IP", NOBODY)
    assert await failure() == f"{said}the variable DUMMY_INSTANCE_IP"


@pytest.mark.slow  # several commands
@pytest.mark.parametrize(
    "command", [["instances"], ["service", "list"], ["call", "x", "--instance", "i"], ["list"]]
)
def test_the_command_line_names_the_source_of_each_address(login: Path, command: list[str]) -> None:
    variables = environ(AENV_HOME=str(login.parent))

    def said(*options: str, **more: str) -> str:
        return aenv(*command, *options, env={**variables, **more}).stderr.splitlines()[0]

    assert said().endswith(f"; the address comes from {str(login)!r}, which aenv login writes")
    assert said(AENV_SYSTEM_URL=NOBODY).endswith("; the address comes from the variable AENV_SYSTEM_URL")
    if command != ["list"]:
        option = "--url" if command[0] == "call" else "--system-url"
        assert said(option, NOBODY, AENV_SYSTEM_URL="http://x").endswith(f"comes from the option {option}")


def test_a_runtime_that_is_called_names_the_source_too() -> None:
    assert aenv("call", "x", "--url", NOBODY).stderr.splitlines()[0].endswith("comes from the option --url")
    said = aenv("call", "x", env=environ(DUMMY_INSTANCE_IP=NOBODY)).stderr.splitlines()[0]
    assert said.endswith("comes from the variable DUMMY_INSTANCE_IP")


def test_a_login_file_that_is_wrong_is_named(login: Path) -> None:
    login.write_text("{")
    with pytest.raises(errors.InvalidRequest, match=r"cli_config\.json' is not JSON"):
        Environment("e@1")
    login.write_text('{"system_url": 3}')
    with pytest.raises(errors.InvalidRequest, match="system_url"):
        Environment("e@1")


def test_the_key_of_a_login_goes_to_its_gateway_alone(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Environment("e@1").api_key == "secret"
    assert Environment("e@1", aenv_url=NOBODY).api_key == "secret"
    assert Environment("e@1", aenv_url="http://other").api_key is None
    assert Environment("e@1", aenv_url="http://other", api_key="mine").api_key == "mine"
    assert Environment("e@1", runtime_url="http://other").api_key is None
    monkeypatch.setenv("AENV_API_KEY", "variable")
    assert Environment("e@1").api_key == "variable"


@pytest.mark.slow  # a gateway and several commands
async def test_a_login_reaches_the_sdk_and_a_logout_ends_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, home = tmp_path / "aenv-home", tmp_path / "server"
    token = aenv("token", "create", "--user", "ada", "--home", home).stdout.strip()
    project = tmp_path / "my-env"
    assert aenv("init", "my-env", cwd=tmp_path).returncode == 0
    variables = environ(AENV_HOME=str(user))
    ports = ("--port", "0", "--data-port", "0")
    with serving("serve", project, *ports, "--home", home) as server:
        url = server.until("export", on="stderr")[-1].partition("=")[2]
        assert aenv("login", url, env=variables, stdin=f"{token}\n").returncode == 0
        async with Environment("my-env@1.0.0") as env:
            assert (await env.call_tool("my_custom_echo_env", {"content": "x"})).text == '{"result":"x"}'
            listed = json.loads(aenv("instances", "--json", env=variables).stdout)
            assert [each["owner"] for each in listed] == ["ada"]
        done = aenv("logout", env=variables)
        assert (done.returncode, done.stderr) == (0, f"logged out of {url}\n")
        assert token not in (user / "cli_config.json").read_text()
        assert Environment("my-env").api_key is None
        assert aenv("logout", env=variables).stderr == "not logged in\n"
