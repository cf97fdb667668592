"""The development side of the command line, against a real gateway with its hub: push, find, pull, release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.command_line import AENV, Server, aenv, environ, serving

pytestmark = pytest.mark.slow  # each test runs several commands

Run = Callable[..., subprocess.CompletedProcess[str]]

CODE = '''
from aenv import register_function, register_reward, register_tool

print("an author's own words")


@register_tool
def echo(text: str) -> str:
    """Say it back.

    At length.
    """
    return text


@register_function
def size(text: str) -> int:
    """How long it is."""
    return len(text)


@register_reward
def is_short(text: str) -> float:
    """Whether it is short."""
    return float(len(text) < 5)
'''


def make(folder: Path, name: str, version: str = "1.0.0", **config: object) -> Path:
    """A project in `<folder>/<name>`."""
    project = folder / name
    (project / "src").mkdir(parents=True)
    (project / "src" / "environment.py").write_text(CODE)
    (project / "README.md").write_text(f"# {name}\n\nWhat it is for.\n")
    values = {
        "name": name,
        "version": version,
        "description": f"the {name}",
        "deployConfig": {"cpu": "1"},
        **config,
    }
    (project / "config.json").write_text(json.dumps(values))
    return project


def url_of(server: Server) -> str:
    return server.until("export ", on="stderr")[-1].partition("=")[2]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway of this module's own."""
    home = tmp_path_factory.mktemp("gateway")
    options = ["--home", home, "--port", "0", "--data-port", "0", "--log-level", "ERROR"]
    with serving("serve", *options) as server:
        yield url_of(server)


