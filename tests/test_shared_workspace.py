"""Parts with `"workspace": "shared"` work in the workspace of the whole; where that cannot be they are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment, compose
from aenv.base.errors import AEnvError, Unsupported
from aenv.isolation.sandbox import volumes
from tests.composed_projects import SAYS, part, project, url_of
from tests.gateways import Gateway, leftovers, running_gateway
from tests.relayed import until

pytestmark = pytest.mark.slow  # instances are programs
needs_volumes = pytest.mark.skipif(bool(volumes.why_not()), reason=volumes.why_not())
USES = [
    {"env": "left", "as": "l", "workspace": "shared"},
    {"env": "right", "as": "r", "workspace": "shared"},
    {"env": "right", "as": "apart"},
]


def folders(tmp_path: Path) -> list[Path]:
    deep = [{"env": "whole", "as": "w", "workspace": "shared"}]
    return [
        part(tmp_path, "left"),
        part(tmp_path, "right"),
        project(tmp_path, "whole", SAYS, uses=USES),
        project(tmp_path, "deep", SAYS, uses=deep),
    ]


@pytest.fixture(params=["process", pytest.param("native", marks=needs_volumes)])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", *folders(tmp_path), engine=request.param) as running:
        yield running


async def test_what_one_part_writes_the_others_and_the_whole_read(gateway: Gateway) -> None:
    async with Environment("whole", aenv_url=url_of(gateway)) as env:
        await env.call_tool("l_write", {"name": "note", "text": "from the left"})
        for tool in ("r_read", "read"):
            assert (await env.call_tool(tool, {"name": "note"})).text == "from the left"
        await env.call_tool("r_write", {"name": "note", "text": "from the right"})
        assert (await env.call_tool("l_read", {"name": "note"})).text == "from the right"
        assert (await env.call_tool("apart_read", {"name": "note"})).is_error
        assert [one["path"] for one in await env.list_files()] == ["note"]
        async with Environment("whole", aenv_url=url_of(gateway)) as other:
            assert (await other.call_tool("r_read", {"name": "note"})).is_error


async def test_the_files_of_a_part_are_those_of_the_whole_and_stay_when_the_part_ends(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with Environment("whole", aenv_url=url_of(gateway)) as env:
        await env.call_tool("write", {"name": "note", "text": "mine"})
        left = await child(gateway, "left")
        async with Environment("left", attach=left, aenv_url=url_of(gateway)) as seen:
            assert [one["path"] for one in await seen.list_files()] == ["note"]
            assert (await seen.exec("cat note")).stdout == "mine"
            (tmp_path / "sent").write_text("by the client")
            await seen.upload(tmp_path / "sent", "deep/sent")
        await gateway.ask("DELETE", f"/env-instance/{left}")
        assert (await env.call_tool("r_read", {"name": "note"})).text == "mine"
        assert (await env.call_tool("r_read", {"name": "deep/sent"})).text == "by the client"
        kept = kept_in(gateway)
        assert kept
    assert not [path for path in kept if path.exists()]


async def test_a_part_that_is_composed_itself_hands_the_workspace_on(gateway: Gateway) -> None:
    async with Environment("deep", aenv_url=url_of(gateway)) as env:
        await env.call_tool("w_l_write", {"name": "note", "text": "from below"})
        assert (await env.call_tool("read", {"name": "note"})).text == "from below"


async def test_compose_shares_it_between_all_parts(gateway: Gateway) -> None:
    async with compose("left", "right", name="two", workspace="shared", aenv_url=url_of(gateway)) as env:
        await env.call_tool("left_write", {"name": "note", "text": "for you"})
        assert (await env.call_tool("right_read", {"name": "note"})).text == "for you"


# The native engine, against a part that attacks

ATTACK = """
import errno, os, stat
from aenv import register_tool


@register_tool
def run(code: str) -> dict:
    "Run it; `said` is returned."
    names = {"os": os, "errno": errno, "stat": stat}
    exec(code, names)
    return {"said": names["said"]}
"""
FILL = """
written = 0
try:
    with open("filled", "wb", buffering=0) as file:
        while True:
            written += file.write(bytes(1 << 20))
except OSError as error:
    said = [error.errno == errno.ENOSPC, written >> 20]
os.unlink("filled")
"""
DEVICE = """
try:
    os.mknod("disk", 0o666 | stat.S_IFBLK, os.makedev(7, 0))
    os.close(os.open("disk", os.O_RDONLY))
    said = "opened"
except OSError as error:
    said = error.errno in (errno.EPERM, errno.EACCES)
