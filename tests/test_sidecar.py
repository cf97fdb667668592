"""Environments of two parts: the tools of the first run commands in the second, in the files of another image."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv.base.errors import NetworkError, NotFound, StartFailed, Unsupported
from aenv.base.http1 import Pool
from aenv.engines import proc
from aenv.engines.base import Address, InstanceSpec, Network, ResourceLimits
from aenv.engines.descriptors import readable
from aenv.engines.folder import STATE, InstanceFolder
from aenv.engines.instance_state import SidecarProcess
from aenv.engines.native import sidecars
from aenv.engines.native.engine import NativeEngine
from aenv.engines.native.sidecars import Sidecars
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.images import Images
from aenv.isolation.sandbox.confine import CONTAINER_RIGHTS
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.native import traces
from tests.ordinary import ordinary_user
from tests.sidecars import AS_ANOTHER, ENVIRONMENT, image

# What the image's own programs are too few for, its busybox can do by name.
BOX = "/bin/busybox"

Call = Callable[..., Awaitable[Any]]


# One engine for all: its zygotes take longer to start than anything that is tested here.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    (folder / "two.py").write_text(ENVIRONMENT)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def make_engine(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Callable[[], NativeEngine]]:
    images = Images(home)
    tar = image(tmp_path_factory.mktemp("image") / "tiny.tar")
    await images.load(tar)
    root = host_root(home)

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    async def sidecar_rootfs(reference: str) -> Rootfs:
        image = images.find(reference) or await images.pull(reference)
        return image.root(reference)

    async with contextlib.AsyncExitStack() as stack:

        def make() -> NativeEngine:
            engine = NativeEngine(home, root_of, sidecar_rootfs=sidecar_rootfs)
            stack.push_async_exit(engine)
            return engine

        yield make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_engine(make_engine: Callable[[], NativeEngine]) -> NativeEngine:
    return make_engine()


@pytest_asyncio.fixture(loop_scope="module")
async def engine(shared_engine: NativeEngine, home: Path) -> AsyncIterator[NativeEngine]:
    engine = shared_engine
    yield engine
    for id in [*await engine.running(), *await engine.leftovers()]:
        await engine.destroy(id)
    assert traces(home) == []


@pytest_asyncio.fixture(loop_scope="module")
async def call() -> AsyncIterator[Call]:
    async with Pool() as pool:

        async def call(address: Address, name: str, **arguments: Any) -> Any:
            body = json.dumps(arguments).encode()
            head = [("content-type", "application/json")]
            response = await pool.request(address.origin, "POST", f"/tools/{name}", head, body)
            data = json.loads(await response.read())["data"]
            if data["is_error"]:
                return data["content"][0]["text"]
            structured = data["structured"]
            if structured is None:
                return data["content"][0]["text"] if data["content"] else None
            return structured["result"] if set(structured) == {"result"} else structured

        yield call


@pytest.fixture
def spec(two: Path) -> InstanceSpec:
    return InstanceSpec("two-1", "two@1.0.0", two, sidecar="tiny:1")


async def test_a_command_sees_the_files_variables_and_folder_of_the_image(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    done = await call(address, "run", command="cat /etc/of-the-image; echo $COLOUR; pwd; echo oops >&2; exit 3")
    assert done == {"exit_code": 3, "stdout": "tinyblue\n/testbed\n", "stderr": "oops\n", "truncated": False}


async def test_a_command_gets_its_input_folder_and_variables(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    given = {"stdin": "hello", "folder": "/etc", "variables": {"COLOUR": "red"}}
    done = await call(address, "run", command=["sh", "-c", "cat; pwd; echo $COLOUR $HOME"], **given)
    assert done["stdout"] == "hello/etc\nred /root\n"


async def test_sync_tools_have_it_too_and_async_ones_cannot_block_themselves(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    assert await call(address, "run_sync", command="echo hi") == "hi\n"
    assert "'SyncSidecar' is for sync tools" in await call(address, "run_wrongly")


async def test_many_commands_run_at_the_same_time(engine: NativeEngine, spec: InstanceSpec, call: Call) -> None:
    address = await engine.create(spec)
    assert await call(address, "many", count=100) == [f"{n}\n" for n in range(100)]


async def test_files_are_written_and_read(engine: NativeEngine, spec: InstanceSpec, call: Call) -> None:
    address = await engine.create(spec)
    assert await call(address, "copy", path="new/folder/file", data="ä\0b") == "ä\0b"
    assert (await call(address, "run", command="ls /testbed/new/folder"))["stdout"] == "file\n"
    assert "no file 'missing' in the sidecar" in await call(address, "read", path="missing")
    assert "is not a file" in await call(address, "read", path="/dev/zero")
    await call(address, "run", command=[BOX, "mkfifo", "/testbed/pipe"])
    assert "is not a file" in await call(address, "read", path="pipe")


async def test_programs_that_are_not_there_are_told_as_shells_tell_it(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    done = await call(address, "run", command=["nothing"])
    assert (done["exit_code"], done["stderr"]) == (127, "nothing: not found\n")
    done = await call(address, "run", command=["/etc/of-the-image"])
    assert (done["exit_code"], done["stderr"]) == (126, "/etc/of-the-image: permission denied\n")
    assert "the command is empty" in await call(address, "run", command=[])
    done = await call(address, "run", command="true", folder="/nowhere")
    assert (done["exit_code"], done["stderr"]) == (127, "/nowhere: not found\n")


async def test_a_command_that_takes_too_long_is_ended_with_its_children(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    command = f"echo begun; {BOX} sleep 1000 & {BOX} sleep 1000"
    done = await call(address, "run", command=command, timeout=0.3)
    assert (done["exit_code"], done["stdout"]) == (124, "begun\n")
    assert "sleep" not in (await call(address, "run", command=[BOX, "ps"]))["stdout"]


async def test_a_tool_that_is_cancelled_takes_its_command_with_it(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    assert await call(address, "run_and_be_cancelled") == "cancelled"
    waiting = f"while {BOX} readlink /proc/$(cat /tmp/pid)/exe; do :; done; echo gone"
    assert (await call(address, "run", command=waiting))["stdout"].endswith("gone\n")


async def test_what_a_command_left_running_runs_on_and_is_not_waited_for(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    done = await call(address, "run", command=f"{BOX} sleep 1000 & echo $!")
    assert (await call(address, "run", command=f"kill {done['stdout']}"))["exit_code"] == 0


async def test_orphans_do_not_stay_as_zombies(engine: NativeEngine, spec: InstanceSpec, call: Call) -> None:
    address = await engine.create(spec)
    await call(address, "run", command="for n in 1 2 3 4 5 6 7 8; do (true & true) & done")
    # Each command may see a zombie for a moment; the file appears once there is none.
    look = f"until ! {BOX} grep -l '^State:.Z' /proc/[0-9]*/status; do :; done; echo none"
    assert (await call(address, "run", command=look, timeout=4.0))["stdout"].endswith("none\n")


async def test_output_is_kept_up_to_a_limit_and_the_command_goes_on(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    command = f"{BOX} head -c 6000000 /dev/zero | {BOX} tr '\\0' x; touch /tmp/finished"
    done = await call(address, "run", command=command)
    assert (len(done["stdout"]), done["truncated"], done["exit_code"]) == (4 << 20, True, 0)
    assert (await call(address, "run", command="ls /tmp/finished"))["exit_code"] == 0
    await call(address, "run", command=[BOX, "truncate", "-s", "40000000", "/tmp/large"])
    assert "more than 32 MiB" in await call(address, "read", path="/tmp/large")


async def test_neither_part_sees_the_files_processes_or_namespaces_of_the_other(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    secret = replace(spec, environment_variables={"API_KEY": "secret"})
    address = await engine.create(secret)
    await call(address, "run", command="echo hi > /testbed/note; echo hi > /tmp/note; cat /dev/null")
    for path in ("/testbed/note", "/tmp/note", "/etc/of-the-image"):
        assert not (await call(address, "here", path=path))["exists"]
    there = await call(
        address, "run", command=f"ls -a /environment /workspace /run /tmp; {BOX} env; {BOX} ps; {BOX} netstat -xa"
    )
    assert "custom_env.py" not in there["stdout"]
    assert "sidecar.sock" not in there["stdout"].partition("UNIX domain sockets")[0]
    assert "secret" not in there["stdout"]
    ours = await call(address, "namespaces")
    names = [f"/proc/self/ns/{name}" for name in ours]
    reading = f"for name in {' '.join(names)}; do {BOX} readlink $name; done"
    theirs = (await call(address, "run", command=reading))["stdout"].split()
    shared = set(ours.values()) & set(theirs)
    assert {name.partition(":")[0] for name in shared} <= {"time"}
    assert len(theirs) == len(ours)


async def test_the_sidecar_is_confined_like_the_first(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    status = (await call(address, "run", command="cat /proc/self/status"))["stdout"]
    said = dict(line.split(":", 1) for line in status.splitlines())
    # As root, what root of a container has over its own; see attacks/test_sidecar_rights.py.
    rights = sum(1 << number for number in CONTAINER_RIGHTS) if os.geteuid() == 0 else 0
    assert int(said["CapEff"], 16) == int(said["CapBnd"], 16) == rights
    assert int(said["CapInh"], 16) == int(said["CapAmb"], 16) == 0
    assert (said["NoNewPrivs"].strip(), said["Seccomp"].strip()) == ("1", "2")
    links = (await call(address, "run", command="ls /proc/sys/net/ipv4/conf; cat /proc/net/route"))["stdout"]
    assert "eth" not in links
    assert (await call(address, "run", command="ls -l /proc/self/fd"))["stdout"].count("socket:") == 0


async def test_the_limits_are_for_both_parts_together(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user may have no control groups")
    address = await engine.create(replace(spec, limits=ResourceLimits(pids=50)))
    assert await call(address, "start", count=20) == 20
    many = f"for n in $({BOX} seq 40); do {BOX} sleep 1000 & done"
    assert "can't fork" in (await call(address, "run", command=many))["stderr"]
    assert "temporarily unavailable" in await call(address, "start", count=20)


async def test_the_network_policy_holds_for_the_sidecar_too(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(replace(spec, network=Network("egress", ("allowed.example:443",))))
    ask = "echo -e 'CONNECT other.example:443 HTTP/1.1\\r\\nhost: other.example:443\\r\\n\\r'"
    done = await call(address, "run", command=f"{ask} | {BOX} nc 127.0.0.1 3128; echo $https_proxy")
    assert "403" in done["stdout"].splitlines()[0]
    assert done["stdout"].splitlines()[-1].endswith(":3128")


async def test_an_engine_that_comes_later_lets_the_sidecar_out_again(
    engine: NativeEngine, make_engine: Callable[[], NativeEngine], spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(replace(spec, network=Network("egress", ("allowed.example:443",))))
    for name in (spec.id, sidecars.key(spec.id)):
        await engine._egress.stop(name)  # as if it had ended
    later = make_engine()
    async with later._egress:
        await later.running()
        ask = "echo -e 'CONNECT other.example:443 HTTP/1.1\\r\\nhost: other.example:443\\r\\n\\r'"
        done = await call(address, "run", command=f"{ask} | {BOX} nc 127.0.0.1 3128", timeout=3)
        assert "403" in done["stdout"]


async def test_both_parts_are_frozen_together(engine: NativeEngine, spec: InstanceSpec, call: Call) -> None:
    address = await engine.create(spec)
    await engine.freeze(spec.id)
    asked = asyncio.ensure_future(call(address, "run", command="echo hi"))
    done, _ = await asyncio.wait({asked}, timeout=0.2)
    state = Path(f"/proc/{_second(engine, spec.id)}/stat").read_text().rpartition(")")[2].split()[0]
    assert (done, state) in ((set(), "D"), (set(), "T"), (set(), "S"))
    await engine.thaw(spec.id)
    assert (await asked)["stdout"] == "hi\n"


async def test_both_end_when_the_second_does(engine: NativeEngine, spec: InstanceSpec) -> None:
    address = await engine.create(spec)
    ended = asyncio.create_task(engine.ended(spec.id))
    os.kill(_second(engine, spec.id), signal.SIGKILL)
    assert await ended == "its sidecar ended"
    assert not _runs(address.pid)


async def test_both_end_when_the_first_does(engine: NativeEngine, spec: InstanceSpec, call: Call) -> None:
    address = await engine.create(spec)
    second = os.pidfd_open(_second(engine, spec.id))
    with pytest.raises(NetworkError):
        await call(address, "abort")
    await _over(second)
    assert "signal" in await engine.ended(spec.id)


async def test_destroy_ends_both(engine: NativeEngine, spec: InstanceSpec, home: Path) -> None:
    address = await engine.create(spec)
    second = _second(engine, spec.id)
    await engine.destroy(spec.id)
    assert not _runs(address.pid)
    assert not _runs(second)
    assert traces(home) == []


async def test_an_engine_that_comes_later_finds_both_and_ends_both(
    engine: NativeEngine, make_engine: Callable[[], NativeEngine], spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    second = _second(engine, spec.id)
    later = make_engine()
    found = await later.running()
    assert (await call(found[spec.id], "run", command="echo hi"))["stdout"] == "hi\n"
    await later.destroy(spec.id)
    assert not _runs(address.pid)
    assert not _runs(second)


async def test_an_engine_that_comes_later_ends_the_rest_of_one_whose_sidecar_ends(
    engine: NativeEngine,
    make_engine: Callable[[], NativeEngine],
    spec: InstanceSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The engine that has made it is still here; it must not do what the later one is to do.
    monkeypatch.setattr(Sidecars, "_tie", lambda *_: None)
    address = await engine.create(spec)
    first = os.pidfd_open(address.pid)
    ended = asyncio.create_task(make_engine().ended(spec.id))
    os.kill(_second(engine, spec.id), signal.SIGKILL)
    assert await ended == "its sidecar ended"
    await _over(first)


async def test_an_engine_that_comes_later_takes_half_an_instance_for_a_leftover(
    engine: NativeEngine,
    make_engine: Callable[[], NativeEngine],
    spec: InstanceSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sidecars, "_tie", lambda *_: None)  # as above
    address = await engine.create(spec)
    second = os.pidfd_open(_second(engine, spec.id))
    signal.pidfd_send_signal(second, signal.SIGKILL)
    await _over(second)
    later = make_engine()
    assert await later.running() == {}
    assert await later.leftovers() == [spec.id]
    await later.destroy(spec.id)
    assert not _runs(address.pid)


async def test_without_a_sidecar_the_call_says_how_to_have_one(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(replace(spec, sidecar=""))
    assert "this instance has no sidecar; name its image" in await call(address, "run", command="true")
    assert not (await call(address, "here", path="/run/sidecar.sock"))["exists"]


async def test_an_image_that_is_not_here_is_refused_with_the_fix(engine: NativeEngine, spec: InstanceSpec) -> None:
    with pytest.raises(NotFound, match="aenv image load"):
        await engine.create(replace(spec, sidecar="other:2"))


async def test_an_engine_without_images_says_so(tmp_path: Path, spec: InstanceSpec) -> None:
    async def root_of(spec: InstanceSpec) -> Rootfs:
        return host_root(tmp_path)

    async with NativeEngine(tmp_path, root_of) as engine:
        with pytest.raises(Unsupported, match="aenv image load"):
            await engine.create(spec)
    assert traces(tmp_path) == []


async def test_when_the_first_part_fails_to_load_nothing_of_the_second_is_left(
    engine: NativeEngine, spec: InstanceSpec, home: Path, project: Callable[[str], Path]
) -> None:
    broken = project("raise RuntimeError('the database is missing')")
    with pytest.raises(StartFailed, match="the database is missing"):
        await engine.create(replace(spec, project=broken))
    assert traces(home) == []


async def test_the_first_part_may_run_commands_while_it_loads(
    engine: NativeEngine, spec: InstanceSpec, call: Call, project: Callable[[str], Path]
) -> None:
    code = """