@pytest.fixture
def run(gateway: str, tmp_path: Path) -> Run:
    """`aenv` in an empty folder, for that gateway."""
    variables = environ(AENV_HOME=str(tmp_path / "home"), HUB_BACKEND=gateway)
    (tmp_path / "work").mkdir()

    def run(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
        return aenv(*arguments, cwd=tmp_path / "work", env={**variables, **changes})

    return run


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def found(run: Run, name: str, *options: str) -> dict[str, object]:
    record: dict[str, object] = json.loads(run("get", name, "--json", *options).stdout)
    return record


class TestPush:
    def test_it_prints_one_line_and_the_hub_knows_what_the_environment_offers(self, run: Run, work: Path) -> None:
        project = make(work, "offers", tags=["a", "b"])
        (project / "requirements.txt").write_text("aenvironment\n")
        done = run("push", project)
        assert (done.returncode, done.stderr) == (0, "")
        record = found(run, "offers")
        assert (
            done.stdout
            == f"pushed offers@1.0.0 (sha256:{str(record['digest'])[:12]}…, 4 files, {_size(record)})\n"
        )
        assert [tool["name"] for tool in record["tools"]] == ["echo"]  # type: ignore[attr-defined]
        assert [each["name"] for each in record["functions"]] == ["size"]  # type: ignore[attr-defined]
        assert [each["name"] for each in record["rewards"]] == ["is_short"]  # type: ignore[attr-defined]
        assert record["readme"] == "# offers\n\nWhat it is for.\n"
        assert record["tags"] == ["a", "b"]

    def test_a_project_that_asks_for_another_python_is_told_which_it_gets(self, run: Run, work: Path) -> None:
        project = make(work, "python-of-another")
        (project / "Dockerfile").write_text("FROM python:3.10-slim\n")
        done = run("push", project)
        ours = ".".join(map(str, sys.version_info[:2]))
        assert done.returncode == 0
        assert done.stderr == (
            "note: its Dockerfile asks for Python 3.10, and aenv needs 3.11 or newer; "
            f"its instances run on Python {ours}, which runs aenv\n"
        )
        (project / "Dockerfile").write_text(f"FROM python:{ours}-slim\n")
        assert run("push", project, "-v", "1.0.1").stderr == ""

    def test_a_project_is_found_by_folder_by_name_and_here(self, run: Run, work: Path) -> None:
        make(work, "by-name").rename(work / "elsewhere")
        assert run("push", "by-name", "--dry-run").returncode == 0
        assert run("push", "elsewhere", "--dry-run").returncode == 0
        (work / "elsewhere" / "config.json").rename(work / "config.json")
        for arguments in ([], ["by-name"], ["--work-dir", work]):
            assert run("push", *arguments, "--dry-run", "--json").returncode == 0
        empty = run("push", "elsewhere")
        assert empty.returncode == 3
        assert empty.stderr.startswith("aenv: no config.json in 'elsewhere';")
        missing = run("push", "nowhere")
        assert missing.returncode == 1
        assert missing.stderr.startswith(f"aenv: no project 'nowhere' in '{work}'\ntry: ")

    def test_a_dry_run_lists_the_files_without_secrets_and_pushes_nothing(self, run: Run, work: Path) -> None:
        project = make(work, "dry")
        (project / ".gitignore").write_text("*.log\n")
        for name in (".env", ".git/config", ".venv/pyvenv.cfg", "src/x.log", "src/__pycache__/x.pyc"):
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text("secret")
        done = run("push", project, "--dry-run")
        assert done.returncode == 0
        assert done.stdout.splitlines() == [".gitignore", "README.md", "config.json", "src/environment.py"]
        assert "would push dry@1.0.0 (sha256:" in done.stderr
        assert run("get", "dry").returncode == 1

    def test_the_same_again_is_fine_and_other_content_is_refused_with_both_digests(
        self, run: Run, work: Path
    ) -> None:
        project = make(work, "twice")
        run("push", project)
        assert run("push", project).returncode == 0
        first = found(run, "twice")["digest"]
        (project / "README.md").write_text("changed")
        second = json.loads(run("push", project, "--dry-run", "--json").stdout)["digest"]
        refused = run("push", project)
        assert refused.returncode == 1
        assert f"the hub has sha256:{first}, this is sha256:{second}" in refused.stderr
        assert found(run, "twice")["digest"] == first
        pushed = run("push", project, "--force", "--json")
        assert json.loads(pushed.stdout)["digest"] == found(run, "twice")["digest"] == second
        assert json.loads(pushed.stdout)["created"] is False

    def test_a_released_version_stays_as_it_is_even_by_force(self, run: Run, work: Path) -> None:
        project = make(work, "released")
        run("push", project)
        assert run("release", "released@1.0.0").stdout == "released released@1.0.0\n"
        before = found(run, "released")
        (project / "README.md").write_text("changed")
        assert run("push", project, "--force").returncode == 1
        assert found(run, "released")["digest"] == before["digest"]

    def test_another_version_may_be_given_and_the_project_is_not_changed(self, run: Run, work: Path) -> None:
        project = make(work, "versions")
        before = (project / "config.json").read_text()
        assert run("push", project, "--version", "1.1.0").stdout.startswith("pushed versions@1.1.0 ")
        assert run("push", project).returncode == 0
        assert (project / "config.json").read_text() == before
        assert found(run, "versions")["version"] == "1.1.0"
        assert found(run, "versions", "-v", "~1.0")["version"] == "1.0.0"
        assert run("push", project, "--version", "^1").returncode == 2

    def test_an_environment_that_cannot_be_loaded_is_refused_with_the_reason(self, run: Run, work: Path) -> None:
        project = make(work, "broken")
        (project / "src" / "environment.py").write_text("import nothing_of_that_name")
        done = run("push", project)
        assert done.returncode == 1
        first, second = done.stderr.splitlines()
        assert first.endswith(
            "environment.py failed to load: line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"
        )
        assert second.startswith("try: add the package of 'nothing_of_that_name' to requirements.txt")
        assert "--no-verify" in second
        assert run("get", "broken").returncode == 1
        assert run("push", project, "--no-verify").returncode == 0

    def test_what_is_packed_is_what_is_loaded(self, run: Run, work: Path) -> None:
        project = make(work, "incomplete")
        (project / "src" / "environment.py").write_text("import rest")
        (project / "src" / "rest.py").write_text("")
        (project / ".aenvignore").write_text("rest.py\n")
        done = run("push", project)
        assert done.returncode == 1
        assert "No module named 'rest'" in done.stderr

    def test_the_image_of_the_record_may_be_at_another_registry(self, run: Run, work: Path) -> None:
        project = make(work, "moved", artifacts=[{"id": "", "type": "image", "content": "docker.io/aenv/moved:1"}])
        run("push", project, "--registry", "r.io", "--namespace", "team")
        assert found(run, "moved")["artifacts"] == [{"id": "", "type": "image", "content": "r.io/team/moved:1"}]

    @pytest.mark.parametrize("text", ["{", '{"name": "x"}', '{"name": "x", "version": "1", "tags": 3}'])
    def test_a_wrong_config_json_exits_with_3(self, run: Run, work: Path, text: str) -> None:
        (work / "config.json").write_text(text)
        assert run("push").returncode == 3

    def test_a_progress_bar_is_for_terminals_alone(self, gateway: str, tmp_path: Path) -> None:
        project = make(tmp_path, "watched")
        variables = environ(AENV_HOME=str(tmp_path / "home"), HUB_BACKEND=gateway, TERM="xterm")
        ours, theirs = os.openpty()
        with open(ours, "rb", buffering=0) as terminal:
            done = subprocess.run(
                [AENV, "push", project, "--no-verify"], env=variables, stdout=subprocess.PIPE, stderr=theirs
            )
            os.close(theirs)
            assert b"uploading watched@1.0.0" in terminal.read(1 << 16)
        assert done.stdout.startswith(b"pushed watched@1.0.0 (sha256:")


class TestCodeUrl:
    def test_a_git_repository_is_fetched_and_packed_with_the_config_json(self, run: Run, work: Path) -> None:
        repository = make(work / "code", "ignored")
        _commit(repository)
        (work / "config.json").write_text(
            json.dumps({"name": "from-git", "version": "1.0.0", "codeUrl": f"git+file://{repository}@main"})
        )
        (work / "left-out.txt").write_text("not of the repository")
        done = run("push")
        assert done.returncode == 0, done.stderr
        run("pull", "from-git", "--output", "pulled")
        files = {str(path.relative_to(work / "pulled")) for path in (work / "pulled").rglob("*") if path.is_file()}
        assert files == {"README.md", "config.json", "src/environment.py"}
        assert json.loads((work / "pulled" / "config.json").read_text())["name"] == "from-git"

    def test_a_link_in_a_repository_is_not_written_through(self, run: Run, work: Path, tmp_path: Path) -> None:
        repository = make(work / "code", "ignored")
        (tmp_path / "victim").write_text("mine")
        (repository / "config.json").unlink()
        (repository / "config.json").symlink_to(tmp_path / "victim")
        _commit(repository)
        config = {"name": "from-link", "version": "1.0.0", "codeUrl": f"git+file://{repository}"}
        (work / "config.json").write_text(json.dumps(config))
        assert run("push", "--dry-run").returncode == 0
        assert (tmp_path / "victim").read_text() == "mine"

    def test_a_repository_that_is_not_there_is_one_line(self, run: Run, work: Path) -> None:
        config = {"name": "x", "version": "1.0.0", "codeUrl": f"git+file://{work}/nothing.git"}
        (work / "config.json").write_text(json.dumps(config))
        done = run("push")
        assert done.returncode == 1
        assert done.stderr.startswith("aenv: cannot fetch codeUrl 'git+file://")
        assert len(done.stderr.splitlines()) == 1


def _commit(repository: Path) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(repository)]
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], check=True)


