"""What containers are made of, and how their ready line is read; no engine of containers takes part."""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.base.addresses import Origin
from aenv.base.config import Network
from aenv.base.container_start import READY_MARK, VARIABLE, ContainerStart
from aenv.base.errors import InvalidRequest, StartFailed
from aenv.base.http1 import Pool
from aenv.engines.base import InstanceSpec, ModelEndpoint, ResourceLimits
from aenv.engines.containers import container_plan
from aenv.engines.containers.container_labels import labels, safe_value
from aenv.engines.containers.ready_log import ReadyLog
from aenv.isolation.sandbox.protocol import NotReady, Ready


def spec(**changes: object) -> InstanceSpec:
    return InstanceSpec(**{"id": "demo-abc", "environment": "demo@1.2.0", "project": Path("/p"), **changes})  # type: ignore[arg-type]


def test_an_environment_without_an_image_runs_in_the_base_image_of_its_python() -> None:
    plan = container_plan.plan(spec(requirements=Path("/r")), base_image="base:py{python}")
    assert plan.image == f"base:py{sys.version_info.major}.{sys.version_info.minor}"
    assert plan.command == ("python3", "-m", "aenv.main", "/environment", "--requirements", "/requirements")
    assert [(str(mount.source), mount.target, mount.is_writable) for mount in plan.mounts] == [
        ("/p", "/environment", False),
        ("/r", "/requirements", False),
    ]


def test_an_environment_with_an_image_keeps_the_command_of_the_image() -> None:
    plan = container_plan.plan(spec(image="registry.example/t/demo:1"))
    assert (plan.image, plan.command, plan.mounts) == ("registry.example/t/demo:1", (), ())


def test_variables_of_the_creator_come_before_defaults_and_after_our_own() -> None:
    given_ = {"HOME": "/nowhere", "AENV_INSTANCE_ID": "another", "COLOUR": "blue"}
    variables = container_plan.plan(spec(environment_variables=given_, call_timeout=7.5)).variables
    assert (variables["HOME"], variables["COLOUR"]) == ("/nowhere", "blue")
    assert (variables["AENV_INSTANCE_ID"], variables["AENV_CALL_TIMEOUT"]) == ("demo-abc", "7.5")


def test_the_start_variable_tells_socket_arguments_history_and_ways_out() -> None:
    asked = spec(
        arguments=("--x", "two words"),
        keep_history=False,
        network=Network("egress", ("a.example",)),
        model=ModelEndpoint("http://m"),
    )
    variables = container_plan.plan(asked, socket="/run/aenv/socket").variables
    start = ContainerStart.parse(variables[VARIABLE])
    assert (start.socket, start.arguments, start.keep_history) == ("/run/aenv/socket", ("--x", "two words"), False)
    assert start.ways_out == {"3128": "/run/aenv-out/egress", "3129": "/run/aenv-out/model"}
    assert variables["HTTP_PROXY"] == "http://127.0.0.1:3128"


def test_arguments_that_fit_into_no_variable_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="arguments"):
        container_plan.plan(spec(arguments=("x" * 200_000,)))


def test_limits_that_nobody_sets_have_the_same_defaults_as_with_other_engines() -> None:
    limits = container_plan.limits(spec(limits=ResourceLimits(cpus=0.5, gpus=1)))
    assert limits == ResourceLimits(0.5, 4 << 30, 1 << 30, 1024, 4096, 1)


def test_storage_cannot_hide_what_the_instance_needs() -> None:
    with pytest.raises(StartFailed, match="needs '/workspace'"):
        container_plan.plan(spec(storage=Path("/s"), storage_place="/workspace/x"))


def test_labels_are_the_published_the_standard_and_the_creators() -> None:
    found = labels(spec(labels={"experiment": "a b"}, ttl=1800.0, owner="ada"))
    assert found["business/aenv-name"] == found["app.kubernetes.io/name"] == "demo"
    assert found["business/aenv-version"] == found["app.kubernetes.io/version"] == "1.2.0"
    assert (found["business/aenv-ttl"], found["business/aenv-owner"]) == ("1800s", "ada")
    assert found["aenv.label/experiment"] == "a b"
    assert safe_value("-a b/ü@1.0" + "x" * 80).startswith("a_b__")
    assert len(safe_value("y" * 80)) == 63


LINE = READY_MARK + b'{"ready": true, "tools": [{"name": "a"}]}\n'


@given(st.lists(st.integers(0, len(LINE) + 40)), st.binary(max_size=20), st.binary(max_size=20))
def test_the_ready_line_is_found_and_kept_out_however_the_output_is_cut(
    cuts: list[int], before: bytes, after: bytes
) -> None:
    before, after = before.replace(b"\x1e", b""), after.replace(b"\x1e", b"")
    whole = before + LINE + after
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    log = ReadyLog()
    shown = b"".join(log.feed(whole[a:b]) for a, b in itertools.pairwise(places)) + log.rest()
    assert shown == before + after
    assert log.said() == Ready([{"name": "a"}])


def test_a_byte_that_looks_like_the_mark_is_output() -> None:
    log = ReadyLog()
    assert log.feed(b"a\x1eb\x1e") + log.feed(b"c") + log.rest() == b"a\x1eb\x1ec"
    assert log.line is None


def test_a_ready_line_without_an_end_is_not_kept_in_memory() -> None:
    log = ReadyLog()
    log.feed(READY_MARK)
    for _ in range(6):
        log.feed(b"x" * (1 << 20))
    assert log.line is not None
    with pytest.raises(Exception, match="longer than"):
        log.said()


def start(folder: Path, code: str, told: ContainerStart) -> subprocess.Popen[bytes]:
    (folder / "environment.py").write_text(code)
    variables = {**os.environ, VARIABLE: told.text()}
    command = [sys.executable, "-m", "aenv.main", str(folder)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, cwd=folder)


def until_ready(process: subprocess.Popen[bytes]) -> tuple[ReadyLog, bytes]:
    log, shown = ReadyLog(), b""
    assert process.stdout
    while log.line is None and select.select([process.stdout], [], [], 60)[0]:
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, shown
        shown += log.feed(piece)
    return log, shown


SHOWS = """
import os, sys
from aenv import register_tool
print("no line break", end="", flush=True)

@register_tool
def seen() -> dict:
    "What it was given."
    return {"arguments": sys.argv[1:], "start": os.environ.get("AENV_START")}
"""


@pytest.mark.slow
async def test_a_runtime_serves_where_the_variable_says_and_hides_the_variable(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with start(tmp_path, SHOWS, ContainerStart(socket=str(place), arguments=("a", "--", "b"))) as process:
        try:
            log, shown = until_ready(process)
            assert shown == b"no line break"
            assert isinstance(said := log.said(), Ready)
            assert [tool["name"] for tool in said.tools] == ["seen"]
            async with Pool() as pool:
                response = await pool.request(Origin("localhost", socket=str(place)), "POST", "/tools/seen")
                reply = json.loads(await response.read())
            assert reply["data"]["structured"] == {"arguments": ["a", "--", "b"], "start": None}
        finally:
            process.kill()


@pytest.mark.slow
def test_a_runtime_that_cannot_load_says_so_on_standard_output(tmp_path: Path) -> None:
    with start(tmp_path, "raise RuntimeError('no database')", ContainerStart()) as process:
        log, _ = until_ready(process)
        assert isinstance(said := log.said(), NotReady)
        assert "no database" in said.error
        assert process.wait(timeout=60) == 1