import socket
from aenv import register_tool

with socket.socket(socket.AF_UNIX) as sock:
    sock.connect("/run/sidecar.sock")
    sock.sendall(b"GET /health HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n")
    answer = sock.recv(12)

@register_tool
def seen() -> str:
    return answer.decode()
"""
    address = await engine.create(replace(spec, project=project(code)))
    assert await call(address, "seen") == "HTTP/1.1 200"


async def test_spare_instances_can_be_made_ahead_for_it(
    engine: NativeEngine, spec: InstanceSpec, call: Call, home: Path
) -> None:
    await engine.keep_warm(spec, 1)
    while not any(engine.warm().values()):
        await asyncio.sleep(0)
    address = await engine.create(spec)
    assert (await call(address, "run", command="echo hi"))["stdout"] == "hi\n"
    await engine.keep_warm(spec, 0)
    await engine.destroy(spec.id)
    while traces(home):  # one may be half made at this moment
        await asyncio.sleep(0)


async def test_an_ordinary_user_has_it_too(two: Path) -> None:
    with ordinary_user() as user:
        folder = user.make_folder("sidecar")
        image(folder / "tiny.tar")
        shutil.copytree(two, folder / "two")
        user.give(folder)
        words = user.command(str(user.python), "-P", "-c", AS_ANOTHER, str(folder))
        done = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, cwd=folder, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    said = {
        "exit_code": 0,
        "stdout": "tiny0\n/environment/served/sidecar_commands.py\n",
        "stderr": "",
        "truncated": False,
    }
    assert done.stdout == f"{said}\n[]\n"


def _second(engine: NativeEngine, id: str) -> int:
    sidecar = InstanceFolder(engine._root, id).read_state().sidecar
    assert isinstance(sidecar, SidecarProcess)
    return sidecar.pid


def _runs(pid: int) -> bool:
    return proc.start_time(pid) is not None  # one that has ended may still be waited for


async def _over(pidfd: int) -> None:
    await readable(pidfd)
    os.close(pidfd)


async def test_what_version_1_0_0_wrote_down_about_it_is_still_read(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path, "two-1")
    folder.make()
    folder = _as_written(folder, {"second": {"pid": os.getpid(), "start_time": proc.start_time(os.getpid())}})
    assert sidecars.of(folder) == proc.Process(os.getpid(), proc.start_time(os.getpid()) or 0)
    assert sidecars.is_whole(folder)
    folder = _as_written(folder, {"second": {"pid": os.getpid(), "start_time": 1}})
    assert not sidecars.is_whole(folder)


def _as_written(folder: InstanceFolder, state: dict[str, Any]) -> InstanceFolder:
    """The folder as an engine finds it that starts later, with a line at the end of its state."""
    with (folder.path / STATE).open("a") as file:
        file.write(json.dumps(state) + "\n")
    return InstanceFolder(folder.path.parent, folder.id)
