"""Zygotes: what the process that loads an environment's code is, whose it is, and how the kernel's age is met."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.base import wire
from aenv.base.errors import StartFailed
from aenv.base.http1 import Pool
from aenv.engines.base import InstanceSpec, ResourceLimits
from aenv.engines.native import spares, zygotes
from aenv.engines.native.engine import NativeEngine
from aenv.inside.zygote import senders
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.rootfs import Rootfs
from conformance.engine import Projects, call
from tests.native import group_name, groups, traces
from tests.relayed import until

pytestmark = pytest.mark.slow  # each starts a zygote and its children

CODE = '''
from aenv import register_tool


@register_tool
def processes() -> list[str]:
    """The programs that can be seen from here."""
    import contextlib
    import os

    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline") as file:  # it may have ended meanwhile
            found.append(file.read())
    return found
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def spec(tmp_path: Path) -> InstanceSpec:
    return Projects(tmp_path / "projects").spec(CODE)


@asynccontextmanager
async def engine_of(home: Path) -> AsyncIterator[NativeEngine]:
    root = host_root(home)

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    async with NativeEngine(home, root_of) as engine:
        yield engine


def like(spec: InstanceSpec, **changes: Any) -> InstanceSpec:
    return replace(spec, id=wire.new_instance_id("zygotes"), **changes)


@contextmanager
def order_with(monkeypatch: pytest.MonkeyPatch, **more: Any) -> Iterator[None]:
    """What a stager is told, with something besides. It is another program: nothing else of it can be changed."""
    plain = zygotes.order
    with monkeypatch.context() as patch:
        patch.setattr(zygotes, "order", lambda kind: replace(plain(kind), **more))
        yield


def above(pid: int) -> tuple[psutil.Process, psutil.Process, psutil.Process]:
    """The process that forked an instance, the zygote, the stager."""
    forker, zygote, stager, *_ = psutil.Process(pid).parents()
    return forker, zygote, stager


def status(process: psutil.Process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_the_process_that_loads_an_environment_has_no_rights_and_limits_of_its_own(
    home: Path, spec: InstanceSpec
) -> None:
    async with engine_of(home) as engine:
        limited = like(spec, limits=ResourceLimits(memory_bytes=300 << 20, pids=50))
        _, zygote, stager = above((await engine.create(limited)).pid)
        said = status(zygote)
        assert int(said["CapPrm"], 16) == 1 << 18 | 1 << 21  # to enter what was built for an instance
        assert (said["CapEff"], said["CapBnd"], said["NoNewPrivs"], said["Seccomp"]) == (
            "0" * 16,
            "0" * 16,
            "1",
            "2",
        )
        for kind in ("mnt", "net", "ipc", "uts"):
            namespaces = {
                os.readlink(f"/proc/{each.pid}/ns/{kind}") for each in (zygote, stager, psutil.Process())
            }
            assert len(namespaces) == 3, kind
        groups = Path(f"/proc/{zygote.pid}/cgroup").read_text().splitlines()
        [path] = [line.split(":")[2] for line in groups if line.split(":")[1] == "memory"]
        assert f"/{group_name(home)}/zygote-" in path
        limit = int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())
        assert 300 << 20 < limit < 600 << 20
        await engine.destroy(limited.id)


async def test_no_descriptor_and_no_process_of_the_host_is_in_the_reach_of_a_zygote(
    home: Path, spec: InstanceSpec
) -> None:
    async with engine_of(home) as engine:
        one = like(spec)
        _, zygote, _ = above((await engine.create(one)).pid)
        null = os.stat("/dev/null").st_rdev
        files = [path for path in Path(f"/proc/{zygote.pid}/fd").iterdir() if path.stat().st_rdev != null]
        # A pipe of libuv's, the socket to the stager, and what it prints to.
        kinds = sorted({os.readlink(path).partition(":")[0] for path in files})
        assert kinds == ["/memfd", "pipe", "socket"]
        assert len([path for path in files if path.is_socket()]) == 1
        names = {
            os.path.basename(path) for path in os.listdir(f"/proc/{zygote.pid}/root/proc") if path.isdecimal()
        }
        assert len(names) < 12  # the stager, the zygote, what forks, spares, the instance
        await engine.destroy(one.id)


def kernel_objects(pid: int) -> set[str]:
    """The sockets, pipes and eventfds that a process holds."""
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        link = os.readlink(entry.path)
        if link == "anon_inode:[eventfd]":
            lines = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().splitlines()
            found |= {line for line in lines if line.startswith("eventfd-id")}
        elif link.startswith(("socket:", "pipe:")):
            found.add(link)
    return found


async def test_instances_share_nothing_of_the_event_loop_that_they_were_forked_with(
    home: Path, spec: InstanceSpec
) -> None:
    async with engine_of(home) as engine:
        specs = [like(spec), like(spec)]
        one, other = [await engine.create(each) for each in specs]
        forker = above(one.pid)[0]
        assert above(other.pid)[0] == forker
        held = [kernel_objects(pid) for pid in (one.pid, other.pid, forker.pid)]
        assert min(map(len, held)) >= 5
        assert len(set.union(*held)) == sum(map(len, held))
        for each in specs:
            await engine.destroy(each.id)


async def test_a_process_that_waits_is_in_its_room_and_confined_before_an_instance_is_asked_for(
    home: Path, spec: InstanceSpec
) -> None:
    async with engine_of(home) as engine:
        first = like(spec)
        made = await engine.create(first)
        forker = above(made.pid)[0]

        def waiting() -> list[psutil.Process]:
            """Those that have a worker thread: they have rehearsed a call, which comes last."""
            return [each for each in forker.children() if each.pid != made.pid and each.num_threads() > 1]

        await until(lambda: len(waiting()) == 4)  # all that are kept: which of them is next is not known
        filters, zygote_group = status(forker)["Seccomp_filters"], groups_of(forker.pid)
        before = {each.pid for each in waiting()}
        for each in waiting():
            said = status(each)
            assert int(said["Seccomp_filters"]) > int(filters)
            assert (said["CapPrm"], said["CapEff"], said["CapBnd"]) == ("0" * 16,) * 3
            for kind in ("mnt", "net", "ipc", "uts"):
                links = {os.readlink(f"/proc/{one.pid}/ns/{kind}") for one in (each, forker)}
                assert len(links) == 2, kind
            assert groups_of(each.pid) == zygote_group  # there are none of its own yet
        second = like(spec)
        pid = (await engine.create(second)).pid
        assert pid in before
        assert groups_of(pid) != zygote_group
        for one in (first, second):
            await engine.destroy(one.id)


async def test_a_fork_begins_with_the_page_tables_of_the_c_library(home: Path, spec: InstanceSpec) -> None:
    async with engine_of(home) as engine:
        forker = above((await engine.create(spec)).pid)[0]
        text = Path(f"/proc/{forker.pid}/smaps").read_text()
        areas = [area for area in text.split("VmFlags") if "r-xp" in area and "/libc.so" in area]
        # That a page was written to is what makes a fork copy the table of all.
        assert any("Anonymous: 4 kB" in " ".join(area.split()) for area in areas)
        await engine.destroy(spec.id)


def groups_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


async def test_tenants_share_no_zygote_and_no_user_id(home: Path, spec: InstanceSpec) -> None:
    async with engine_of(home) as engine:
        specs = [like(spec, tenant=tenant) for tenant in ("ada", "bob", "ada")]
        pids = [(await engine.create(each)).pid for each in specs]
        found = [above(pid)[1].pid for pid in pids]
        assert found[0] == found[2] != found[1]
        owners = [psutil.Process(pid).uids().real for pid in pids]
        assert owners[0] == owners[2] != owners[1]
        for each in specs:
            await engine.destroy(each.id)


async def test_rooms_are_built_by_other_processes_where_the_kernel_is_older(
    home: Path, spec: InstanceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with order_with(monkeypatch, builds_apart=True):
        async with engine_of(home) as engine, Pool() as pool:
            specs = [like(spec) for _ in range(6)]  # more than are made ahead
            for each in specs:
                address = await engine.create(each)
                # What built the room has ended, and may not be collected yet: it has no command line any more.
                assert len([*filter(None, await call(pool, address, "processes"))]) == 1
            for each in specs:
                await engine.destroy(each.id)
    assert traces(home) == []


async def test_code_that_cannot_be_loaded_ahead_is_told_with_its_traceback(home: Path, spec: InstanceSpec) -> None:
    (spec.project / "src" / "broken_one.py").write_text("raise RuntimeError('no such day')\n")
    async with engine_of(home) as engine:
        with pytest.raises(StartFailed, match="no such day"):
            await engine.create(like(spec, preload=("broken_one",)))
    assert traces(home) == []


async def test_a_spare_instance_ends_with_its_engine_whatever_its_code_does(
    home: Path, spec: InstanceSpec
) -> None:
    """As kill -9 ends an engine: its sockets are closed, and nothing is said."""
    code = "import os, signal\nos._exit = lambda code: signal.pause()\n"
    (spec.project / "src" / "stays.py").write_text(code)
    async with engine_of(home) as engine:
        used, spare = like(spec, preload=("stays",)), like(spec, preload=("stays",))
        living = (await engine.create(used)).pid
        await engine.keep_warm(spare, 1)
        async with asyncio.timeout(10):
            while not engine.warm().get(spec.environment):
                await asyncio.sleep(0.01)
        forker, *_ = above(living)
        [waits] = [each for each in groups_members(home) if each.pid != living]
        for zygote in engine._zygotes._by_kind.values():
            zygote._control.shutdown(socket.SHUT_RDWR)
        gone, _ = await asyncio.to_thread(psutil.wait_procs, [waits, forker], 10)
        assert {each.pid for each in gone} == {waits.pid, forker.pid}
        assert psutil.pid_exists(living)
        await engine.destroy(used.id)


def groups_members(home: Path) -> list[psutil.Process]:
    """The processes in the control groups of instances, spare ones included."""
    pids = {int(pid) for group in groups(home) for pid in (group / "cgroup.procs").read_text().split()}
    return [psutil.Process(pid) for pid in pids]


def test_a_process_that_ends_before_it_has_read_its_order_has_ended_and_broken_no_rule() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.send(b"an order")
        theirs.close()
        assert senders.received(ours) == (b"", 0)


async def test_a_create_gets_another_process_where_those_that_waited_were_killed(
    home: Path, spec: InstanceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_of(home) as engine:
        first = like(spec)
        instance = (await engine.create(first)).pid
        forker, _, stager = above(instance)

        def waiting() -> list[psutil.Process]:
            """Those that have entered their rooms."""
            here = os.readlink(f"/proc/{forker.pid}/ns/mnt")
            others = [child for child in forker.children() if child.pid != instance]
            return [child for child in others if os.readlink(f"/proc/{child.pid}/ns/mnt") != here]

        await until(lambda: len(waiting()) == 4)
        with stopped(stager):  # so that it hears of their ends and of the create at once
            for process in waiting():
                process.kill()
            await until(lambda: not forker.children()[1:])
            asked = asyncio.Event()
            plain = zygotes.Zygote.fork

            def fork(*words: Any) -> Any:
                forking = plain(*words)
                asked.set()
                return forking

            monkeypatch.setattr(zygotes.Zygote, "fork", fork)
            second = like(spec)
            creating = asyncio.create_task(engine.create(second))
            await asked.wait()
        assert (await creating).pid != instance
        for each in (first, second):
            await engine.destroy(each.id)


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


async def test_nothing_is_left_of_a_zygote_when_its_engine_is_closed(home: Path, spec: InstanceSpec) -> None:
    async with engine_of(home) as engine:
        one = like(spec)
        processes = above((await engine.create(one)).pid)
        await engine.destroy(one.id)
    assert [process for process in processes if process.is_running() and process.status() != "zombie"] == []
    assert not [*Path("/sys/fs/cgroup").glob(f"*/**/{group_name(home)}/zygote-*")]


@pytest.mark.slow  # three creates that wait for their time to be over
async def test_forks_that_never_come_keep_nothing_open(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "_ANSWERS", 0.0)
    silent = """
import os
import signal
import sys

sys.modules["__main__"]._Forker._obey = lambda self: os.kill(os.getpid(), signal.SIGSTOP)
"""
    projects = Projects(tmp_path / "projects")
    spec = projects.spec(CODE)
    source = spec.project / "src"
    ((source if source.is_dir() else spec.project) / "silent.py").write_text(silent)
    spec = replace(spec, preload=("silent",), start_timeout=3.0)
    async with engine_of(home) as engine:
        held = []
        for _ in range(3):
            with pytest.raises(StartFailed, match="was not ready within"):
                await engine.create(replace(spec, id=wire.new_instance_id("silent")))
            held.append(len(os.listdir("/proc/self/fd")))
        # What is about to be closed may still be counted; each that is kept would leave two or more for good.
        await until(lambda: len(os.listdir("/proc/self/fd")) <= held[0] + 1)
    assert traces(home) == []
