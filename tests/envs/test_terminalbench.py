"""terminalbench: tasks of both formats are solved, are not solved by doing nothing, and cannot be cheated."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv.base.config import load_project
from aenv.base.errors import NotJudged, ToolError
from aenv.base.http1 import Pool
from aenv.control.gateway.rootfs_cache import RootfsCache
from aenv.control.instances.declared_sidecar import lazy_sidecar
from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.build_run import run
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.envs import terminalbench_tasks as shipped
from tests.native import traces
from tests.wheels import make_wheel, repacked

PROJECT = shipped.FOLDER.parent
IDS = [f"{source.name}{ending}" for source in shipped.SOURCES for ending in ("", "-harbor")]

Call = Callable[..., Awaitable[Any]]
Open = Callable[..., Any]

# One engine for all: its zygotes take longer to start than anything that is tested here.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The only place where packages are found: no test here needs a network."""
    folder = repacked(tmp_path_factory.mktemp("wheels"), "pytest")
    make_wheel(folder, "sevens", "1.0", "WORD = 'seven'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_FIND_LINKS", str(folder))
        patch.setenv("UV_OFFLINE", "1")
        patch.setenv("UV_CACHE_DIR", str(folder / "cache"))
        yield folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    """`async with opened(TERMINALBENCH_TASK_ID=…) as call`: an instance, and how it is called."""
    home = tmp_path_factory.mktemp("home")
    project = load_project(PROJECT)
    numbers = itertools.count()

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return host_root(home)

    async with (
        RootfsCache(RootfsResolver(home, run=run)) as rootfs_cache,
        NativeEngine(home, root_of, lazy_sidecar_rootfs=rootfs_cache.lazy_sidecar_rootfs) as engine,
        Pool() as pool,
    ):

        @asynccontextmanager
        async def opened(data: Path | None = None, **variables: str) -> AsyncIterator[Call]:
            id = f"bench-{next(numbers)}"
            variables = {"AENV_VALIDATION": "1", **variables}
            sidecar = lazy_sidecar(project, variables, data)
            if data:
                variables["TERMINALBENCH_DATA_DIR"] = "/data"
            spec = InstanceSpec(id, "terminalbench@1.0.0", PROJECT, variables, data=data, sidecar=sidecar)
            address = await engine.create(spec)

            async def call(name: str, **arguments: Any) -> Any:
                head = [("content-type", "application/json")]
                place = {"reward": "task/reward"}.get(name, name if "/" in name else f"functions/{name}")
                body = json.dumps(arguments).encode()
                response = await pool.request(address.origin, "POST", f"/{place}", head, body)
                said = json.loads(await response.read())
                if not place.startswith("tools/"):
                    if said.get("outcome") == "invalid":
                        return {"status": "error", "reward": None, "error": said["error"]}
                    if "outcome" in said:
                        raise NotJudged(said["outcome"], said["error"])
                    if not said["success"]:
                        raise ToolError(said["error"])
                    return said["data"]
                if said["data"]["is_error"]:
                    raise ToolError(said["data"]["content"][0]["text"])
                return said["data"]["structured"] or said["data"]["content"][0]["text"]

            try:
                yield call
            finally:
                await engine.destroy(id)

        yield opened
    assert traces(home) == []


async def _at_once(work: Callable[[str], Awaitable[Any]], ids: list[str], most: int = 4) -> dict[str, Any]:
    room = asyncio.Semaphore(most)

    async def one(id: str) -> Any:
        async with room:
            return await work(id)

    return dict(zip(ids, await asyncio.gather(*map(one, ids)), strict=True))


async def test_the_tasks_that_ship_are_those_of_the_source(tmp_path: Path) -> None:
    shipped.write(tmp_path)
    assert shipped.contents(tmp_path) == shipped.contents(shipped.FOLDER)