class TestPull:
    def test_what_is_pulled_is_what_was_pushed(self, run: Run, work: Path) -> None:
        project = make(work / "original", "round-trip")
        (project / "run.sh").write_text("#!/bin/sh\n")
        (project / "run.sh").chmod(0o755)
        run("push", project)
        done = run("pull", "round-trip@1.0.0")
        assert done.stdout == "pulled round-trip@1.0.0 into round-trip\n"
        for path in ("README.md", "src/environment.py", "run.sh"):
            assert (work / "round-trip" / path).read_bytes() == (project / path).read_bytes()
        assert (work / "round-trip" / "run.sh").stat().st_mode & 0o111
        again = json.loads(run("push", "round-trip", "--dry-run", "--json").stdout)
        assert again["digest"] == found(run, "round-trip")["digest"]

    def test_a_folder_with_something_in_it_is_only_written_into_by_force(self, run: Run, work: Path) -> None:
        run("push", make(work / "original", "taken"))
        target = work / "taken"
        (target / "src").mkdir(parents=True)
        (target / "mine.txt").write_text("mine")
        (target / "README.md").write_text("older")
        done = run("pull", "taken")
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == "aenv: 'taken' is not empty"
        assert (target / "README.md").read_text() == "older"
        assert run("pull", "taken", "--force").returncode == 0
        assert (target / "README.md").read_text().startswith("# taken")
        assert (target / "mine.txt").read_text() == "mine"
        assert sorted(path.name for path in work.iterdir()) == ["original", "taken"]

    def test_a_link_in_the_folder_does_not_lead_out_of_it(self, run: Run, work: Path, tmp_path: Path) -> None:
        run("push", make(work / "original", "linked"))
        (tmp_path / "outside").mkdir()
        (work / "linked").mkdir()
        (work / "linked" / "src").symlink_to(tmp_path / "outside")
        assert run("pull", "linked", "--force").returncode == 0
        assert list((tmp_path / "outside").iterdir()) == []
        assert (work / "linked" / "src" / "environment.py").exists()

    def test_a_range_means_the_latest_that_fits(self, run: Run, work: Path) -> None:
        project = make(work / "original", "ranged")
        for version in ("1.0.0", "1.4.0", "2.0.0"):
            run("push", project, "--version", version, "--no-verify")
        assert run("pull", "ranged@^1").stdout == "pulled ranged@1.4.0 into ranged\n"

    def test_an_unknown_environment_is_one_line(self, run: Run, work: Path) -> None:
        done = run("pull", "no-such-thing@1.0.0")
        assert done.returncode == 1
        assert done.stderr.startswith("aenv: ")
        assert "no-such-thing" in done.stderr
        assert list(work.iterdir()) == []


