"""SWE-bench as an agent and a trainer meet it: an instance of two parts on the native engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv.isolation.rootfs.images import Images
from tests import saved_images
from tests.envs.shells import post, result_of
from tests.envs.swebench_data import GOLD, ID, PROJECT, RECORD, SDIST, make_data
from tests.gateways import Gateway, running_gateway

# isort: split
import swebench_bases as bases
import swebench_sites as sites
from swebench_records import record_of

# One gateway for all: its zygotes take longer to start than most of what is tested here.
# A verdict runs the tests of a project three times or more.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(120)]

CONDA = "opt/miniconda3/envs/testbed"
IMAGE = "swebench/sweb.eval.x86_64.pytoolz_1776_toolz-1:latest"


class Instance:
    """An instance, as both sides see it."""

    def __init__(self, gateway: Gateway, id: str) -> None:
        self._gateway = gateway
        self.id = id

    async def tool(self, name: str, **arguments: Any) -> Any:
        """What a tool gives; an AssertionError with its message when it fails."""
        said = await result_of(self._gateway, self.id, name, **arguments)
        assert not said["is_error"], said["content"][0]["text"]
        return said["structured"] if said["structured"] is not None else said["content"][0]["text"]

    async def error(self, name: str, **arguments: Any) -> str:
        said = await result_of(self._gateway, self.id, name, **arguments)
        assert said["is_error"], said
        return str(said["content"][0]["text"])

    async def function(self, name: str, **arguments: Any) -> Any:
        return await post(self._gateway, self.id, f"/functions/{name}", **arguments)

    async def reward(self, **arguments: Any) -> dict[str, Any]:
        data: dict[str, Any] = await post(self._gateway, self.id, "/task/reward", **arguments)
        return data

    async def not_judged(self, outcome: str, path: str = "/task/reward", **arguments: Any) -> str:
        """The reason why a reward is no number."""
        target = f"/instances/{self.id}{path}"
        _, reply = await self._gateway.ask("POST", target, arguments, origin=self._gateway.data)
        assert reply["outcome"] == outcome, reply
        return str(reply["error"])

    async def failure(self, path: str, **arguments: Any) -> str:
        target = f"/instances/{self.id}{path}"
        status, reply = await self._gateway.ask("POST", target, arguments, origin=self._gateway.data)
        assert status != 200
        return json.dumps(reply)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    assert request.config.cache is not None
    return make_data(tmp_path_factory.mktemp("swebench") / "data", request.config.cache)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, data: Path) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    # Without the self-check, which would play every task twice more; tests/test_self_check.py is about it.
    settings = {"engine": "native", "data_roots": (data.parent,), "self_check": False}
    async with running_gateway(home, PROJECT, **settings) as running:
        yield running


@contextlib.asynccontextmanager
async def instance(
    gateway: Gateway, data: Path, datasource: str = "", **variables: str
) -> AsyncIterator[Instance]:
    given = {"SWEBENCH_DATA_DIR": str(data), **variables}
    created = await gateway.create(
        "swebench@1.0.0", environment_variables=given, **({"datasource": datasource} if datasource else {})
    )
    try:
        yield Instance(gateway, created["id"])
    finally:
        await gateway.ask("DELETE", f"/env-instance/{created['id']}")


@pytest_asyncio.fixture(loop_scope="module")
async def swe(gateway: Gateway, data: Path) -> AsyncIterator[Instance]:
    async with instance(gateway, data) as one:
        yield one


async def test_an_agent_repairs_the_repository_and_is_rewarded(swe: Instance) -> None:
    task = await swe.function("get_task")
    assert task["instruction"] == RECORD["problem_statement"]
    assert "seq[:0]" not in json.dumps(task)

    before = await swe.tool(
        "bash", command="git status --short; python -m pytest -q toolz/tests/test_itertoolz.py"
    )
    assert before["returncode"] == 0, before
    assert "return seq[-n:]" in await swe.tool("view", path="toolz/itertoolz.py", start=342, end=342)
    assert "itertoolz.py" in await swe.tool("view", path="toolz")
    # The tree as it is counts until something is handed in.
    drops, broken = "return itertools.islice(seq, n, None)", "return []"
    await swe.tool("edit", path="toolz/itertoolz.py", old=drops, new=broken)
    kept = (await swe.reward())["tests"]["PASS_TO_PASS"]
    assert kept["failure"] == ["toolz/tests/test_itertoolz.py::test_drop"]
    await swe.tool("edit", path="toolz/itertoolz.py", old=broken, new=drops)
    await swe.tool("edit", path="toolz/itertoolz.py", old="return seq[-n:]", new="return seq[len(seq) - n:]")
    handed_in = await swe.tool("submit")
    assert handed_in["files"] == ["toolz/itertoolz.py"]
    await swe.tool("bash", command="rm -rf /testbed/toolz /opt/swebench")

    reward = await swe.reward()
    assert reward["resolved"] is True
    assert reward["reward"] == 1.0
    assert reward["variant"] == f"sdist variant: {SDIST}.tar.gz"
    assert reward["tests"]["FAIL_TO_PASS"] == {"success": RECORD["FAIL_TO_PASS"], "failure": []}
    assert {"stdout", "returncode", "stderr"} <= {*reward}


async def test_the_agent_finds_neither_answer_nor_tests_nor_history(swe: Instance) -> None:
    looked = await swe.tool(
        "bash",
        command="ls -A /data /workspace /environment; git log --oneline | wc -l; env; "
        "grep -rl nothing_is_left /testbed /tmp /opt /workspace /var /home /run /srv /mnt /etc 2>/dev/null",
        timeout=60,
    )
    assert "records.jsonl" not in looked["output"]
    assert "SWEBENCH" not in looked["output"]
    assert "nothing_is_left" not in looked["output"]
    assert "\n1\n" in looked["output"]


async def test_nothing_done_is_not_resolved_and_starts_no_sidecar(swe: Instance) -> None:
    reward = await swe.reward()
    assert (reward["resolved"], reward["reward"], reward["returncode"]) == (False, 0.0, 1)
    assert "invalid" not in reward


async def test_a_patch_can_be_judged_by_id_by_record_and_by_json_text(swe: Instance) -> None:
    wrong = {**RECORD, "FAIL_TO_PASS": [], "PASS_TO_PASS": []}  # judged at once
    for given in (wrong, json.dumps(wrong)):
        assert "names no tests" in await swe.not_judged("invalid", instance=given, model_patch=GOLD)
    assert (await swe.reward(instance=ID, model_patch=GOLD, timeout=60))["resolved"] is True
    assert "no instance 'x'" in await swe.failure("/task/reward", instance="x", model_patch="")
    assert "'timeout' is 0" in await swe.failure("/task/reward", model_patch="", timeout=0)
    assert "neither an id nor a record" in await swe.failure("/task/reward", instance="{", model_patch="")


async def test_a_record_of_a_trainers_own_is_judged_on_its_own_base(gateway: Gateway, swe: Instance) -> None:
    assert (await swe.reward(model_patch=""))["resolved"] is False
    for _ in range(2):  # nothing of the first attempt is in the second one's way
        said = await swe.not_judged("not_ready", instance={**RECORD, "sdist": "toolz-9.9"}, model_patch=GOLD)
        assert "no sdist 'toolz-9.9'" in said
    pins = "dependencies:\n- pip:\n  - pytest==1.0\n"
    pinned = {**RECORD, "instance_id": "pytoolz__toolz-2", "environment": pins}
    for _ in range(2):
        assert "pins pytest==1.0" in await swe.not_judged("not_ready", instance=pinned, model_patch=GOLD)
    unseen = {**RECORD, "environment": "dependencies:\n- python=2.1\n"}
    said = await swe.not_judged("not_ready", instance=unseen, model_patch=GOLD)
    assert (
        f"asks for Python 2.1, which this instance does not see; run 'aenv data prepare swebench --instances {ID}'"
        in said
    )


async def test_with_a_mirror_and_wheels_in_the_data_the_reference_solution_is_played_and_resolves(
    gateway: Gateway, data: Path, tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        settings = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "safe.directory=*"]
        command = ["git", *settings, *words]
        return subprocess.run(command, cwd=work, check=True, capture_output=True, text=True).stdout

    work, own = tmp_path / SDIST, data.parent / "mirrored"
    bases.from_sdist(record_of(RECORD), data / "sdists", work)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    git("clone", "-q", "--mirror", ".", str(own / "mirrors" / "pytoolz__toolz.git"))
    shutil.copytree(data / "wheels", own / "wheels")
    commit = git("rev-parse", "HEAD").strip()
    (own / "all.json").write_text(json.dumps([{**RECORD, "sdist": "", "base_commit": commit}]))
    async with instance(gateway, own, SWEBENCH_GIT_DIR="/data/mirrors", AENV_VALIDATION="1") as swe:
        assert (await swe.reward())["resolved"] is False
        played = await swe.function("play_gold")  # by the agent's own tools
        assert played["files"] == ["toolz/itertoolz.py"]
        reward = await swe.reward()
        assert (reward["reward"], reward["variant"]) == (1.0, f"git {commit[:12]}")


async def test_tools_say_what_is_wrong_with_a_call(swe: Instance) -> None:
    path = "toolz/itertoolz.py"
    assert "stands in 'toolz/itertoolz.py' 0 times" in await swe.error(
        "edit", path=path, old="no such text", new=""
    )
    assert "must stand there once" in await swe.error("edit", path=path, old="def ", new="")
    assert "is there already" in await swe.error("edit", path=path, old="", new="x")
    assert "no file" in await swe.error("view", path="nowhere.py")
    assert "there are no lines 5 to 2" in await swe.error("view", path=path, start=5, end=2)
    assert "is behind its end" in await swe.error("view", path=path, start=100_000)
    ended = await swe.tool("bash", command="echo before; sleep 1000", timeout=1)
    assert ended == {"output": "before\n", "returncode": 124}
    long = await swe.tool("bash", command="seq 1 100000")
    assert "characters are left out here" in long["output"]
    assert long["output"].endswith("100000\n")


async def test_an_agent_sees_lines_and_errors_where_they_are(swe: Instance) -> None:
    done = await swe.tool("bash", command="echo one; echo two >&2; echo three; printf 'a\\fb\\nc\\n' > pages")
    assert done["output"] == "one\ntwo\nthree\n"
    assert await swe.tool("view", path="pages") == "     1\ta\fb\n     2\tc"  # a form feed ends no line


async def test_a_submission_takes_new_removed_and_executable_files_and_leaves_out_the_rest(swe: Instance) -> None:
    await swe.tool("edit", path="toolz/new.py", old="", new="x = 1\n")
    command = "rm AUTHORS.md; chmod +x README.rst; head -c 9M /dev/zero > big; printf 'a\\0b' > binary"
    await swe.tool("bash", command=f"{command}; mkdir __pycache__; touch __pycache__/x.pyc; ln -s /etc link")
    handed_in = await swe.tool("submit")
    assert handed_in["files"] == ["AUTHORS.md", "README.rst", "toolz/new.py"]
    assert sorted(handed_in["notes"]) == [
        "left out: 'big' is larger than 4 MiB, or cannot be read",
        "left out: 'binary' is not text",
    ]


async def test_a_reset_brings_the_base_back(gateway: Gateway, swe: Instance) -> None:
    await swe.tool("bash", command="echo x > toolz/itertoolz.py")
    await swe.tool("submit")
    await post(gateway, swe.id, "/task/reset")
    assert (await swe.tool("submit"))["files"] == []


async def test_tasks_are_listed_with_what_to_create_them_with(gateway: Gateway, data: Path, swe: Instance) -> None:
    assert await swe.function("list_tasks") == [
        {"id": ID, "variables": {"SWEBENCH_INSTANCE_ID": ID}, "split": "test"}
    ]
    assert "no split 'train'; the data has test" in await swe.failure("/functions/list_tasks", split="train")
    assert await swe.function("known_exceptions") == {"gold": {}, "empty": {}}
    for name in ("play_gold", "list_cheats"):
        said = await swe.failure(f"/functions/{name}")
        assert f"{name} is for validation; create the instance with AENV_VALIDATION=1" in said
    async with instance(gateway, data, SWEBENCH_BASE="docker") as other:
        [task] = await other.function("list_tasks")
        assert task["datasource"] == IMAGE
    async with instance(gateway, data, SWEBENCH_BASE="svn") as other:
        assert "use one of docker, git, sdist" in await other.error("bash", command="true")
    async with instance(gateway, data, SWEBENCH_INSTANCE_ID="other") as other:
        assert f"no instance 'other' in '/data', which has {ID}" in await other.error("bash", command="true")


async def test_without_data_the_error_says_how_to_get_it(gateway: Gateway) -> None:
    created = await gateway.create("swebench@1.0.0")
    one = Instance(gateway, created["id"])
    try:
        said = await one.not_judged("not_ready", "/functions/get_task")
        assert "run 'aenv data pull swebench --from URL|DIR' (without --from it says what to fetch)" in said
    finally:
        await gateway.ask("DELETE", f"/env-instance/{created['id']}")


@pytest.mark.timeout(240)
async def test_no_cheat_is_rewarded(gateway: Gateway, data: Path) -> None:
    async with instance(gateway, data, AENV_VALIDATION="1") as swe:
        cheats = await swe.function("list_cheats")
        kinds = {"edit-tests", "overwrite-verifier", "spoof-output", "exit-early", "fill-disk", "read-answer"}
        assert {cheat["kind"] for cheat in cheats} == kinds
        for cheat in cheats:
            await post(gateway, swe.id, "/task/reset")
            for step in cheat["steps"]:
                await swe.tool(step["tool"], **step["arguments"])
            reward = await swe.reward()
            assert (cheat["name"], reward["resolved"], reward.get("invalid")) == (cheat["name"], False, None)


def image(path: Path, data: Path, work: Path) -> Path:
    """An image as the benchmark's are: the tree in /testbed, its Python in a conda environment."""
    site = sites.build(record_of(RECORD), [data], work / "site")
    assert site.ready
    (site.packages / "ready.pth").unlink()
    shutil.copytree(site.ready, site.packages, dirs_exist_ok=True)
    programs = [
        "cat",
        "echo",
        "env",
        "find",
        "grep",
        "gzip",
        "head",
        "ls",
        "mkdir",
        "mv",
        "rm",
        "sed",
        "sha256sum",
        "dd",
        "tar",
        "touch",
        "true",
        "wc",
    ]
    entries = [*saved_images.busybox(), *(saved_images.link(f"bin/{name}", "/bin/busybox") for name in programs)]
    with tarfile.open(data / "sdists" / f"{SDIST}.tar.gz") as tar:
        for member in tar:
            if member.isfile() and (content := tar.extractfile(member)):
                name = member.name.removeprefix(f"{SDIST}/")
                entries.append(saved_images.file(f"testbed/{name}", content.read().decode(), mode=member.mode))
    entries.append(saved_images.file("testbed/.git/HEAD", "the way to the solution"))
    for file in sorted((work / "site").rglob("*")):
        name = f"{CONDA}/{file.relative_to(work / 'site')}"
        if file.is_symlink():
            entries.append(saved_images.link(name, str(file.readlink())))
        elif file.is_file():
            entries.append(saved_images.file(name, file.read_bytes()))
    assert site.python.exists()
    unique = {entry.name: (entry, content) for entry, content in entries}
    return saved_images.docker_archive(path, saved_images.layer(*unique.values()), names=[IMAGE])


async def test_an_image_gives_the_tree_and_the_python_of_the_verdict(
    tmp_path: Path, data: Path, gateway: Gateway
) -> None:
    await Images(gateway.home).load(image(tmp_path / "image.tar", data, tmp_path))
    async with instance(gateway, data, datasource=IMAGE, SWEBENCH_BASE="docker") as swe:
        looked = await swe.tool("bash", command="ls -A; ls /data; true")
        assert "toolz" in looked["output"]
        assert ".git" not in looked["output"].split()
        await swe.tool("edit", path="toolz/itertoolz.py", old="return seq[-n:]", new="return seq[len(seq) - n:]")
        # What the agent does to the image's Python is not what judges it.
        await swe.tool("bash", command=f"rm -rf /{CONDA}")
        # Its packages know one place for the tree: one verdict after another has it.
        both = await asyncio.gather(swe.reward(), swe.reward(model_patch=""))
        assert [reward["resolved"] for reward in both] == [True, False], both
        assert both[0]["variant"] == f"docker {IMAGE}"
        other = {**RECORD, "instance_id": "pytoolz__toolz-2"}
        assert "instance of another image" in await swe.failure("/task/reward", instance=other, model_patch="")