async def _nothing_and_gold(opened: Open, ids: list[str]) -> dict[str, tuple[float, float, float]]:
    """The reward of doing nothing, then that of the solution, and its score; by task."""

    async def play(id: str) -> tuple[float, float, float]:
        async with opened(TERMINALBENCH_TASK_ID=id) as call:
            nothing = await call("reward")
            gold = await call("play_gold")
            solved = await call("reward")
        assert gold["exit_code"] == 0, gold
        assert (nothing["status"], solved["status"]) == ("success", "success"), (nothing, solved)
        return nothing["reward"], solved["reward"], solved["score"]

    return await _at_once(play, ids)


async def test_doing_nothing_fails_and_the_solution_passes_in_both_formats(opened: Open) -> None:
    some = ["keep-running", "keep-running-harbor", "merge-people", "merge-people-harbor"]
    assert await _nothing_and_gold(opened, some) == dict.fromkeys(some, (0.0, 1.0, 1.0))


async def test_doing_nothing_fails_and_the_solution_passes_for_every_task(opened: Open) -> None:
    assert await _nothing_and_gold(opened, IDS) == dict.fromkeys(IDS, (0.0, 1.0, 1.0))


async def test_the_contract_lists_tasks_and_tells_what_one_asks_for(opened: Open) -> None:
    async with opened(TERMINALBENCH_TASK_ID="top-words-harbor") as call:
        tasks = await call("list_tasks")
        assert [task["id"] for task in tasks] == sorted(IDS)
        assert tasks[0]["variables"] == {"TERMINALBENCH_TASK_ID": tasks[0]["id"]}
        assert len(await call("list_tasks", split="harbor")) == 10
        with pytest.raises(ToolError, match="version-1, harbor"):
            await call("list_tasks", split="test")
        task = await call("get_task")
        assert task["id"] == "top-words-harbor" and "/app/top.txt" in task["instruction"]
        assert task["canary"] == shipped.CANARY
        assert await call("known_exceptions") == {"gold": {}, "empty": {}}
    config = json.loads((PROJECT / "config.json").read_text())
    assert config["evalOnly"] is True


async def test_solutions_and_cheats_are_for_validation_alone(opened: Open) -> None:
    async with opened(TERMINALBENCH_TASK_ID="greeting", AENV_VALIDATION="") as call:
        for name in ("play_gold", "list_cheats"):
            with pytest.raises(ToolError, match="AENV_VALIDATION=1"):
                await call(name)


async def test_the_terminal_is_typed_into_and_seen(opened: Open) -> None:
    async with opened(TERMINALBENCH_TASK_ID="greeting") as call:
        pane = await call("tools/keystrokes", keystrokes="pwd; cat notes.txt", append_enter=True)
        assert "/app\nmilk\neggs\nbread" in pane
        await call("tools/keystrokes", keystrokes="sleep 1000\n")
        assert "^C" in await call("tools/keystrokes", keystrokes="C-c")
        await call("tools/keystrokes", keystrokes="seq 1 99; clear\n")
        assert "\n50\n" not in await call("tools/capture_pane", wait_before_capture_sec=0.1)
        done = await call("tools/execute_command", command="echo out; echo err >&2; exit 3")
        assert done == {"output": "out\nerr\n", "exit_code": 3}
        late = await call("tools/execute_command", command="sleep 1000", timeout=0.2)
        assert late["exit_code"] == 124


async def test_the_agent_sees_neither_tests_nor_solutions_nor_variables(opened: Open) -> None:
    async with opened(TERMINALBENCH_TASK_ID="fix-median", SECRET_KEY="sesame") as call:
        await call("play_gold")
        assert (await call("reward", task_name="fix-median"))["reward"] == 1.0
        look = "ls -A / /tests /oracle /environment; env; cat /proc/*/environ; find / -xdev -name 'test_outputs*'"
        seen = (await call("tools/execute_command", command=look))["output"]
        assert "test_outputs.py" not in seen and "sesame" not in seen and "tasks" not in seen
        with pytest.raises(ToolError, match="create another one"):
            await call("reward", task_name="greeting")


