"""Bases that the host's own system stands for: it gives what they give, or says what is lacking."""

from __future__ import annotations

from pathlib import Path

import pytest

from aenv.base.errors import StartFailed
from aenv.isolation.rootfs.bases import Base, base, provide
from aenv.isolation.rootfs.build_steps import BuildState, BuildSteps
from aenv.isolation.rootfs.merged_view import MergedView
from aenv.isolation.rootfs.unpacking import UnpackLimits
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.rootfs.doing import FakeRun

TERMINAL = "registry.test/bench/t-bench/ubuntu-24-04:20250624"
PYTHON = "registry.test/bench/t-bench/python-3-13:20250620"


def _known(reference: str) -> Base:
    found = base(reference)
    assert found is not None
    return found


class Stand:
    """A system with some programs, on which bases are provided."""

    def __init__(self, folder: Path, *programs: str, system: bool = True) -> None:
        self.run = FakeRun()
        usr = folder / ("usr" if system else "root/usr")
        (usr / "bin").mkdir(parents=True)
        for name in programs:
            (usr / "bin" / name).write_text("")
        (folder / "root").mkdir(exist_ok=True)
        root = Rootfs("stand", (folder / "root",), {"/usr": (usr,)} if system else {})
        self.steps = BuildSteps(folder / "home", run=self.run, limits=UnpackLimits(), network=True)
        self.state = BuildState(root, "stand")
        self.said: list[str] = []

    async def provide(self, reference: str) -> None:
        await provide(_known(reference), self.state, self.steps, self.said.append)


def test_what_a_base_gives_is_known_by_its_name() -> None:
    assert (_known("ubuntu:24.04").folder, _known("ubuntu:24.04").programs) == ("/", ())
    assert dict(_known("python:3.13-slim").links) == {"python": "python3", "pip": "pip3"}
    assert _known(TERMINAL).folder == _known(PYTHON).folder == "/app"
    assert {"tmux", "asciinema"} == {*dict(_known(TERMINAL).programs)}
    assert {"tmux", "asciinema", "python3", "pip3"} == {*dict(_known(PYTHON).programs)}
    assert _known("team/python-3-13:1").folder == "/"
    assert base("node:20") is None and base("team/python-tools:1") is None


@pytest.mark.parametrize("system", [True, False])
async def test_links_and_the_folder_are_added_where_all_programs_are_there(tmp_path: Path, system: bool) -> None:
    stand = Stand(tmp_path, "tmux", "asciinema", "python3", "pip3", "pip", system=system)
    await stand.provide(PYTHON)
    view = MergedView(stand.state.root)
    assert stand.run.commands == [] and stand.said == []
    assert view.resolve("/usr/local/bin/python") == "/usr/bin/python3"
    assert view.find("/usr/local/bin/pip") is None  # there already, elsewhere
    assert stand.state.folder == "/app" and view.is_folder("/app")


async def test_what_is_lacking_is_installed_and_told(tmp_path: Path) -> None:
    stand = Stand(tmp_path, "tmux", "python3")
    await stand.provide(PYTHON)
    (command,) = stand.run.commands
    assert command.endswith(
        "apt-get install -q -y --no-install-recommends asciinema python3-pip python3-dev python3-venv"
    )
    assert stand.said[0].startswith(f"{PYTHON} has asciinema, python3-pip, python3-dev, python3-venv: ")
    assert "DEBIAN_FRONTEND" not in stand.state.known


async def test_what_cannot_be_installed_is_an_error_that_names_the_packages(tmp_path: Path) -> None:
    stand = Stand(tmp_path, "tmux")

    async def fails(*_: object, **__: object) -> int:
        return 100

    stand.steps = BuildSteps(tmp_path / "home", run=fails, limits=UnpackLimits(), network=True)
    with pytest.raises(StartFailed, match="install that there with: apt-get install asciinema"):
        await stand.provide(TERMINAL)


async def test_a_system_that_was_made_for_it_gets_what_any_base_has(tmp_path: Path) -> None:
    stand = Stand(tmp_path, "python3", system=False)
    await stand.provide("python:3.13-slim")
    assert len(stand.run.commands) == 1 and "python3-pip" in stand.run.commands[0]


async def test_of_any_other_base_on_the_host_it_is_noted(tmp_path: Path) -> None:
    stand = Stand(tmp_path, "python3")
    await stand.provide("python:3.13-slim")
    assert stand.run.commands == []
    assert stand.state.notes == ["python:3.13-slim has python3-pip, and the system that stands for it has not"]
    assert MergedView(stand.state.root).resolve("/usr/local/bin/python") == "/usr/bin/python3"