class TestFind:
    @pytest.fixture(scope="class")
    @classmethod
    def several(cls, gateway: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.mktemp("several")
        variables = environ(AENV_HOME=str(folder / "home"), HUB_BACKEND=gateway)
        for name in ("found-a", "found-b", "found-c"):
            project = make(folder, name, tags=["found", name[-1]])
            assert aenv("push", project, "--no-verify", env=variables).returncode == 0

    def test_the_list_is_a_table(self, run: Run, several: None) -> None:
        head, *rows = run("list", "found-").stdout.splitlines()
        assert head.split() == ["Name", "Version", "Status", "Description", "Created"]
        assert [row.split()[:3] for row in rows] == [[f"found-{c}", "1.0.0", "Ready"] for c in "abc"]

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            (["--name", "found-b"], ["found-b"]),
            (["--tags", "found,c"], ["found-c"]),
            (["--tags", "found", "--tags", "a"], ["found-a"]),
            (["found-", "--limit", "1", "--offset", "1"], ["found-b"]),
            (["the found-a"], ["found-a"]),
            (["nothing has this in it"], []),
        ],
    )
    def test_the_list_is_narrowed_down(
        self, run: Run, several: None, options: list[str], names: list[str]
    ) -> None:
        listed = json.loads(run("list", *options, "--format", "json").stdout)
        assert [env["name"] for env in listed] == names

    def test_a_page_says_how_much_there_is_and_how_to_go_on(self, run: Run, several: None) -> None:
        done = run("list", "found-", "-l", "2")
        assert done.stderr == "2 of 3; use --offset 2 for the next ones\n"
        assert run("list", "found-", "-l", "2", "-o", "2").stderr == ""
        assert run("list", "nothing has this in it").stderr == "no environments\n"

    def test_get_shows_tools_and_readme(self, run: Run, work: Path) -> None:
        run("push", make(work, "shown"))
        lines = run("get", "shown@1.0.0").stdout.splitlines()
        assert ["status", "Ready"] in [line.split() for line in lines]
        assert ["resources", "cpu", "1"] in [line.split() for line in lines]
        assert ["tool", "echo", "Say", "it", "back."] in [line.split() for line in lines]
        assert ["reward", "is_short", "Whether", "it", "is", "short."] in [line.split() for line in lines]
        assert lines[-3:] == ["# shown", "", "What it is for."]

    def test_the_versions_are_shown_with_what_changed(self, run: Run, work: Path) -> None:
        project = make(work, "changes")
        run("push", project)
        (project / "more.txt").write_text("more")
        run("push", project, "-v", "1.1.0")
        _, newest, oldest = run("get", "changes", "--versions").stdout.splitlines()
        assert newest.split()[:2] == ["1.1.0", "Ready"]
        assert "+1 files" in newest
        assert oldest.split()[:2] == ["1.0.0", "Ready"]
        versions = json.loads(run("get", "changes", "--versions", "--json").stdout)["versions"]
        assert [each["version"] for each in versions] == ["1.1.0", "1.0.0"]

    def test_what_others_wrote_cannot_command_the_terminal(self, run: Run, work: Path) -> None:
        project = make(work, "escapes", description="red \x1b[31m text")
        (project / "README.md").write_text("title \x1b]0;owned\x07 end\n")
        run("push", project)
        shown = run("get", "escapes").stdout + run("list", "escapes").stdout
        assert "red [31m text" in shown
        assert "\x1b" not in shown
        assert "\x07" not in shown

    def test_a_hub_that_is_not_there_is_one_line_and_a_hint(self, run: Run) -> None:
        done = run("list", HUB_BACKEND="http://127.0.0.1:1")
        assert done.returncode == 1
        assert done.stderr.startswith("aenv: cannot connect to http://127.0.0.1:1: ")
        assert done.stderr.splitlines()[1].startswith("try: start a gateway with 'aenv serve'")