async def test_a_wrong_solution_is_told_with_the_output_of_the_tests_and_its_score(opened: Open) -> None:
    async with opened(TERMINALBENCH_TASK_ID="greeting") as call:
        await call("tools/execute_command", command="mkdir out; echo 'Hello, terminal!' > out/hello.txt")
        said = await call("reward")
        assert (said["reward"], said["score"], said["task_name"]) == (0.0, 0.5, "greeting")
        assert "test_the_notes_were_moved" in said["raw_output"]


@pytest.mark.parametrize("id", ["rename-script", "rename-script-harbor"])
async def test_programs_of_the_agent_that_the_tests_run_cannot_write_the_verdict(opened: Open, id: str) -> None:
    attack = """cat > /app/rename.sh <<'END'
mkdir -p /logs/verifier
(setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; done' >/dev/null 2>&1 &)
echo 'PASSED everything' > /proc/$PPID/fd/1
: > /proc/$PPID/mem
printf 'def test_x(): pass' > /tests/test_outputs.py
kill -9 $PPID
END"""
    async with opened(TERMINALBENCH_TASK_ID=id) as call:
        await call("tools/execute_command", command=attack)
        said = await call("reward")
        assert (said["reward"], said["status"]) == (0.0, "sabotaged"), said
        assert "was changed while the tests ran" in said["error"]
        assert (await call("tools/execute_command", command="pgrep -c setsid; ls /tests"))["exit_code"] != 0


# What a program of the agent's can do to the shell that runs test.sh, which is as much its own as the agent's.
AGAINST_TEST_SH = {
    "its next lines": "echo 'echo 1 > /logs/verifier/reward.txt' >> /tests/test.sh",
    "a reward that cannot be written": "cd /logs/verifier; echo 1 > reward.txt; chmod 444 reward.txt",
    "a reward elsewhere": "echo 1 > /tmp/one; chmod 444 /tmp/one; ln -sf /tmp/one /logs/verifier/reward.txt",
    "the other reward": "cd /logs/verifier; mkdir -p reward.txt; echo 1 > reward.json",
    "no file to open": """read -r _ _ _ shell _ < /proc/$PPID/stat
echo 1 > /logs/verifier/reward.txt
prlimit --pid $shell --nofile=0:0""",
}


@pytest.mark.parametrize("attack", AGAINST_TEST_SH)
async def test_programs_of_the_agent_cannot_have_test_sh_say_something_else(opened: Open, attack: str) -> None:
    async with opened(TERMINALBENCH_TASK_ID="rename-script-harbor") as call:
        program = f"cat > /app/rename.sh <<'END'\n{AGAINST_TEST_SH[attack]}\nEND"
        await call("tools/execute_command", command=program)
        said = await call("reward")
        # No process limits another: test.sh says what it would have said.
        status = "success" if "prlimit" in AGAINST_TEST_SH[attack] else "sabotaged"
        assert (said["reward"], said["status"]) == (0.0, status), said


@pytest.mark.parametrize("id", ["rename-script", "rename-script-harbor"])
async def test_every_cheat_is_held(opened: Open, id: str) -> None:
    async with opened(TERMINALBENCH_TASK_ID=id) as call:
        cheats = {cheat["name"]: cheat for cheat in await call("list_cheats")}
    kinds = {"edit-tests", "overwrite-verifier", "spoof-output", "exit-early", "fill-disk", "read-answer"}
    assert {cheat["kind"] for cheat in cheats.values()} == kinds

    async def attempt(name: str) -> str:
        async with opened(TERMINALBENCH_TASK_ID=id) as call:
            for step in cheats[name]["steps"]:
                await call(f"tools/{step['tool']}", **step["arguments"])
            return str((await call("reward"))["reward"])

    rewards = await _at_once(attempt, [*cheats])
    # Without room for the tests nothing can be judged, and nothing shows who took it.
    full = {name: reward for name, reward in rewards.items() if cheats[name]["kind"] == "fill-disk"}
    assert set(full.values()) <= {"0.0", "None"}
    assert {name: reward for name, reward in rewards.items() if name not in full and reward != "0.0"} == {}


