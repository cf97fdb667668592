"""`aenv instance`, `aenv instances` and `aenv token`, against a real gateway and a real store."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest

from aenv.base import wire
from aenv.cli.commands import instance, service, token
from tests.command_line import aenv, environ, on_terminal, serving
from tests.gateways import Gateway, make_project, running_gateway

pytestmark = pytest.mark.slow  # each test runs several commands

ROOT = Path(__file__).parent.parent
TABLE = ["ID", "Environment", "Version", "Owner", "Status", "IP", "Created"]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    project = make_project(tmp_path, environmentVariables={"FROM": "config"})
    async with running_gateway(tmp_path / "home", project) as running:
        yield running


class Shell:
    """Runs commands against a gateway, which goes on serving meanwhile."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.env = environ(AENV_SYSTEM_URL=gateway.address.url, AENV_HOME=str(folder / "cli-home"))
        self.folder = folder

    async def __call__(self, *words: str | Path, stdin: str = "", code: int = 0) -> str:
        done = await self.run(*words, stdin=stdin)
        assert done.returncode == code, done.stderr
        return done.stdout

    async def run(self, *words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(aenv, *words, cwd=self.folder, env=self.env, stdin=stdin)

    async def created(self, *options: str) -> dict:
        """A new instance that is left running."""
        made: dict = json.loads(await self("instance", "create", "echo@1.0.0", "--keep-alive", "--json", *options))
        return made


@pytest.fixture
def shell(gateway: Gateway, tmp_path: Path) -> Shell:
    return Shell(gateway, tmp_path)


class TestCreate:
    async def test_an_instance_is_shown_and_then_ended(self, gateway: Gateway, shell: Shell) -> None:
        done = await shell.run("instance", "create", "echo@1.0.0", "--owner", "ada")
        header, row = done.stdout.splitlines()
        assert header.split() == TABLE
        assert row.split()[1:6] == ["echo", "1.0.0", "ada", "Running", "127.0.0.1"]
        assert done.stderr == "ending the instance; use --keep-alive to avoid that\n"
        assert gateway.leftovers() == []

    async def test_every_option_reaches_the_instance(self, gateway: Gateway, shell: Shell) -> None:
        options = ["-e", "A=1=2", "-e", "B=", "-a", "--x", "-a", "y", "-t", "2h", "--label", "team=a"]
        options += [
            "--wait",
            "1s",
            "--skip-health",
            "--timeout",
            "60",
            "--startup-timeout",
            "30",
            "--max-retries",
            "1",
        ]
        made = await shell.created(*options)
        seen = await gateway.call(made["id"], "seen")
        assert (seen["arguments"], seen["variables"]["A"], seen["variables"]["B"]) == (["--x", "y"], "1=2", "")
        assert seen["variables"]["FROM"] == "config"
        assert (made["ttl"], made["labels"]) == ("2h", {"team": "a"})

    async def test_many_are_made_with_one_command(self, shell: Shell) -> None:
        made = json.loads(await shell("instance", "create", "echo", "--count", "3", "--keep-alive", "--json"))
        assert len({one["id"] for one in made}) == 3
        assert len((await shell("instances")).splitlines()) == 4

    async def test_the_project_here_is_meant_when_none_is_named(self, shell: Shell) -> None:
        shell.folder = shell.folder / "echo-1.0.0"
        made = json.loads(await shell("instance", "create", "-o", "json"))
        assert made["env"]["name"] == "echo"

    async def test_a_project_that_was_not_pushed_is_to_be_pushed(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"name": "unpushed", "version": "1.0.0"}')
        shell.folder = tmp_path
        for words in ([], ["unpushed"], ["unpushed@1.0.0"]):
            done = await shell.run("instance", "create", *words)
            assert done.stderr.splitlines()[1:] == ["try: aenv push"], done.stderr
        assert "try:" not in (await shell.run("instance", "create", "another")).stderr

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["create", "nothing@1"], 1, "aenv: environment 'nothing@1' not found"),
            (["create", "echo@1.0.0", "-e", "A"], 2, "aenv: bad argument 'A'; write it as key=value"),
            (["create", "echo@1.0.0", "--wait", "soon"], 1, "aenv: bad duration 'soon'"),
            (["create"], 3, "aenv: no config.json in"),
            (["get", "no-such"], 1, "aenv: instance 'no-such' not found"),
            (["delete", "no-such", "-y"], 1, "aenv: instance 'no-such' not found"),
            (["delete", "no-such"], 1, "aenv: cannot ask for confirmation"),
            (["delete", "-y"], 2, "aenv: name the instances"),
            (["list", "--version", "1.0.0"], 2, "aenv: --version needs --name"),
            (["list", "--status", "odd"], 1, "aenv: field 'status': 'odd' is none of"),
            (["exec", "no-such", "ls"], 1, "aenv: instance 'no-such' not found"),
            (["exec", "no-such", "--"], 2, "aenv: missing argument 'COMMAND...'"),
            (["cp", "a", "b"], 2, "aenv: one of SOURCE and TARGET must be ID:PATH"),
            (["cp", "nothing", "no-such:b"], 1, "aenv: 'nothing': no such file or directory"),
            (["logs", "no-such"], 1, "aenv: instance 'no-such' not found"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    async def test_a_failure_is_one_line(self, shell: Shell, words: list[str], code: int, message: str) -> None:
        done = await shell.run("instance", *words)
        first, *rest = done.stderr.splitlines()
        assert first.startswith(message)
        assert [line[:5] for line in rest] in ([], ["try: "])
        assert (done.returncode, done.stdout) == (code, "")

    @pytest.mark.parametrize("words", [["instances"], ["instance", "create", "e", "--max-retries", "0"]])
    def test_a_gateway_that_is_not_there_is_named_with_what_to_do(self, words: list[str]) -> None:
        done = aenv(*words, "--system-url", "http://127.0.0.1:1")
        assert done.stderr == (
            "aenv: cannot connect to http://127.0.0.1:1: Connection refused; "
            "the address comes from the option --system-url\n"
            "try: start a gateway with 'aenv serve', or name one with --system-url\n"
        )


class TestIds:
    async def test_an_id_is_never_cut_however_narrow_the_terminal_is(self, shell: Shell) -> None:
        id = (await shell.created())["id"]
        for words in (["instances"], ["ps"], ["instance", "get", id]):
            said = await asyncio.to_thread(on_terminal, *words, env=shell.env, columns=40)
            assert id in said, said

    async def test_the_beginning_of_an_id_is_enough_where_it_is_unique(self, shell: Shell, tmp_path: Path) -> None:
        one, other = [(await shell.created())["id"] for _ in range(2)]
        length = next(n for n in range(1, 40) if one[:n] != other[:n])
        short = one[:length]
        assert json.loads(await shell("instance", "get", short, "--json"))["id"] == one
        assert await shell("instance", "exec", short, "echo", "hi") == "hi\n"
        assert (await shell("instance", "renew", short, "1h")).startswith("2")
        await shell("instance", "logs", short)
        (tmp_path / "file").write_text("text")
        await shell("instance", "cp", tmp_path / "file", f"{short}:file")
        assert await shell("call", "echo", "text=hi", "--instance", short)
        twice = await shell.run("instance", "get", "echo-")
        assert twice.returncode == 1
        assert "2 instances have ids that begin with 'echo-'" in twice.stderr and one in twice.stderr
        ended = await shell.run("instance", "delete", short, "--yes")
        assert ended.stderr == f"ended {one}\n"

    async def test_a_beginning_of_nothing_is_not_found(self, shell: Shell) -> None:
        done = await shell.run("instance", "get", "nothing")
        assert done.returncode == 1
        assert "not found" in done.stderr

    def test_the_beginning_of_a_tokens_id_is_enough(self, tmp_path: Path) -> None:
        made = json.loads(aenv("token", "create", "--user", "ada", "--json", "--home", tmp_path).stdout)
        done = aenv("token", "revoke", made["id"][:4], "--home", tmp_path)
        assert done.stderr == f"revoked the token {made['id']} of 'ada'\n"


class TestLooking:
    async def test_the_list_can_be_narrowed_and_paged(self, shell: Shell) -> None:
        first = await shell.created("--label", "team=a", "--owner", "ada")
        second = await shell.created("--label", "team=b")

        async def ids(*options: str) -> list[str]:
            return [one["id"] for one in json.loads(await shell("instance", "list", "--json", *options))]

        assert await ids() == [first["id"], second["id"]]
        assert await ids("-n", "echo", "--version", "1.0.0", "--label", "team=b") == [second["id"]]
        assert await ids("--owner", "ada", "--status", "running") == [first["id"]]
        assert await ids("--name", "other") == []
        assert await ids("--limit", "1", "--cursor", first["id"]) == [second["id"]]
        page = await shell.run("instances", "--limit", "1")
        assert page.stderr == f"there may be more; use --cursor {first['id']}\n"

    async def test_an_empty_list_says_so_to_people_alone(self, shell: Shell) -> None:
        done = await shell.run("instances")
        assert (done.stdout, done.stderr) == ("", "no instances\n")
        assert await shell("instances", "-o", "json") == "[]\n"

    async def test_one_is_shown_with_all_that_matters(self, shell: Shell) -> None:
        made = await shell.created("--label", "team=a")
        shown = dict(
            re.split(r"  +", line, maxsplit=1)
            for line in (await shell("instance", "get", made["id"])).splitlines()
        )
        assert (shown["id"], shown["environment"], shown["status"]) == (made["id"], "echo@1.0.0", "Running")
        assert (shown["labels"], shown["tools"]) == ("team=a", "echo, seen, hang, die")
        assert shown["expires_at"] == made["expires_at"]
        assert json.loads(await shell("instance", "get", made["id"], "--json"))["id"] == made["id"]

    async def test_info_tells_the_tools_and_makes_nothing(self, gateway: Gateway, shell: Shell) -> None:
        page = await shell("instance", "info", "echo")
        assert re.search(r"^version +1\.0\.0$", page, re.MULTILINE)
        assert re.search(r"^echo +Say it back\.$", page, re.MULTILINE)
        assert {
            tool["name"] for tool in json.loads(await shell("instance", "info", "echo@1.0.0", "--json"))["tools"]
        } == {*("echo", "seen", "hang", "die")}
        assert gateway.leftovers() == []


class TestEnding:
    async def test_several_are_ended_at_once(self, gateway: Gateway, shell: Shell) -> None:
        ids = [(await shell.created())["id"] for _ in range(2)]
        done = await shell.run("instance", "delete", *ids, "-y")
        assert done.stderr.splitlines() == [f"ended {id}" for id in ids]
        assert gateway.leftovers() == []

    async def test_all_with_a_label_are_ended(self, shell: Shell) -> None:
        await shell.created("--label", "team=a")
        other = await shell.created("--label", "team=b")
        assert (await shell.run("instance", "delete", "--label", "team=a", "--yes")).stderr == "ended 1 instance\n"
        assert [one["id"] for one in json.loads(await shell("instances", "--json"))] == [other["id"]]

    async def test_renewing_says_until_when(self, shell: Shell) -> None:
        made = await shell.created()
        until = (await shell("instance", "renew", made["id"], "3h")).strip()
        assert until > made["expires_at"]
        assert json.loads(await shell("instance", "get", made["id"], "--json"))["ttl"] == "3h"


class TestInside:
    async def test_a_command_streams_and_its_exit_code_is_ours(self, shell: Shell) -> None:
        id = (await shell.created())["id"]
        done = await shell.run("instance", "exec", id, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)
        assert await shell("instance", "exec", id, "echo $((2 + 3)) | cat") == "5\n"
        assert await shell("instance", "exec", "-i", id, "wc", "-c", stdin="four") == "4\n"

    async def test_files_go_in_and_come_out(self, shell: Shell) -> None:
        id = (await shell.created())["id"]
        (shell.folder / "data" / "deep").mkdir(parents=True)
        (shell.folder / "data" / "deep" / "a.txt").write_text("a")
        (shell.folder / "data" / "b.txt").write_text("b")
        assert (await shell.run("instance", "cp", "data", f"{id}:in")).stderr == "copied 2 files\n"
        assert await shell("instance", "exec", id, "cat in/b.txt in/deep/a.txt") == "ba"
        await shell("instance", "exec", id, "cp in/b.txt c.txt")
        assert (await shell.run("instance", "cp", f"{id}:c.txt", ".")).stderr == "copied 1 file\n"
        assert (shell.folder / "c.txt").read_text() == "b"
        await shell("instance", "cp", f"{id}:in", "out")
        assert (shell.folder / "out" / "deep" / "a.txt").read_text() == "a"

    async def test_logs_are_printed_and_followed_to_the_end(self, shell: Shell) -> None:
        id = (await shell.created())["id"]
        assert "serving 4 tools" in await shell("instance", "logs", id)
        with serving("instance", "logs", "-f", id, env=shell.env) as following:
            await asyncio.to_thread(following.until, "serving 4 tools")
            await shell("instance", "delete", id, "-y")
            assert await asyncio.to_thread(following.wait) == (0, "")


class TestToken:
    def created(self, home: Path, *options: str) -> dict:
        done = aenv("token", "create", "--json", "--home", home, *options)
        assert done.returncode == 0, done.stderr
        made: dict = json.loads(done.stdout)
        return made

    def test_a_token_is_shown_once_and_kept_as_a_hash(self, tmp_path: Path) -> None:
        done = aenv("token", "create", "--user", "ada", "--home", tmp_path)
        printed = done.stdout.strip()
        assert printed.startswith("aenv-")
        assert "it will not be shown again" in done.stderr
        assert printed not in aenv("token", "list", "--json", "--home", tmp_path).stdout
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert printed.encode() not in kept
        assert b"ada" in kept

    def test_the_list_has_everything_but_the_token(self, tmp_path: Path) -> None:
        made = self.created(
            tmp_path, "--user", "ada", "--role", "admin", "--max-instances", "3", "--expires", "30d"
        )
        [row] = json.loads(aenv("token", "list", "--json", "--home", tmp_path).stdout)
        assert (row["id"], row["user"], row["role"], row["maxInstanceCount"]) == (made["id"], "ada", "admin", 3)
        assert row["expires_at"] > row["created_at"]
        header, line = aenv("token", "list", "--home", tmp_path).stdout.splitlines()
        assert header.split() == ["ID", "User", "Role", "Instances", "Created", "Expires", "Revoked"]
        assert line.split()[:4] == [made["id"], "ada", "admin", "3"]
        assert line.endswith("-")

    def test_a_revoked_token_stays_in_the_list(self, tmp_path: Path) -> None:
        made = self.created(tmp_path, "--user", "ada")
        assert aenv("token", "revoke", made["id"], "--home", tmp_path).returncode == 0
        [row] = json.loads(aenv("token", "list", "--json", "--home", tmp_path).stdout)
        assert row["revoked_at"]

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["revoke", "nope"], 1, "aenv: token 'nope' not found"),
            (["create"], 2, "aenv: missing option '--user'"),
            (["create", "--user", " "], 1, "aenv: field 'user':"),
            (["create", "--user", "u", "--role", "king"], 2, "aenv: invalid value for '--role'"),
            (["create", "--user", "u", "--expires", "soon"], 2, "aenv: invalid value for '--expires'"),
            (["list", "--store", "mysql://x"], 1, "aenv: the store's url has none of the forms"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_a_failure_is_one_line(self, tmp_path: Path, words: list[str], code: int, message: str) -> None:
        done = aenv("token", *words, "--home", tmp_path)
        assert done.stderr.splitlines()[0].startswith(message)
        assert (done.returncode, done.stdout) == (code, "")

    async def test_a_gateway_on_the_same_home_takes_the_token_and_nobody_without(self, tmp_path: Path) -> None:
        made = self.created(tmp_path / "home", "--user", "ada")
        async with running_gateway(tmp_path / "home", make_project(tmp_path)) as running:
            shell = Shell(running, tmp_path)
            first, hint = (await shell.run("instances")).stderr.splitlines()
            assert first.startswith("aenv: missing Authorization header")
            assert hint == f"try: aenv login {running.address.url}, or pass --api-key"
            keyless = (await shell.run("login", running.address.url, "--api-key", "")).stderr.splitlines()
            assert keyless[0] == f"aenv: no key was given, and {running.address.url} asks for one"
            assert "--api-key KEY" in keyless[1]
            assert await shell("instances", "--json", "--api-key", made["token"]) == "[]\n"
            shell.env["AENV_API_KEY"] = made["token"]
            assert (await shell.created())["owner"] == "ada"


class TestConfiguration:
    async def test_gateway_key_and_owner_come_from_the_file(self, gateway: Gateway, shell: Shell) -> None:
        url = shell.env.pop("AENV_SYSTEM_URL")
        home = Path(shell.env["AENV_HOME"])
        home.mkdir()
        (home / "cli_config.json").write_text(json.dumps({"system_url": url, "owner": "grace"}))
        assert (await shell.created())["owner"] == "grace"


@pytest.mark.parametrize("group", [instance.command, service.command, token.command], ids=lambda group: group.name)
def test_every_option_of_every_subcommand_is_explained_and_documented(group: click.Group) -> None:
    section = (ROOT / "docs" / "cli.md").read_text().split(f"## aenv {group.name}\n")[1].split("\n## ")[0]
    shared = (ROOT / "docs" / "cli.md").read_text().split("## aenv instance\n")[1].split("| option |")[1]
    for name, command in group.commands.items():
        assert f"aenv {group.name} {name}" in section
        assert command.help
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help
                assert [flag for flag in option.opts if f"`{flag}`" not in section + shared] == [], name


def test_ids_of_instances_are_remote_ends_of_a_copy() -> None:
    from aenv.cli.commands.instance_cp import _REMOTE

    found = _REMOTE.match(f"{wire.new_instance_id('my-env')}:a:b")
    assert found
    assert found[2] == "a:b"
    assert not _REMOTE.match("./a:b")
    assert not _REMOTE.match("/tmp/a:b")
