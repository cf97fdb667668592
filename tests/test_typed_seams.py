"""What our processes tell each other, and what an engine writes down: each shape is read as it was written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import NetworkError
from aenv.client.hub_records import HubOffer, HubVersion
from aenv.control.instances.records import Record, RecordedGrant, RecordedPart, RecordedParts
from aenv.engines import instance_state
from aenv.engines.folder import STATE, InstanceFolder
from aenv.engines.instance_state import AwaitedSidecar, InstanceState, SidecarProcess
from aenv.engines.proc import Process
from aenv.inside.author.sidecar_replies import CommandReply, PythonReply, packed, unpacked
from aenv.isolation.rootfs.unpack_messages import (
    TarSource,
    Unpacked,
    UnpackFailed,
    UnpackTask,
)
from aenv.isolation.sandbox import protocol
from aenv.isolation.sandbox.build_step import CommandEnded, Printing
from aenv.isolation.sandbox.enter import EnterOrder
from aenv.isolation.sandbox.orders import (
    Bind,
    BuildOrder,
    NotStarted,
    Stage,
    StageTask,
    ZygoteOrder,
    layers_of,
    task_file,
    task_from,
)
from aenv.isolation.sandbox.overlay_run import OverlayPlan
from aenv.isolation.sandbox.rootfs import Rootfs
from aenv.isolation.sandbox.standalone_options import StandaloneOptions
from aenv.isolation.sandbox.typed_json import MAX_BYTES, MAX_ERROR, Broken, decode, encode

ROOTFS: tuple[Any, Any] = (("/a", "/b"), {"/usr": ("/usr",)})
BINDS = (Bind("/x", "/x", is_ours=False), Bind("/s", "/storage", is_writable=True, is_kept=True))
STAGE = Stage(("/glue", "/layers/0"), {"/usr": ("/o/0", "/o/1")}, ("/x",), ("proc/kcore",), ("proc/sys",))
ZYGOTE = ZygoteOrder(*ROOTFS, BINDS, ("/envs",), False, "/requirements", "/environment/src", ("json",), True)
BUILD = BuildOrder(
    *ROOTFS,
    *(BINDS, (), True),
    uppers={"/": ("/kept/root", "/kept/work/root")},
    command=("sh", "-c", "echo 'ä' \udcff"),
    variables={"PATH": "/bin"},
    folder="/",
    user="1000:1000",
)
MESSAGES = (
    *(protocol.Go(), protocol.Keep(3), protocol.Prepared(1, ("egress",)), protocol.NotForked(1, "why", 12)),
    protocol.ForkRequest(1 << 30, 1024, "", 0, "/run/sidecar.sock", open_files=4096, keep_history=True, number=7),
    protocol.Assignment({"A": "ä"}, "/workspace", ("--fast",), confirm=True, rehearse=False),
    *(Printing(), CommandEnded(-1), NotStarted("no isolation")),
    *(ZYGOTE, BUILD, replace(ZYGOTE, builds_apart=True)),
    *(StageTask(STAGE, ZYGOTE, owner=200000, nested=5), StageTask(STAGE, BUILD, owner=0)),
    StandaloneOptions("/environment", "/var/log/instance.log", "/run/aenv/socket", "", True, ("--fast",)),
    OverlayPlan({"/rootfs": ("/glue", "/layer")}, {"/kept": "/storage"}),
    EnterOrder(7, 1234, 1024, False, ("/sys/fs/cgroup/x",), ("/bin/sh", "-c", "true")),
    UnpackTask(3, (TarSource(4, "sha256:0", ""), TarSource(5, "", "usr")), True, 1 << 40, 10),
    *(Unpacked(2), UnpackFailed("refused", "damaged"), UnpackFailed("failed", "no space")),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_written(message: object) -> None:
    assert decode(encode(message), type(message)) == message


def said(message: object, **changes: Any) -> bytes:
    return json.dumps({**json.loads(encode(message)), **changes}).encode()


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "KiB"),
        (b"[" * 60_000, "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "not expected: 'None'"),
        (said(protocol.Go()), "not expected: 'Go'"),
        (said(ZYGOTE, more=1), "ZygoteOrder has other fields than layers, system, binds, masked"),
        (b'{"is": "ZygoteOrder"}', "ZygoteOrder has other fields than layers, system, binds, masked"),
        (said(ZYGOTE, host_network=1), "ZygoteOrder.host_network is of the wrong type"),
        (said(ZYGOTE, source=None), "ZygoteOrder.source is of the wrong type"),
        (said(ZYGOTE, preload="json"), "ZygoteOrder.preload is not a list"),
        (said(ZYGOTE, preload=["json", 5]), r"ZygoteOrder.preload\[1\] is of the wrong type"),
        (said(ZYGOTE, system=[]), "ZygoteOrder.system is not an object"),
        (said(ZYGOTE, system={"/usr": [1]}), r"ZygoteOrder.system\['/usr'\]\[0\] is of the wrong type"),
        (said(ZYGOTE, binds=[5]), r"ZygoteOrder.binds\[0\] is not an object"),
        (said(ZYGOTE, binds=[{}]), r"ZygoteOrder.binds\[0\] has other fields than source, target"),
        (said(ZYGOTE, binds=[{**vars(BINDS[0]), "is_kept": "no"}]), r"binds\[0\].is_kept is of the wrong type"),
        (said(BUILD, uppers={"/": ["/kept"]}), r"uppers\['/'\] has 1 parts, and should have 2"),
        (said(BUILD, variables=[]), "BuildOrder.variables is not an object"),
        (said(EnterOrder(7, 8, 9, False, (), ()), pid=True), "EnterOrder.pid is of the wrong type"),
        (said(EnterOrder(7, 8, 9, False, (), ()), pid=1 << 63), "EnterOrder.pid is too large"),
    ],
)
def test_a_message_that_is_broken_says_where(packet: bytes, reason: str) -> None:
    with pytest.raises(Broken, match=reason):
        decode(packet, ZygoteOrder, BuildOrder, EnterOrder)


def test_a_message_has_a_limit_unless_its_sender_is_believed() -> None:
    long = protocol.Assignment({"A": "x" * MAX_BYTES}, "/", (), confirm=False, rehearse=False)
    with pytest.raises(Broken, match="more than 64 KiB"):
        decode(encode(long), protocol.Assignment)
    assert decode(encode(long), protocol.Assignment, most_bytes=None) == long


def test_of_an_error_that_is_too_long_the_end_is_told() -> None:
    found = decode(encode(UnpackFailed("failed", "a" * MAX_ERROR + "the end")), UnpackFailed)
    assert len(found.error) == MAX_ERROR and found.error.endswith("the end")


def test_the_order_of_a_rootfs_has_its_folders() -> None:
    root = Rootfs("x", (Path("/a"), Path("/b")), {"/usr": (Path("/usr"),)})
    assert layers_of(root) == ROOTFS


def test_a_task_comes_by_a_file_that_is_closed_when_it_is_read() -> None:
    task = StageTask(STAGE, ZYGOTE, owner=7)
    file = task_file(task)
    assert task_from(file, ZygoteOrder) == (task, ZYGOTE)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    with pytest.raises(Broken, match="a task with a ZygoteOrder, and not a BuildOrder"):
        task_from(task_file(task), BuildOrder)


# Programs


def program(module: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-m", f"aenv.isolation.sandbox.{module}", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def test_a_launcher_says_what_is_wrong_with_its_order() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.send(said(ZYGOTE, has_rights="yes"))
        done = program("launcher", str(theirs.fileno()), pass_fds=(theirs.fileno(),))
        answer = decode(ours.recv(MAX_BYTES), NotStarted)
    assert (done.returncode, done.stderr) == (1, "")
    assert answer.error == "ZygoteOrder.has_rights is of the wrong type"


def test_what_mounts_overlays_says_what_is_wrong_with_its_plan(tmp_path: Path) -> None:
    plan = tmp_path / "overlays.json"
    plan.write_bytes(said(OverlayPlan({}, {}), kept={"/a": 1}))
    done = program("overlay_run", str(plan), "--", "/bin/true", input="+")
    assert (done.returncode, done.stderr) == (
        1,
        "cannot start '/bin/true': OverlayPlan.kept['/a'] is of the wrong type\n",
    )


def test_what_enters_an_instance_says_what_is_wrong_with_its_order(tmp_path: Path) -> None:
    (tmp_path / "order").write_bytes(b'{"is": "EnterOrder", "pid": 1}')
    words = f"exec {sys.executable} -P -m aenv.isolation.sandbox.enter 3< {tmp_path}/order 4> {tmp_path}/begun"
    done = subprocess.run(["/bin/sh", "-c", words], capture_output=True, text=True, check=False)
    reason = (
        "EnterOrder has other fields than pid, start_time, open_files, shares_network, groups, command, terminal"
    )
    assert (done.returncode, done.stderr) == (126, f"the instance cannot be entered: {reason}\n")


@pytest.mark.parametrize(
    "module", ["sandbox.enter", "sandbox.overlay_run", "sandbox.relay", "rootfs.unpack_program"]
)
def test_a_program_that_is_told_one_thing_does_not_load_what_others_are_told(module: str) -> None:
    code = f"import sys, aenv.isolation.{module}; print(*(name for name in sys.modules if 'sandbox.' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert "system" in loaded and not loaded & {"protocol", "orders"}


# What a sidecar answers

REPLY = CommandReply(0, packed(b"\xff"), packed(b""), truncated=False)


def test_the_reply_of_a_sidecar_is_read_as_it_was_written() -> None:
    assert CommandReply.read(json.loads(json.dumps(vars(REPLY)))) == REPLY
    python = PythonReply(**vars(REPLY), answer="[1]")
    assert PythonReply.read(json.loads(json.dumps(vars(python)))) == python
    assert unpacked(REPLY.stdout) == b"\xff"


@pytest.mark.parametrize("change", [{"exit_code": "0"}, {"stdout": None}, {"stderr": 1}, {"truncated": 0}])
def test_the_reply_of_a_sidecar_that_was_taken_over_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(NetworkError, match="cannot be read"):
        CommandReply.read({**vars(REPLY), **change})
    with pytest.raises(NetworkError, match="cannot be read"):
        PythonReply.read({**vars(REPLY), "answer": "", **change})
    with pytest.raises(NetworkError, match="cannot be read"):
        PythonReply.read({**vars(REPLY), "answer": None})
    with pytest.raises(NetworkError, match="cannot be read"):
        unpacked("no base64")


# What is written down

OLD = (
    b'{"socket": "/tmp/aenv-socket-x/socket"}\n'
    b'{"pid": 71, "start_time": 8812, "environment": "echo@1.0.0", "group": "instance-7-1-ab", "owner": 165536, '
    b'"root": "host", "not_enforced": ["cpu: no controller"], "egress": ["example.com"], "open_files": 4096, '
    b'"host_network": false}\n'
    b'{"second": {"pid": 72, "start_time": 8813}}\n'
    b'{"tools": [{"name": "echo"}]}\n'
)
"""As version 1.0.0 wrote it for an instance with a sidecar."""
STATES = InstanceState(
    socket="/tmp/aenv-socket-x/socket",
    pid=71,
    start_time=8812,
    environment="echo@1.0.0",
    group="instance-7-1-ab",
    owner=165536,
    root="host",
    not_enforced=("cpu: no controller",),
    egress=("example.com",),
    open_files=4096,
    host_network=False,
    tools=[{"name": "echo"}],
    sidecar=SidecarProcess(72, 8813),
)


def test_what_version_1_0_0_wrote_down_is_read() -> None:
    assert instance_state.read(OLD.splitlines()) == STATES


def test_what_version_1_0_0_wrote_down_of_an_instance_in_gvisor_is_read() -> None:
    lines = [
        b'{"not_enforced": []}',
        b'{"isolation": "gvisor", "group": "g", "root": "host", "runtime": ["python"]}',
    ]
    found = instance_state.read(lines)
    assert (found.isolation, found.runtime, found.not_enforced) == ("gvisor", ("python",), ())


def test_a_sidecar_that_was_not_used_yet_is_known_by_the_engine_that_holds_its_socket() -> None:
    for name in ("second", "sidecar"):
        line = json.dumps({name: {"engine": 5, "since": 6}}).encode()
        assert instance_state.read([line]).sidecar == AwaitedSidecar(5, 6)


def test_a_sidecar_that_had_ended_before_it_was_written_down_has_no_start_time() -> None:
    assert instance_state.read([b'{"second": {"pid": 5, "start_time": null}}']).sidecar == SidecarProcess(5, None)


def test_a_state_is_read_as_it_was_written_and_names_only_what_is_known() -> None:
    assert instance_state.read([STATES.line()]) == STATES
    assert InstanceState(pid=1).line() == b'{"pid": 1}\n'
    assert InstanceState().line() == b"{}\n"


def test_a_later_line_adds_to_those_before_it() -> None:
    first, later = InstanceState(pid=1, start_time=2, tools=[]), InstanceState(pid=3)
    assert first.updated(later) == InstanceState(pid=3, start_time=2, tools=[])
    assert instance_state.read([first.line(), later.line()]) == first.updated(later)
    assert first.updated(later).leader == Process(3, 2)


@pytest.mark.parametrize(
    "spoilt",
    [
        *(b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"unknown": 1}'),
        *(b'{"pid": "1"}', b'{"pid": true}', b'{"pid": 1e9}', b'{"socket": 5}', b'{"group": {}}'),
        *(b'{"tools": 5}', b'{"tools": [1]}', b'{"egress": "all"}', b'{"not_enforced": [1]}'),
        *(b'{"sidecar": 5}', b'{"sidecar": {"pid": "1", "start_time": 2}}', b'{"second": {"pid": 1}}'),
    ],
)
def test_what_code_in_an_instance_has_spoilt_counts_for_nothing(spoilt: bytes) -> None:
    assert instance_state.read([STATES.line(), spoilt]) == STATES


def test_a_folder_that_is_found_later_tells_what_was_written(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path, "one")
    folder.make()
    folder.write_state(InstanceState(pid=1, start_time=2))
    folder.write_state(InstanceState(sidecar=SidecarProcess(3, 4)))
    found = InstanceFolder(tmp_path, "one").read_state()
    assert (
        found == replace(folder.read_state()) == InstanceState(pid=1, start_time=2, sidecar=SidecarProcess(3, 4))
    )
    (folder.path / STATE).unlink()
    assert InstanceFolder(tmp_path, "one").read_state() == InstanceState()


def test_a_ready_line_tells_functions_and_rewards_beside_the_tools() -> None:
    offers = {kind: [{"name": kind, "description": "d"}] for kind in ("tools", "functions", "rewards")}
    said = protocol.ready(json.dumps({"ready": True, "pid": 1, **offers}).encode())
    assert isinstance(said, protocol.Ready)
    assert vars(said) == offers
    assert protocol.ready(b'{"ready": true, "tools": []}') == protocol.Ready([])
    with pytest.raises(Broken, match="a reward without a name"):
        protocol.ready(json.dumps({"ready": True, **offers, "rewards": [{}]}).encode())


def test_what_a_hub_says_of_a_version_is_read_once_and_leniently() -> None:
    told = HubVersion.of(
        {"name": "a", "version": "1", "status": 6, "tags": ["x"], "tools": [{"name": "t"}], "b": 2}
    )
    assert (told.status, told.tags, told.offers) == (6, ("x",), (HubOffer("tool", "t", ""),))
    assert told.sent["b"] == 2
    odd = HubVersion.of(
        {"name": "a", "version": "1", "tags": "x", "tools": None, "size_bytes": "9", "changes": [1]}
    )
    assert (odd.tags, odd.offers, odd.size_bytes, odd.changes) == ((), (), 0, {})
    for nothing in (None, [], {"name": "a"}, {"version": "1"}, {"name": 1, "version": "1"}):
        with pytest.raises(NetworkError, match="without a name or a version"):
            HubVersion.of(nothing)


class TestRecordsOfInstances:
    GRANT = RecordedGrant(["other@^1"], calls=5, depth=2, seconds=60.0, instances=3, author="ada")
    PARTS = RecordedParts("", {"calc": RecordedPart("gsm-tools@1.0.0", shared=True, variables={"SEED": "1"})})

    def test_a_record_is_read_as_it_was_written_with_its_grant_and_its_parts(self) -> None:
        record = Record("a", "n", "g", "", grants=self.GRANT, parts=self.PARTS)
        written = json.loads(json.dumps(record.dump()))
        assert written["grants"]["environments"] == ["other@^1"]
        assert written["parts"]["named"] == {
            "calc": {"env": "gsm-tools@1.0.0", "shared": True, "variables": {"SEED": "1"}}
        }
        assert Record.load(written, 0) == record

    def test_a_record_has_neither_where_its_environment_has_none(self) -> None:
        read = Record.load(Record("a", "n", "g", "").dump(), 0)
        assert (read.grants, read.parts, read.may_have_children) == (None, None, False)

    def test_what_a_newer_version_has_added_to_a_grant_is_left_out(self) -> None:
        written = Record("a", "n", "g", "", grants=self.GRANT, parts=self.PARTS).dump()
        written["grants"]["more"] = written["parts"]["named"]["calc"]["more"] = 1
        read = Record.load(written, 0)
        assert (read.grants, read.parts) == (self.GRANT, self.PARTS)