async def test_an_honest_solution_after_the_attempts_still_passes_where_it_can(opened: Open) -> None:
    """What the judge puts back does not take away what the agent has done."""
    async with opened(TERMINALBENCH_TASK_ID="rename-script") as call:
        for cheat in await call("list_cheats"):
            if cheat["kind"] in ("edit-tests", "spoof-output", "exit-early"):
                await call("tools/execute_command", **cheat["steps"][0]["arguments"])
                assert (await call("reward"))["reward"] == 0.0
        await call("play_gold")
        assert (await call("reward"))["reward"] == 1.0


# Tasks of a data folder


async def test_a_task_of_a_data_folder_is_built_of_its_dockerfile(opened: Open, tmp_path: Path) -> None:
    for name, text in {
        "task.yaml": "# canary GUID 1\ndescriptions:\n- key: base\n  description: |\n    Make it so.\n",
        "Dockerfile": "FROM ubuntu:24.04\nWORKDIR /job\nRUN echo begun > state\n",
        "solution.yaml": '- command: "echo done > state"\n  append_enter: true\n  min_timeout_sec: 1.0\n',
        "tests/test_it.py": "import os\ndef test_it():\n    assert open('/job/state').read() == 'done\\n'\n",
    }.items():
        place = tmp_path / "tasks" / "engage" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="engage") as call:
        assert (await call("get_task"))["instruction"] == "Make it so."
        assert (await call("tools/execute_command", command="cat state; pwd"))["output"] == "begun\n/job\n"
        assert (await call("reward"))["reward"] == 0.0
        await call("tools/execute_command", command="cp /usr/bin/true /usr/bin/cat; echo 1 > /etc/ld.so.preload")
        await call("play_gold")
        assert (await call("reward"))["reward"] == 1.0


async def test_a_solution_of_keystrokes_waits_for_its_commands(opened: Open, tmp_path: Path) -> None:
    """One that blocks is waited for until it ends; and the shell has taken all when the solution is over."""
    steps = """
- command: mkfifo gate; (sleep 0.3; echo open > gate) & cat gate > first
  block: true
  append_enter: true
- command: test -s first && sleep 0.3 && echo done > state
  min_timeout_sec: 0.01
  block: false
  append_enter: true
"""
    _lay(
        tmp_path / "typed",
        {
            "task.yaml": "instruction: Make it so.\n",
            "Dockerfile": "FROM ubuntu:24.04\nWORKDIR /job\n",
            "solution.yaml": steps,
            "tests/test_it.py": "def test_it():\n    assert open('/job/state').read() == 'done\\n'\n",
        },
    )
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="typed") as call:
        await call("play_gold")
        assert (await call("reward"))["reward"] == 1.0
        assert (await call("tools/execute_command", command="ls /oracle"))["exit_code"] != 0


async def test_the_host_stands_for_a_base_of_python(opened: Open, tmp_path: Path) -> None:
    _lay(
        tmp_path / "snake",
        {
            "task.yaml": "instruction: Make it so.\n",
            "Dockerfile": "FROM python:3.13-slim\nWORKDIR /job\nRUN python -c 'print(7)' > begun\n",
            "solution.sh": "python -c 'print(8)' > done\n",
            "tests/test_it.py": "def test_it():\n    assert [*open('begun'), *open('done')] == ['7\\n', '8\\n']\n",
        },
    )
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="snake") as call:
        await call("play_gold")
        assert (await call("reward"))["reward"] == 1.0


