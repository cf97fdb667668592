"""What people meet in their first hour: a fresh project's tests, the README's code, and who may push."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import aenv, environ, serving

pytestmark = pytest.mark.slow  # each test runs several commands

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return environ(AENV_HOME=str(tmp_path / "home"), HOME=str(tmp_path))


class TestFreshProject:
    def test_a_test_that_fails_is_told_by_the_exit_code(self, tmp_path: Path, variables: dict[str, str]) -> None:
        aenv("init", "fresh", cwd=tmp_path, env=variables)
        (tmp_path / "fresh" / "tests" / "test_more.py").write_text("def test_no(): assert False\n")
        done = aenv("test", "fresh", cwd=tmp_path, env=variables)
        assert done.returncode == 1
        assert done.stderr == ""  # not what pytest-asyncio, which is here, says of every project

    def test_what_an_author_should_change_is_told(self, tmp_path: Path, variables: dict[str, str]) -> None:
        aenv("init", "fresh", cwd=tmp_path, env=variables)
        text = "import warnings\n\ndef test_old(): warnings.warn(DeprecationWarning('of the author'))\n"
        (tmp_path / "fresh" / "tests" / "test_more.py").write_text(text)
        assert "of the author" in aenv("test", "fresh", cwd=tmp_path, env=variables).stdout

    def test_the_readmes_file_passes_the_templates_tests(self, tmp_path: Path, variables: dict[str, str]) -> None:
        aenv("init", "my-env", cwd=tmp_path, env=variables)
        source = ROOT / "docs" / "src" / "readme_env.py"
        place = source.read_text().split('"""')[1]  # the page says where it goes
        shutil.copy(source, tmp_path / place)
        script = (
            f"{sys.executable} -m pytest -q && aenv call --instance $AENV_INSTANCE_ID search_code query=import"
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = aenv("test", "my-env", "--script", script, cwd=tmp_path, env={**variables, "PATH": path})
        assert done.returncode == 0, done.stdout + done.stderr
        assert '{"matches":[' in done.stdout


@pytest.mark.parametrize(("name", "kind"), [("word_count", "function"), ("my_custom_reward", "reward")])
def test_a_call_of_what_is_no_tool_names_the_option(
    tmp_path: Path, variables: dict[str, str], name: str, kind: str
) -> None:
    aenv("init", "my-env", cwd=tmp_path, env=variables)
    with serving("run", "my-env", "--port", "0", "--control-port", "0", cwd=tmp_path, env=variables) as server:
        url = server.until("export DUMMY_INSTANCE_IP=")[-1].partition("=")[2]
        done = aenv("call", name, "text=a b", "--url", url, env=variables)
        unknown = aenv("call", "nothing", "--url", url, env=variables)
    assert (done.returncode, done.stderr) == (1, f"try: --{kind}, since '{name}' is a {kind}\n")
    assert (unknown.returncode, unknown.stderr) == (1, "")


class TestPortsInUse:
    def test_run_names_both_of_its_ports_at_once(self, tmp_path: Path, variables: dict[str, str]) -> None:
        aenv("init", "my-env", cwd=tmp_path, env=variables)
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            ports = [str(taken.getsockname()[1]) for taken in (one, other)]
            run = ("run", "my-env", "--port", ports[0], "--control-port")
            both, free = (aenv(*run, port, cwd=tmp_path, env=variables).stderr for port in (ports[1], "0"))
        assert "try: --port 0 --control-port 0, for a free port without the control API" in both
        assert "try: --port 0, for a free port" in free

    def test_serve_names_the_option_of_each_port(self, tmp_path: Path, variables: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            serve = ("serve", "--home", str(tmp_path / "server"), "--data-port", port, "--port")
            data, both = (aenv(*serve, control, env=variables).stderr for control in ("0", port))
        assert data.splitlines()[-1] == "try: --data-port 0 for a free port, or another number"
        assert both.splitlines()[-1] == "try: --port 0 --data-port 0 for a free port, or another number"

    def test_a_call_of_a_gateway_says_that_it_is_one(self, tmp_path: Path, variables: dict[str, str]) -> None:
        ports = ("--port", "0", "--data-port", "0", "--log-level", "ERROR")
        with serving("serve", "--home", tmp_path / "server", *ports, env=variables) as server:
            told = dict(line.split(maxsplit=1) for line in server.until("data", on="stderr"))
            for url in (told["control"], told["data"]):
                first, hint = aenv("call", "guess", "number=5", "--url", url, env=variables).stderr.splitlines()
                assert first == f"aenv: {url} is a gateway, and not 'aenv run'"
                assert hint.startswith("try: --instance ID")


class TestHub:
    def test_a_writer_may_push_until_removed_and_the_log_says_so(
        self, tmp_path: Path, variables: dict[str, str]
    ) -> None:
        server = ("--home", str(tmp_path / "server"))

        def token(user: str) -> str:
            return aenv("token", "create", "--user", user, *server, env=variables).stdout.strip()

        keys = {user: token(user) for user in ("ada", "grace")}
        aenv("init", "shared-env", cwd=tmp_path, env=variables)
        with serving("hub", *server, "--port", "0", "--log-level", "ERROR", env=variables) as running:
            url = running.until("export ", on="stderr")[-1].partition("=")[2]

            def run(user: str, *words: str) -> subprocess.CompletedProcess[str]:
                env = {**variables, "HUB_BACKEND": url, "AENV_API_KEY": keys[user]}
                return aenv(*words, cwd=tmp_path, env=env)

            push = ("push", "shared-env", "--no-verify", "--version")
            assert run("ada", *push, "1.0.0").returncode == 0
            assert "is not yours to change" in run("grace", *push, "1.0.1").stderr
            done = run("ada", "hub", "access", "shared-env", "--add-writer", "grace")
            assert done.returncode == 0, done.stderr
            rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
            assert (rows["owner"], rows["writers"]) == ("ada", "grace")
            assert run("grace", *push, "1.0.1").returncode == 0
            refused = run("grace", "hub", "access", "shared-env", "--visibility", "public")
            assert (refused.returncode, "only its owner" in refused.stderr) == (1, True)
            removed = run("ada", "hub", "access", "shared-env", "--remove-writer", "grace", "--json")
            assert json.loads(removed.stdout)["writers"] == []
            unknown = run("ada", "hub", "access", "shared-env", "--remove-writer", "grace")
            assert unknown.stderr.startswith("aenv: user 'grace' is not in the list")

            lines = json.loads(run("ada", "hub", "audit", "shared-env", "--json").stdout)
            assert [line["user"] for line in lines if line["environment"] == "shared-env@1.0.1"] == ["grace"]
            table = run("ada", "hub", "audit", "shared-env", "-l", "1").stdout.splitlines()
            assert len(table) == 2 and table[0].split() == ["At", "User", "Action", "Environment", "Digest"]
            assert run("ada", "hub", "audit").returncode == 1  # for administrators


def test_the_list_has_what_comes_with_aenv_after_what_was_pushed(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    aenv("init", "mini-mine", cwd=tmp_path, env=variables)
    with serving(
        "hub", "--home", tmp_path / "server", "--port", "0", "--log-level", "ERROR", env=variables
    ) as hub:
        url = hub.until("export ", on="stderr")[-1].partition("=")[2]
        env = {**variables, "HUB_BACKEND": url}
        aenv("push", "mini-mine", "--no-verify", cwd=tmp_path, env=env)
        rows = [line.split()[:3] for line in aenv("list", "mini", env=env).stdout.splitlines()[1:]]
        assert rows == [
            ["mini-mine", "1.0.0", "Ready"],
            ["mini-program", "1.0.0", "Built-in"],
            ["mini-terminal", "1.0.1", "Built-in"],
        ]
        first, last = (aenv("list", "mini", "-l", "1", "-o", offset, "--json", env=env) for offset in ("0", "2"))
        assert first.stderr == "1 of 3; use --offset 1 for the next ones\n"
        (shipped,) = json.loads(last.stdout)
        assert (shipped["name"], shipped["builtin"], last.stderr) == ("mini-terminal", True, "")