"""
PLANT = """
os.symlink("/environment/src/environment.py", "code")
os.symlink("/tmp/own", "link")
os.symlink("../../../../../../etc/hostname", "up")
with open("program", "wb") as file:
    file.write(open("/usr/bin/id", "rb").read())
os.chmod("program", 0o6755)
said = os.stat("program").st_uid
"""
SEEN = """
import os, subprocess
open("/tmp/own", "w").write("of this one")
mounts = [line.split() for line in open("/proc/self/mountinfo")]
said = {
    "owner": os.stat("program").st_uid,
    "privileges": subprocess.run(["./program", "-u"], capture_output=True, text=True).stdout.strip(),
    "link": open("link").read(),
    "code": "of another" in open("code").read(),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[0],
    "options": [line[5].split(",") for line in mounts if line[4] == "/workspace"],
    "others": [line[4] for line in mounts if "/run/instances/" in line[3]],
}
"""


@needs_volumes
async def test_a_part_reaches_nothing_of_another_but_the_workspace_and_fills_no_more_than_its_size(
    tmp_path: Path,
) -> None:
    uses = [{"env": name, "as": name, "workspace": "shared"} for name in ("bad", "good")]
    made = [
        project(tmp_path, "bad", ATTACK),
        project(tmp_path, "good", ATTACK + "# of another\n"),
        project(tmp_path, "whole", SAYS, uses=uses, deployConfig={"ephemeralStorage": "32Mi"}),
    ]
    async with running_gateway(tmp_path / "home", *made, engine="native") as gateway:
        async with Environment("whole", aenv_url=url_of(gateway)) as env:

            async def run(part: str, code: str) -> Any:
                return json.loads((await env.call_tool(f"{part}_run", {"code": code})).text)["said"]

            full, written = await run("bad", FILL)
            assert full
            assert 16 <= written <= 32
            assert await run("bad", DEVICE) is True
            assert await run("bad", PLANT) == 0
            seen = await run("good", SEEN)
            # A link leads to what is the reader's own; who runs a program is who they are, and no one else.
            assert (seen["owner"], seen["privileges"], seen["link"], seen["code"]) == (0, "0", "of this one", True)
            assert (seen["processes"], seen["others"]) == (1, [])
            [options] = seen["options"]
            assert {"nosuid", "nodev"} <= {*options}
            for link in ("up", "link", "code"):  # and the gateway follows none
                with pytest.raises(AEnvError, match="is not a regular file"):
                    await env.download(link, tmp_path / "stolen")
            assert not [
                path for path in Path("/proc/self/mounts").read_text().splitlines() if "workspace.vol" in path
            ]
            assert devices_of(gateway)
        await until(lambda: not devices_of(gateway))  # the kernel lets a device go a moment after its last mount


@needs_volumes
async def test_a_whole_that_is_killed_takes_parts_and_workspace_with_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", *folders(tmp_path), engine="native") as gateway:
        data = await gateway.create("whole")
        [kept] = kept_in(gateway)
        state = (kept.parent / "state.jsonl").read_text().splitlines()
        [pid] = {told["pid"] for told in map(json.loads, state) if "pid" in told}
        os.kill(pid, signal.SIGKILL)
        while (await gateway.ask("GET", f"/env-instance/{data['id']}"))[1]["data"]["status"] == "Running":
            pass  # each asks again: the gateway notices by itself
        while leftovers(gateway.home):
            await gateway.ask("GET", "/env-instance/*/list")
        await until(lambda: not devices_of(gateway))
        assert kept_in(gateway) == []


async def test_where_there_are_no_volumes_it_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes, "_CONTROL", str(tmp_path / "nowhere"))  # as in a container without devices
    async with running_gateway(tmp_path / "home", *folders(tmp_path), engine="native") as gateway:
        with pytest.raises(
            Unsupported,
            match=r"cannot share a workspace here \(field 'uses.workspace' of 'whole@.*load the module",
        ):
            await Environment("whole", aenv_url=url_of(gateway)).initialize()
        assert (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"] in ([], None)


async def child(gateway: Gateway, name: str) -> str:
    """The id of the one instance of this environment."""
    _, reply = await gateway.ask("GET", "/env-instance/*/list")
    [id] = [one["id"] for one in reply["data"] if one["env"]["name"] == name]
    return str(id)


def kept_in(gateway: Gateway) -> list[Path]:
    """What on the host's disk keeps the files of shared workspaces."""
    instances = gateway.home / "run" / "instances"
    return [*instances.glob("*/workspace.volume")] or [*instances.glob("whole-*/workspace")]


def devices_of(gateway: Gateway) -> list[str]:
    """Loop devices of its volumes."""
    told = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True, text=True
    )
    return [line for line in told.stdout.splitlines() if str(gateway.home) in line]
