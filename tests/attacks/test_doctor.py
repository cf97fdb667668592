"""`aenv doctor --attack`: the list, run by the operator on a gateway that is thrown away."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aenv.attacks import verdicts, watched_gateway
from aenv.attacks.stage import Attacked, AttackStage
from aenv.attacks.verdicts import Verdict
from aenv.cli.commands import doctor
from aenv.cli.main import cli
from tests.attacks import ATTACKS
from tests.command_line import environ
from tests.native import group_name
from tests.ordinary import OrdinaryUser

pytestmark = pytest.mark.timeout(180)  # a whole run takes a quarter of a minute, or more where others work

# Rows of the table that only tests can tell, because an operator's host has nothing that would show them.
ONLY_TESTS = {
    *("mounts_over_files", "rights_left_by_run", "setuid_in_storage", "kernel_memory", "fill_storage"),
    *("pass_a_slow_descriptor", "fill_the_lookups", "take_all_epoll_watches", "take_built_in_name"),
}
# None of these may matter: they lead to the operator's own gateway.
VARIABLES = {
    "AENV_STORE": "redis://127.0.0.1:1/0",
    "AENV_BLOBS": "s3://nowhere",
    "AENV_SYSTEM_URL": "http://127.0.0.1:1",
    "AENV_API_KEY": "wrong",
    "DUMMY_INSTANCE_IP": "127.0.0.1:1",
}


class Operator:
    """Runs the command, as root or as an ordinary user, with a folder for temporary files."""

    def __init__(self, user: OrdinaryUser | None, folder: Path) -> None:
        self.user = user
        self.folder = folder
        self.home = folder.parent / f"{folder.name}-home"

    def start(self, *options: str) -> subprocess.Popen[str]:
        given = {**VARIABLES, "TMPDIR": str(self.folder), "AENV_HOME": str(self.home)}
        command = ["-m", "aenv.cli", "doctor", "--attack", *options]
        if self.user:
            command = self.user.command(
                "env", *(f"{name}={value}" for name, value in given.items()), str(self.user.python), *command
            )
        else:
            command = [sys.executable, *command]
        return subprocess.Popen(
            command,
            env=environ(**given),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
        )

    def leaves_nothing(self) -> None:
        assert os.listdir(self.folder) == []
        assert not self.home.exists()  # what the operator keeps was not even looked at
        assert [*_processes_with(str(self.folder))] == []


@pytest.fixture(params=["root", "user"])
def operator(request: pytest.FixtureRequest, user: OrdinaryUser, tmp_path: Path) -> Operator:
    if request.param == "user":
        return Operator(user, user.make_folder("operator", 0o700))
    folder = tmp_path / "t"
    folder.mkdir()
    return Operator(None, folder)


def test_every_attack_of_the_list_is_held_or_said_not_to_be_enforced(operator: Operator) -> None:
    with operator.start("--json") as process:
        stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    said = json.loads(stdout)
    assert said["held"] is True
    found = {row["name"]: row for row in said["attacks"]}
    assert set(found) == {attack.name for attack in ATTACKS}
    for attack in ATTACKS:
        row = found[attack.name]
        if attack.name in ONLY_TESTS:
            assert row["state"] == "not run"
        elif row["state"] == "not run":  # a host may have no setuid program, and no file for root alone
            assert attack.name in ("read_private_system_files", "use_setuid_program")
        elif operator.user and not attack.for_user:
            assert (row["state"], "; " in row["said"]) == ("not enforced", True)
        else:
            assert row["state"] == "held", row
    controlled = [row for row in found.values() if row["control"] == "succeeds"]
    assert len(controlled) > 30  # so the attacks mean something here
    assert stderr.count("\nheld ") > 80  # progress, for who waits
    operator.leaves_nothing()
    home = Path(re.search(r"'(.*)'", found["read_gateway_store"]["said"])[1])  # type: ignore[index]
    assert home.is_relative_to(operator.folder)
    assert not [*Path("/sys/fs/cgroup").glob(f"**/{group_name(home)}")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_nothing_behind(operator: Operator, number: signal.Signals) -> None:
    with operator.start() as process:
        assert process.stderr
        for line in process.stderr:
            if "read_shadow" in line:  # instances run now
                break
        # And for a moment the folder by which a socket with a long path is reached.
        assert len([name for name in os.listdir(operator.folder) if name.startswith("aenv-attacks-")]) == 1
        process.send_signal(number)
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr
    operator.leaves_nothing()


class Weak(AttackStage):
    """A stage whose instances have the host's network, whatever was asked for."""

    @contextlib.asynccontextmanager
    async def instance(self, name: str = "attacked", **options: Any) -> AsyncIterator[Attacked]:
        async with super().instance("attacked-open" if name == "attacked" else name, **options) as made:
            yield made


async def test_a_wall_that_is_not_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    only = ("reach_host_loopback", "reach_host_addresses", "reach_unix_socket")
    found = []
    async with verdicts.staged(doctor._gateway) as stage:
        weak = Weak(stage.api, stage.url, stage.key, stage.folder, stage.given)
        async for verdict in verdicts.verdicts(weak, only):
            found.append(verdict)
    assert [verdict.state for verdict in found] == ["broken", "broken", "held"]
    assert "reached the host by 127.0.0.1" in found[0].said


async def test_attacks_whose_gateway_does_not_answer_are_unclear_and_not_held() -> None:
    async with verdicts.staged(doctor._gateway) as stage:
        gone = AttackStage(stage.api, "http://127.0.0.1:1", stage.key, stage.folder, stage.given)
        only = ("read_home_folder", "disk_fill", "kill_everything")
        found = [verdict async for verdict in verdicts.verdicts(gone, only)]
    assert {verdict.attack.name: verdict.state for verdict in found} == dict.fromkeys(only, "unclear")


def _found(*verdicts: Verdict) -> Any:
    async def found() -> Sequence[Verdict]:
        return verdicts

    return found


@pytest.mark.parametrize(
    ("state", "code"), [("held", 0), ("not enforced", 0), ("not run", 0), ("broken", 1), ("unclear", 1)]
)
def test_the_exit_code_is_1_when_an_attack_gets_through(
    monkeypatch: pytest.MonkeyPatch, state: Any, code: int
) -> None:
    monkeypatch.setattr(
        doctor, "_verdicts", _found(Verdict(ATTACKS[0], state, "why"), Verdict(ATTACKS[1], "held", ""))
    )
    done = CliRunner().invoke(cli, ["doctor", "--attack"], standalone_mode=False)
    assert done.return_value == code
    assert f"{ATTACKS[0].name}" in done.stdout
    assert (f"{ATTACKS[0].name} ({ATTACKS[0].tries}) is {state}: why" in done.stderr) is bool(code)
    said = json.loads(CliRunner().invoke(cli, ["doctor", "--attack", "--json"]).stdout)
    assert (said["held"], said["attacks"][0]["state"]) == (not code, state)


def test_every_attack_without_a_program_is_watched() -> None:
    without = {attack.name for attack in ATTACKS if not attack.has_program}
    assert without - ONLY_TESTS <= set(watched_gateway.WATCHED)


def _processes_with(text: str) -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text in path.read_bytes().decode(errors="replace"):
                yield path.parent.name