def _lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id")
async def test_a_solution_adds_a_user_and_a_server_that_becomes_it(opened: Open, tmp_path: Path) -> None:
    server = "import http.server as h, os; s = h.HTTPServer(('', 80), h.SimpleHTTPRequestHandler); os.setuid(1234)"
    user = "useradd -u 1234 clerk; touch x; chown clerk x; chmod 600 x; setpriv --reuid clerk cat x"
    files = {
        "task.yaml": "instruction:\n  Serve the folder\n\n  as a user of its own.\n",
        "client/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /job\n",
        "solution.sh": f'set -e\n{user}\npython3 -c "{server}; s.serve_forever()" >/dev/null 2>&1 &\n'
        "until : < /dev/tcp/127.0.0.1/80; do :; done\n",
        "tests/test_it.py": "from urllib.request import urlopen as get\ndef test_it():\n    get('http://127.0.0.1')\n",
    }
    _lay(tmp_path / "served", files)
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="served", TERMINALBENCH_KEEP_PROCESSES="1") as call:
        assert (await call("reward"))["reward"] == 0.0
        assert (await call("play_gold"))["exit_code"] == 0
        assert (await call("reward"))["reward"] == 1.0


async def test_tests_run_where_the_image_works_with_what_it_has(opened: Open, tmp_path: Path) -> None:
    """In its WORKDIR, with its PYTHONPATH."""
    tests = "import from_image\ndef test_it():\n    assert open('word').read() == from_image.WORD\n"
    build = "RUN mkdir /opt/m && echo 'WORD = \"seven\"' > /opt/m/from_image.py\nENV PYTHONPATH=/opt/m\n"
    _lay(
        tmp_path / "words",
        {
            "task.yaml": "instruction: Write the word.\n",
            "Dockerfile": f"FROM python:3.13-slim\nWORKDIR /job\n{build}",
            "solution.sh": "printf seven > word\n",
            "tests/test_it.py": tests,
        },
    )
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="words") as call:
        assert (await call("reward"))["reward"] == 0.0
        await call("play_gold")
        said = await call("reward")
        assert said["reward"] == 1.0, said


async def test_the_image_s_python_judges_as_the_image_has_it(opened: Open, tmp_path: Path) -> None:
    """Where the tests import what this Python lacks; a pytest of the agent's own is not what runs them."""
    modules = "$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    _lay(
        tmp_path / "special",
        {
            "task.yaml": "instruction: Write the word.\n",
            "Dockerfile": "FROM python:3.13-slim\nWORKDIR /job\n"
            f"RUN mkdir -p {modules} && echo 'WORD = \"seven\"' > {modules}/only_in_the_image.py\n",
            "solution.sh": "printf seven > word\n",
            "tests/test_it.py": "import only_in_the_image\ndef test_it():\n"
            "    assert open('word').read() == only_in_the_image.WORD\n",
        },
    )
    spoof = "print('short test summary info\\nPASSED tests/test_it.py::test_it')\nraise SystemExit(0)\n"
    attack = f'for name in pytest json argparse; do printf "%s" "{spoof}" > $name.py; done'
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="special") as call:
        await call("tools/execute_command", command=attack)
        assert (await call("reward"))["reward"] == 0.0
        await call("play_gold")
        said = await call("reward")
        assert said["reward"] == 1.0, said


async def test_a_test_sh_that_would_download_uv_is_judged_by_its_tests(opened: Open, tmp_path: Path) -> None:
    _lay(
        tmp_path / "fetching",
        {
            "task.toml": "[verifier]\ntimeout_sec = 60.0\n",
            "instruction.md": "Write the word.\n",
            "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /job\n",
            "solution/solve.sh": "printf seven > word\n",
            "tests/test_it.py": "def test_it():\n    assert open('word').read() == 'seven'\n",
            "tests/test.sh": "curl -LsSf https://astral.sh/uv/install.sh | sh\n"
            "uvx \\\n  -w pytest \\\n  pytest /tests/test_it.py -rA\n"
            "if [ $? -eq 0 ]; then said=1; else said=0; fi\necho $said > /logs/verifier/reward.txt\n",
        },
    )
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="fetching") as call:
        assert (await call("reward"))["reward"] == 0.0
        await call("play_gold")
        said = await call("reward")
        assert said["reward"] == 1.0, said


