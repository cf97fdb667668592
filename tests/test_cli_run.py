"""`aenv run`, `call`, `serve` and `demo`: servers as child processes, on free ports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aenv import Environment
from aenv.base import mcp
from aenv.cli import inspector, scaffold
from aenv.isolation.sandbox import probe
from tests import browsers, venvs
from tests.command_line import Server, aenv, environ, serving
from tests.system import require

RUN = ("run", "--port", "0", "--control-port", "0")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new environment, from the default template."""
    scaffold.write(tmp_path / "my-env", scaffold.render("default", "my-env", "1.0.0"))
    return tmp_path / "my-env"


@pytest.fixture
def url(project: Path) -> Iterator[str]:
    """The address of a runtime that serves the project."""
    with serving(*RUN, cwd=project) as server:
        yield address(server)


def address(server: Server) -> str:
    return server.until("export DUMMY_INSTANCE_IP=")[-1].partition("=")[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class TestRun:
    def test_it_prints_what_can_be_called_and_the_addresses_on_stdout(self, project: Path) -> None:
        control = free_port()
        with serving("run", "--port", "0", "--control-port", str(control), cwd=project) as server:
            lines = server.until("export DUMMY_INSTANCE_IP=")
        url = lines[-1].partition("=")[2]
        assert lines == [
            "TOOL                DESCRIPTION",
            "my_custom_echo_env  Return the content unchanged.",
            "",
            "FUNCTION    DESCRIPTION",
            "word_count  Count words. Programs that drive an episode call functions; agents do not.",
            "",
            "REWARD            DESCRIPTION",
            "my_custom_reward  Judge an episode. Return a number, or a dict that explains it too.",
            "",
            f"mcp      {url}/mcp",
            f"health   {url}/health",
            f"control  http://127.0.0.1:{control}",
            "",
            f"export DUMMY_INSTANCE_IP={url}",
        ]

    @pytest.mark.slow
    def test_the_variables_and_the_call_timeout_of_config_json_count(self, project: Path) -> None:
        config = json.loads((project / "config.json").read_text())
        config["deployConfig"] |= {
            "environmentVariables": {"COLOUR": "red", "HOME": "not this"},
            "callTimeout": "50ms",
        }
        (project / "config.json").write_text(json.dumps(config))
        (project / "src" / "custom_env.py").write_text(
            "import os, threading\nfrom aenv import register_tool\n"
            "@register_tool\ndef seen() -> list[str]: return [os.environ['COLOUR'], os.environ['HOME']]\n"
            "@register_tool\ndef hang(): threading.Event().wait()\n"
        )
        with serving(*RUN, cwd=project) as server:
            url = address(server)
            assert json.loads(aenv("call", "seen", "--url", url).stdout) == ["red", environ()["HOME"]]
            assert "did not finish within 0.05 s" in aenv("call", "hang", "--url", url).stdout

    async def test_the_line_to_export_makes_the_sdk_use_it(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DUMMY_INSTANCE_IP", url)
        async with Environment("my-env@1.0.0") as env:
            assert (await env.call_tool("my_custom_echo_env", {"content": "hi"})).text == '{"result":"hi"}'

    async def test_the_control_port_serves_clients_of_a_gateway(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DUMMY_INSTANCE_IP", raising=False)
        control = free_port()
        with serving("run", "--port", "0", "--control-port", str(control), cwd=project) as server:
            address(server)
            async with Environment("my-env@1.0.0", aenv_url=f"http://127.0.0.1:{control}") as env:
                assert await env.call_function("word_count", {"text": "a b"}) == 2

    @pytest.mark.slow
    @pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_stops_it_and_the_runtime_in_order(
        self, project: Path, signal_number: signal.Signals
    ) -> None:
        with serving(*RUN, cwd=project) as server:
            address(server)
            children = psutil.Process(server.process.pid).children(recursive=True)
            assert children
            assert server.stop(signal_number) == 0
            assert not [child for child in children if child.is_running()]
            assert server.process.stderr
            assert "Traceback" not in server.process.stderr.read()

    @pytest.mark.slow
    def test_killing_it_leaves_no_runtime_behind(self, project: Path) -> None:
        with serving(*RUN, cwd=project) as server:
            address(server)
            children = psutil.Process(server.process.pid).children(recursive=True)
            assert children
            server.process.kill()
            assert psutil.wait_procs(children, timeout=20)[1] == []

    def test_quiet_prints_nothing(self, project: Path) -> None:
        port = free_port()
        with serving("run", "--quiet", "--port", str(port), "--control-port", "0", cwd=project) as server:
            # It says nothing when it is ready, so it is asked until it answers.
            while aenv("call", "my_custom_echo_env", "content=x", "--url", f"127.0.0.1:{port}").returncode:
                assert server.process.poll() is None
            assert server.stop() == 0
            assert server.process.stdout
            assert server.process.stderr
            assert (server.process.stdout.read(), server.process.stderr.read()) == ("", "")

    def test_the_path_is_below_the_work_directory(self, project: Path) -> None:
        with serving(*RUN, "--work-dir", project, "src/custom_env.py") as server:
            assert "my_custom_echo_env" in server.until("my_custom_echo_env")[-1]

    @pytest.mark.slow
    def test_what_follows_the_dashes_is_the_environments(self, project: Path) -> None:
        (project / "src" / "more.py").write_text(
            "import sys\nfrom aenv import register_tool\n\n"
            "@register_tool\ndef arguments() -> list[str]:\n    return sys.argv[1:]\n"
        )
        with serving(*RUN, "--", "--seed", "7", cwd=project) as server:
            done = aenv("call", "arguments", "--url", address(server))
        assert json.loads(done.stdout) == ["--seed", "7"]

    def test_code_that_fails_to_load_ends_it_with_its_traceback(self, project: Path) -> None:
        (project / "src" / "broken.py").write_text("import nowhere_to_be_found\n")
        done = aenv(*RUN, cwd=project)
        assert done.returncode == 1
        assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'" in done.stderr
        assert "broken.py" in done.stderr
        assert "aenv/cli" not in done.stderr

    def test_lenient_leaves_out_what_fails_to_load(self, project: Path) -> None:
        (project / "src" / "broken.py").write_text("import nowhere_to_be_found\n")
        with serving(*RUN, "--lenient", cwd=project) as server:
            assert any("my_custom_echo_env" in line for line in server.until("export DUMMY_INSTANCE_IP="))

    @pytest.mark.slow
    @pytest.mark.parametrize("flag", ["--port", "--control-port"])
    def test_a_port_in_use_is_one_line_with_the_fix(self, project: Path, flag: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            done = aenv(*RUN, flag, port, cwd=project)
        assert done.returncode == 1
        first, second = done.stderr.splitlines()
        assert first == f"aenv: cannot listen on 127.0.0.1:{port}: address already in use"
        assert second.startswith(f"try: {flag}")

    @pytest.mark.slow
    def test_a_runtime_that_dies_is_reported(self, project: Path) -> None:
        (project / "src" / "more.py").write_text(
            "import os, signal\nfrom aenv import register_tool\n\n"
            "@register_tool\ndef die() -> None:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        with serving(*RUN, cwd=project) as server:
            aenv("call", "die", "--url", address(server))
            code, stderr = server.wait()
        assert code == 1
        assert stderr.splitlines()[-1] == f"aenv: the runtime of '{project}' ended with SIGKILL"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("template", "call", "answer"),
        [
            ("agent", ("chat", "message=Is Emma here?"), "Emma: shelf A1"),
            ("benchmark", ("read_question",), "two apples"),
            ("gym", ("step", "direction=up"), '"done":false'),
            ("service", ("list_notes",), "[]"),
        ],
    )
    def test_every_template_can_be_run(
        self, tmp_path: Path, template: str, call: tuple[str, ...], answer: str
    ) -> None:
        scaffold.write(tmp_path, scaffold.render(template, "my-env", "1.0.0"))
        with serving(*RUN, cwd=tmp_path) as server:
            done = aenv("call", *call, "--url", address(server))
        assert done.returncode == 0, done.stderr
        assert answer in done.stdout

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_the_fastmcp_template_can_be_run(self, tmp_path: Path) -> None:
        python = venvs.judge("fastmcp2")
        packages = next(python.parent.parent.glob("lib/python*/site-packages"))
        scaffold.write(tmp_path, scaffold.render("fastmcp", "my-env", "1.0.0"))
        with serving(*RUN, cwd=tmp_path, env=environ(PYTHONPATH=str(packages))) as server:
            done = aenv("call", "add", "a=2", "b=3", "--url", address(server))
        assert (done.returncode, float(done.stdout)) == (0, 5.0)


class TestReload:
    @pytest.mark.slow
    def test_a_change_restarts_the_runtime_on_the_same_port(self, project: Path) -> None:
        source = project / "src" / "custom_env.py"
        with serving(*RUN, "--reload", cwd=project) as server:
            url = address(server)
            source.write_text(source.read_text().replace('"result"', '"changed"'))
            assert address(server) == url
            done = aenv("call", "my_custom_echo_env", "content=x", "--url", url)
            assert done.stdout == '{"changed":"x"}\n'
            assert server.stop() == 0

    @pytest.mark.slow
    def test_a_change_of_the_configuration_counts_too(self, project: Path) -> None:
        with serving(*RUN, "--reload", cwd=project) as server:
            url = address(server)
            config = project / "config.json"
            config.write_text(config.read_text().replace('"linux"', '"posix"'))
            assert address(server) == url

    @pytest.mark.slow
    def test_a_new_file_in_a_new_folder_is_noticed(self, project: Path) -> None:
        with serving(*RUN, "--reload", cwd=project) as server:
            address(server)
            (project / "src" / "more").mkdir()
            (project / "src" / "more" / "tools.py").write_text(
                "from aenv import register_tool\n\n@register_tool\ndef another() -> int:\n    return 1\n"
            )
            lines = server.until("another")
            assert lines[-1].startswith("another")

    @pytest.mark.slow
    def test_broken_code_is_waited_out(self, project: Path) -> None:
        source = project / "src" / "custom_env.py"
        good = source.read_text()
        with serving(*RUN, "--reload", cwd=project) as server:
            url = address(server)
            source.write_text("def broken(:\n")
            assert any("SyntaxError" in line for line in server.until("waiting for a change", on="stderr"))
            source.write_text(good)
            assert address(server) == url
            assert server.stop(signal.SIGINT) == 0

    @pytest.mark.slow
    def test_files_that_are_no_source_change_nothing(self, project: Path) -> None:
        source = project / "src" / "custom_env.py"
        with serving(*RUN, "--reload", cwd=project) as server:
            url = address(server)
            (project / "notes.txt").write_text("one")
            (project / "src" / ".hidden.py").write_text("two")
            # A call takes longer than a change needs to settle: a restart for those two would be one of its own.
            assert aenv("call", "my_custom_echo_env", "content=x", "--url", url).returncode == 0
            source.write_text(source.read_text().replace("my_custom_echo_env", "another"))
            server.until("another")
            server.stop()
            assert server.process.stderr
            assert server.process.stderr.read().count("the source has changed") == 1


class TestStdio:
    def test_nothing_but_the_protocol_is_on_stdout(self, project: Path) -> None:
        (project / "src" / "more.py").write_text(
            "import os\nfrom aenv import register_tool\n\nprint('loading', flush=True)\n\n"
            "@register_tool\ndef noisy() -> str:\n    print('printed')\n    os.system('echo shouted')\n"
            "    return 'said'\n"
        )
        with serving("run", "--stdio", cwd=project) as server:
            hello = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }
            messages = [
                mcp.request(1, "initialize", hello),
                mcp.notification("notifications/initialized", {}),
                mcp.request(2, "tools/call", {"name": "noisy", "arguments": {}}),
            ]
            assert server.process.stdin
            assert server.process.stdout
            server.process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
            server.process.stdin.flush()
            replies = [json.loads(server.process.stdout.readline()) for _ in range(2)]
            assert replies[0]["result"]["serverInfo"]["name"] == "my-env"
            assert replies[1]["result"]["content"] == [{"type": "text", "text": "said"}]
            rest, errors = server.process.communicate()
        assert rest == ""
        assert {"loading", "printed", "shouted"} <= set(errors.split())
        assert server.process.returncode == 0


class TestInspector:
    @pytest.mark.slow
    def test_it_is_started_through_npx_and_ends_with_us(self, project: Path, tmp_path: Path) -> None:
        npx = tmp_path / "npx"
        # As the real one does: the server is a child that no signal is passed on to.
        npx.write_text(
            f'#!/bin/sh\necho "$HOST $CLIENT_PORT $*" > {tmp_path}/asked\ntail -f /dev/null &\n'
            'echo "open http://127.0.0.1:6274?API_TOKEN=5ec7e7 now"\nwait\n'
        )
        npx.chmod(0o755)
        variables = environ(PATH=f"{tmp_path}:{os.environ['PATH']}")
        with serving(*RUN, "--inspector-port", "6274", cwd=project, env=variables) as server:
            url = address(server)
            lines = server.until("TOKEN", on="stderr")
            assert lines[-1] == "inspector  http://127.0.0.1:6274?API_TOKEN=5ec7e7"
            asked = (tmp_path / "asked").read_text().split()
            assert asked[:2] == ["127.0.0.1", "6274"]
            assert asked[-4:] == ["--transport", "http", "--server-url", f"{url}/mcp"]
            children = psutil.Process(server.process.pid).children(recursive=True)
            assert "tail" in [child.name() for child in children]
            assert server.stop() == 0
            assert psutil.wait_procs(children, timeout=10)[1] == []

    @pytest.mark.slow
    def test_one_that_does_not_start_is_told_in_one_line_and_the_environment_is_served(
        self, project: Path, tmp_path: Path
    ) -> None:
        npx = tmp_path / "npx"
        npx.write_text("#!/bin/sh\nprintf 'npm error code E404\\nnpm error not found\\n' >&2\nexit 1\n")
        npx.chmod(0o755)
        variables = environ(PATH=f"{tmp_path}:{os.environ['PATH']}")
        with serving(*RUN, "--inspector-port", "6274", cwd=project, env=variables) as server:
            told = server.until("ended", on="stderr")[-1]
            assert told == "inspector  ended with exit code 1: not found; the environment is served without it"
            assert aenv("call", "my_custom_echo_env", "content=x", "--url", address(server)).returncode == 0

    @pytest.mark.long  # a program of others, which a registry gives in its newest version
    @pytest.mark.timeout(300)
    async def test_the_real_one_shows_the_tools_of_the_environment(self, project: Path) -> None:
        npx = require("npx", "npm")
        fetched = [npx, "--yes", "--prefer-offline", inspector.PACKAGE, "--version"]
        done = await asyncio.to_thread(subprocess.run, fetched, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"npx cannot fetch MCP Inspector: {done.stderr.strip()[-300:]}")
        variables = environ(MCP_AUTO_OPEN_ENABLED="false")
        with serving(*RUN, "--inspector-port", "6474", cwd=project, env=variables) as server:
            line = (await asyncio.to_thread(server.until, "TOKEN", on="stderr"))[-1]
            async with browsers.chromium() as chromium, browsers.window(chromium) as window:
                window.expected.append("ERR_NAME_NOT_RESOLVED|ERR_INTERNET")  # a picture of another host
                await window.page.goto(line.split()[-1])
                await window.page.get_by_role("switch").click(force=True)
                await window.page.get_by_text("Tools", exact=True).first.click()
                await window.page.get_by_role("button", name="my_custom_echo_env").wait_for()

    def test_without_npx_it_says_what_is_missing(self, project: Path, tmp_path: Path) -> None:
        done = aenv(*RUN, "--inspector-port", "6274", cwd=project, env=environ(PATH=str(tmp_path)))
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == "aenv: MCP Inspector needs npx, which is not installed"


class TestCall:
    def test_a_text_parameter_keeps_its_text(self, url: str) -> None:
        assert aenv("call", "my_custom_echo_env", "content=123", "--url", url).stdout == '{"result":"123"}\n'

    @pytest.mark.slow
    def test_json_prints_the_whole_result(self, url: str) -> None:
        done = aenv("call", "my_custom_echo_env", "--args", '{"content": "x"}', "--json", "--url", url)
        assert json.loads(done.stdout) == {
            "content": [{"type": "text", "text": '{"result":"x"}'}],
            "is_error": False,
            "structured": {"result": "x"},
        }

    @pytest.mark.slow
    def test_a_function_and_a_reward_can_be_called(self, url: str) -> None:
        assert aenv("call", "word_count", "text=1 2", "--function", "--url", url).stdout == "2\n"
        done = aenv("call", "my_custom_reward", "task=t", "--reward", "--url", url)
        assert json.loads(done.stdout)["task_name"] == "t"

    @pytest.mark.slow
    def test_a_tool_that_fails_exits_with_1(self, url: str) -> None:
        done = aenv("call", "my_custom_echo_env", "--url", url)
        assert done.returncode == 1
        assert done.stdout == "bad arguments for 'my_custom_echo_env': 'content' is required\n"

    @pytest.mark.slow
    def test_a_function_that_is_not_there_is_one_line(self, url: str) -> None:
        done = aenv("call", "nope", "--function", "--url", url)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.slow
    def test_the_full_name_of_a_tool_works_too(self, url: str) -> None:
        done = aenv("call", "my-env@1.0.0/my_custom_echo_env", "content=1", "--url", url)
        assert done.stdout == '{"result":"1"}\n'

    @pytest.mark.slow
    def test_the_variable_gives_the_address(self, url: str) -> None:
        done = aenv("call", "my_custom_echo_env", "content=x", env=environ(DUMMY_INSTANCE_IP=url))
        assert done.stdout == '{"result":"x"}\n'


class TestServe:
    @pytest.mark.slow
    async def test_an_instance_can_be_created_and_then_called_from_the_shell(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DUMMY_INSTANCE_IP", raising=False)
        ports = ("--port", "0", "--data-port", "0")
        with serving("serve", project, *ports, "--home", tmp_path / "home") as server:
            talk = server.until("export", on="stderr")
            assert "engine   process: does not isolate instances, so serve only code that you trust" in talk
            gateway = next(line for line in talk if line.startswith("export")).partition("=")[2]
            assert {f"control  {gateway}", f"pages    {gateway}/ in a browser"} <= {*talk}
            async with Environment("my-env", aenv_url=gateway) as env:
                variables = environ(AENV_SYSTEM_URL=gateway, DUMMY_INSTANCE_IP="127.0.0.1:1")
                call = ("call", "my_custom_echo_env", "content=x", "--instance", str(env.instance_id))
                assert aenv(*call, env=variables).stdout == '{"result":"x"}\n'
                # The call has not ended the instance.
                assert await env.call_function("word_count", {"text": "a"}) == 1
            assert server.stop(signal.SIGINT) == 0
            assert server.process.stdout
            assert server.process.stdout.read() == ""

    @pytest.mark.slow
    def test_the_native_engine_says_what_isolates(self, tmp_path: Path) -> None:
        ports = ("--port", "0", "--data-port", "0", "--engine", "native")
        with serving("serve", *ports, "--home", tmp_path / "home") as server:
            talk = server.until("export", on="stderr")
        (line,) = (line for line in talk if line.startswith("engine"))
        missing = probe.missing_isolation()
        assert (missing or "engine   native: every instance has its own namespaces") in line

    @pytest.mark.slow
    def test_the_address_printed_for_every_address_works(self, tmp_path: Path) -> None:
        ports = ("--host", "0.0.0.0", "--insecure", "--port", "0", "--data-port", "0")
        with serving("serve", *ports, "--home", tmp_path / "home") as server:
            talk = server.until("export", on="stderr")
            gateway = talk[-1].partition("=")[2]
            assert "0.0.0.0" not in "".join(talk)
            listed = aenv("instances", "--json", env=environ(AENV_SYSTEM_URL=gateway, AENV_HOME=str(tmp_path)))
        assert json.loads(listed.stdout) == []

    @pytest.mark.slow
    def test_a_port_in_use_is_one_line(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            done = aenv("serve", "--port", port, "--data-port", "0", "--home", tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("aenv: cannot listen on")
        assert "Traceback" not in done.stderr


class TestDemo:
    @pytest.mark.slow
    def test_it_shows_every_step_with_its_time_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        done = aenv("demo", env=environ(TMPDIR=str(tmp_path), HOME=str(tmp_path), DUMMY_INSTANCE_IP="127.0.0.1:1"))
        assert done.returncode == 0, done.stderr
        *steps, last = done.stdout.splitlines()
        shown = ["project", "first instance", "another instance", "listed", "a tool", "a function", "a reward"]
        shown += ["attacked", "ended"]
        if not probe.missing_isolation():
            shown += ["native engine", "No such file or directory: contained", "from the pool"]
            assert any("isolation: user namespace" in step for step in steps)
        for what in shown:
            line = next(step for step in steps if what in step)
            assert " ms  " in line
        assert last == "done; nothing is left behind"
        assert [line.split()[:2] for line in done.stderr.splitlines()[-3:]] == [
            ["aenv", "init"],
            ["aenv", "run"],
            ["aenv", "eval"],
        ]
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupt_leaves_nothing_behind_either(self, tmp_path: Path) -> None:
        with serving("demo", env=environ(TMPDIR=str(tmp_path), HOME=str(tmp_path))) as server:
            server.until("imported")
            children = psutil.Process(server.process.pid).children(recursive=True)
            assert server.stop(signal.SIGINT) == 130
            assert not [child for child in children if child.is_running()]
            assert server.process.stderr
            assert "Traceback" not in server.process.stderr.read()
        assert list(tmp_path.iterdir()) == []