class TestDelete:
    def test_it_asks_first_and_there_must_be_somebody_to_ask(self, run: Run, work: Path) -> None:
        run("push", make(work, "doomed"), "--no-verify")
        done = run("delete", "doomed@1.0.0")
        assert done.returncode == 1
        assert "cannot ask for confirmation to delete doomed@1.0.0" in done.stderr
        assert run("delete", "doomed@1.0.0", "-y").stdout == "deleted doomed@1.0.0\n"
        assert run("get", "doomed@1.0.0").returncode == 1

    def test_a_released_version_takes_force(self, run: Run, work: Path) -> None:
        run("push", make(work, "kept"), "--no-verify")
        run("release", "kept@1.0.0")
        assert run("delete", "kept@1.0.0", "-y").returncode == 1
        assert run("delete", "kept@1.0.0", "-y", "--force").returncode == 0

    @pytest.mark.parametrize("command", ["delete", "release"])
    @pytest.mark.parametrize("ref", ["name", "name@latest", "name@^1"])
    def test_one_version_must_be_named(self, run: Run, command: str, ref: str) -> None:
        done = run(command, ref)
        assert done.returncode == 2
        assert "has no version" in done.stderr


def _size(record: dict[str, object]) -> str:
    return f"{float(str(record['size_bytes'])) / 1000:.1f} kB"