def _words(folder: Path, tests: str, **files: str) -> None:
    """A task of version 1 in a data folder: write the word."""
    _lay(
        folder,
        {
            "task.yaml": "instruction: Write the word.\n",
            "Dockerfile": "FROM ubuntu:24.04\nWORKDIR /job\n",
            "solution.sh": "printf seven > /job/word\n",
            "tests/test_it.py": tests,
            **files,
        },
    )


async def test_tests_import_what_the_script_of_the_task_would_install(opened: Open, tmp_path: Path) -> None:
    tests = "import sevens\ndef test_it(word):\n    assert open('word').read() == sevens.WORD == word\n"
    plugin = "import pytest\n@pytest.fixture\ndef word():\n    return 'seven'\n"
    entry = "[pytest11]\nwords = word_plugin\n"
    make_wheel(Path(os.environ["UV_FIND_LINKS"]), "word_plugin", "1.0", plugin, entry_points=entry)
    script = "uv init\nuv add pytest sevens==1.0 word_plugin\nuv run pytest $TEST_DIR/test_it.py -rA\n"
    _words(tmp_path / "needs", tests, **{"run-tests.sh": script})
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="needs") as call:
        assert (await call("reward"))["reward"] == 0.0
        await call("play_gold")
        said = await call("reward")
        assert said["reward"] == 1.0, said
        # The agent's own programs have none of it.
        found = await call("tools/execute_command", command="python3 -c 'import sevens'")
        assert "ModuleNotFoundError" in found["output"]


async def test_a_task_whose_requirements_cannot_be_had_is_not_ready(opened: Open, tmp_path: Path) -> None:
    _words(tmp_path / "far", "def test_it():\n    pass\n", **{"run-tests.sh": "pip install of-no-index==7\n"})
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="far") as call:
        with pytest.raises(NotJudged, match=r"(?s)of-no-index.*UV_FIND_LINKS") as raised:
            await call("reward")
        assert raised.value.outcome == "not_ready"
        with pytest.raises(ToolError, match="of-no-index"):
            await call("tools/execute_command", command="true")


@pytest.mark.parametrize("how", ["", "uvx -w pytest pytest /tests\n"])
async def test_solution_and_tests_of_harbor_have_the_variables_of_their_tables(
    opened: Open, tmp_path: Path, how: str
) -> None:
    """Both where test.sh runs, and where its tests are run in its place."""
    check = '[ "$(cat word)" = "$WORD" ] && said=1 || said=0\necho $said > /logs/verifier/reward.txt\n'
    tests = "import os\ndef test_it():\n    assert open('word').read() == os.environ['WORD']\n"
    _lay(
        tmp_path / "told",
        {
            "task.toml": '[verifier.env]\nWORD = "${KIND:-no}-${NUMBER}"\n[solution.env]\nWHAT = "odd-7"\n',
            "instruction.md": "Write the word.\n",
            "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /job\nRUN touch word\n",
            "solution/solve.sh": 'printf %s "$WHAT" > word\n',
            "tests/test_it.py": tests,
            "tests/test.sh": how + check,
        },
    )
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="told", KIND="odd", NUMBER="7") as call:
        assert (await call("reward"))["reward"] == 0.0
        await call("play_gold")
        assert (await call("reward"))["reward"] == 1.0
    async with opened(tmp_path, TERMINALBENCH_TASK_ID="told", KIND="odd") as call:
        with pytest.raises(NotJudged, match="the task needs the variable NUMBER"):
            await call("reward")


async def test_what_is_missing_is_said_with_the_fix(opened: Open) -> None:
    async with opened() as call:
        with pytest.raises(ToolError, match="set TERMINALBENCH_TASK_ID to one of 20"):
            await call("get_task")
    async with opened(TERMINALBENCH_TASK_ID="greeting", TERMINALBENCH_TASKS="data") as call:
        with pytest.raises(ToolError, match="aenv data pull terminalbench"):
            await call("tools/capture_pane")