class TestServers:
    def test_a_key_is_checked_before_it_is_kept(self, tmp_path: Path) -> None:
        variables = environ(AENV_HOME=str(tmp_path / "user"))
        home = ["--home", str(tmp_path / "server")]
        token = json.loads(aenv("token", "create", "--user", "ada", *home, "--json").stdout)["token"]
        with serving("hub", *home, "--port", "0", "--log-level", "ERROR") as server:
            url = url_of(server)
            refused = aenv("login", url, "--api-key", "wrong", env=variables)
            assert refused.returncode == 1
            assert not (tmp_path / "user" / "cli_config.json").exists()
            project = make(tmp_path, "mine")
            unknown = aenv("push", project, "--no-verify", env={**variables, "HUB_BACKEND": url})
            assert unknown.returncode == 1
            assert unknown.stderr.endswith(f"try: aenv login {url}\n")
            done = aenv("login", url, env=variables, stdin=f"{token}\n")
            assert (done.returncode, done.stderr) == (0, f"logged in to {url} as ada (user)\n")
            assert (tmp_path / "user" / "cli_config.json").stat().st_mode & 0o777 == 0o600
            assert aenv("push", project, "--no-verify", env=variables).returncode == 0
            assert found(lambda *a: aenv(*a, env=variables), "mine")["owner"] == "ada"

    def test_a_hub_alone_ends_when_told_to(self, tmp_path: Path) -> None:
        with serving("hub", "--home", tmp_path, "--port", "0") as server:
            url = url_of(server)
            variables = environ(AENV_HOME=str(tmp_path / "user"), HUB_BACKEND=url)
            assert aenv("list", "nothing has this", env=variables).stderr == "no environments\n"
            assert server.stop() == 0

    def test_with_nothing_configured_the_users_own_hub_is_started(self, tmp_path: Path) -> None:
        variables = environ(AENV_HOME=str(tmp_path / "h"))
        try:
            pushed = aenv("push", make(tmp_path, "local"), "--no-verify", env=variables)
            assert pushed.returncode == 0, pushed.stderr
            assert found(lambda *a: aenv(*a, env=variables), "local")["version"] == "1.0.0"
        finally:
            for process in psutil.process_iter(["cmdline"]):
                if str(tmp_path / "h" / "run") in " ".join(process.info["cmdline"] or []):
                    process.terminate()
                    process.wait(10)


class TestTest:
    def test_the_script_reaches_the_instance_and_its_exit_code_is_ours(self, run: Run, work: Path) -> None:
        script = "aenv call --instance $AENV_INSTANCE_ID echo text=hi; pwd; echo ${DUMMY_INSTANCE_IP-none}; exit 7"
        project = make(work, "tested", testConfig={"script": script})
        path = f"{AENV.parent}:/usr/bin:/bin"
        done = run("test", project, PATH=path, DUMMY_INSTANCE_IP="http://127.0.0.1:1")
        assert done.returncode == 7, done.stderr
        assert done.stdout.splitlines() == ["hi", str(project), "none"]

    def test_another_script_may_be_given_and_a_signal_counts(self, run: Run, work: Path) -> None:
        project = make(work, "tested")
        assert run("test", project, "--script", "kill -9 $$").returncode == 137

    def test_without_a_script_it_says_so(self, run: Run, work: Path) -> None:
        done = run("test", make(work, "tested", testConfig={"script": ""}))
        assert done.returncode == 1
        assert done.stderr.startswith(
            "aenv: config.json of tested@1.0.0 has no testConfig.script, and the project"
        )

    def test_an_environment_that_does_not_start_is_a_failure(self, run: Run, work: Path) -> None:
        project = make(work, "tested", testConfig={"script": "true"})
        (project / "src" / "environment.py").write_text("import nothing_of_that_name")
        done = run("test", project)
        assert done.returncode == 1
        assert "nothing_of_that_name" in done.stderr
