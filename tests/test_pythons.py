"""Which Python an environment asks for, and which interpreter of the host is used for it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from aenv.artifacts.pythons.choosing import Pythons
from aenv.artifacts.pythons.interpreters import find
from aenv.artifacts.pythons.wanted import WantedPython, wanted
from aenv.base.config import load_project
from aenv.base.errors import InvalidRequest
from aenv.cli import scaffold
from tests.gateways import make_project

OURS = sys.version_info[:2]
NEXT = (OURS[0], OURS[1] + 1)


def program(path: Path, minor: tuple[int, int], **said: str) -> Path:
    """Something that answers as a Python of that version does, and leaves a mark beside it."""
    path.parent.mkdir(parents=True)
    told = {
        "version": f"{minor[0]}.{minor[1]}.0",
        "executable": str(path),
        "prefix": str(path.parent.parent),
        "library": str(path.parent.parent / "lib"),
        "platform": "cpython-399 linux-x86_64",
        **said,
    }
    path.write_text(f"#!/bin/sh\n: > '{path}.was-run'\necho '{json.dumps(told)}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM python:3.12-slim\nCOPY . .", (3, 12)),
        ("from --platform=linux/amd64 docker.io/library/python:3.13 AS last", (3, 13)),
        ("FROM python:3.10 AS build\nFROM python:3.14-alpine\n", (3, 14)),
        ("FROM debian:12\nRUN apt-get install python3", None),
        ("FROM python:latest", None),
    ],
)
def test_the_last_python_of_a_dockerfile_counts(tmp_path: Path, text: str, expected: object) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    (tmp_path / "other").write_text("FROM python:3.11")
    asked = wanted(tmp_path)
    assert (asked and asked.minors) == (expected and (expected,))
    other = wanted(tmp_path, "other")
    assert other and other.minors == ((3, 11),)


@pytest.mark.parametrize(
    ("requires", "accepted", "refused"),
    [
        (">=3.11", [11, 12, 14], [10]),
        (">=3.11,<3.13", [11, 12], [10, 13]),
        ("==3.12.*", [12], [11, 13]),
        ("~=3.12", [12, 13], [11]),
        ("~=3.12.1", [12], [11, 13]),
        (">3.11, !=3.13.*", [12, 14], [11, 13]),
        ("<=3.12.4,>=3.9", [9, 12], [8, 13]),
        ("!=3.12.1", [11, 12], []),
    ],
)
def test_requires_python_is_read(tmp_path: Path, requires: str, accepted: list[int], refused: list[int]) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "x"\nrequires-python = "{requires}"\n')
    asked = wanted(tmp_path)
    assert asked
    assert {(3, minor) for minor in accepted} <= {*asked.minors}
    assert not {(3, minor) for minor in refused} & {*asked.minors}


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert wanted(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = "three"')
    with pytest.raises(InvalidRequest, match="requires-python: 'three' is not a comparison"):
        wanted(tmp_path)


def test_no_link_leads_out_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside").write_text("FROM python:3.12")
    (project / "Dockerfile").symlink_to(tmp_path / "outside")
    assert wanted(project) is None
    assert wanted(project, "../outside") is None
    (project / "inside").write_text("FROM python:3.12")
    (project / "linked").symlink_to("inside")
    assert wanted(project, "linked")


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 1_000_000 + "FROM x",
        "FROM " + "--a " * 200_000,
        "FROM " + "a/" * 400_000,
        "FROM python:" + "9" * 10_000 + ".1",
        "\0" * 1000,
    ],
)
def test_no_dockerfile_holds_up_the_gateway(tmp_path: Path, text: str) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    assert wanted(tmp_path) is None


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "[project]\nrequires-python = '" + ">3," * 1000 + "'"])
def test_no_pyproject_holds_up_the_gateway(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidRequest):
        wanted(tmp_path)


ASKED = WantedPython("its Dockerfile asks for another", (NEXT,))
NAME = f"python{NEXT[0]}.{NEXT[1]}"


@pytest.mark.parametrize("place", ["on-path", ".pyenv/versions/1/bin", ".local/share/uv/python/1/bin"])
def test_one_that_is_here_is_found(tmp_path: Path, place: str) -> None:
    home = tmp_path / "user"
    made = program(home / place / NAME, NEXT, prefix=str(tmp_path / "prefix"))
    variables = {"HOME": str(home), "PATH": f"/nowhere:{home}/on-path"}
    found = find(ASKED, variables, tmp_path / "home").found
    assert found
    assert found.executable == made
    assert found.minor == NEXT


def test_a_stand_in_for_another_version_does_not_count(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.19", (3, 18))
    asked = WantedPython("it asks", ((3, 19),))
    assert find(asked, {"PATH": str(tmp_path / "bin")}, tmp_path / "home").found is None


def test_none_is_taken_from_a_folder_that_path_names_without_saying_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(tmp_path / "bin" / NAME, NEXT, prefix=str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    for path in (":", ".", "bin"):
        assert find(ASKED, {"PATH": path, "HOME": "user"}, tmp_path / "home").found is None
    assert not Path(f"{made}.was-run").exists()


@pytest.mark.parametrize("prefix", ["/", "/opt", "{user}", "{home}"])
def test_one_whose_folder_holds_more_than_an_interpreter_is_not_shown_to_instances(
    tmp_path: Path, prefix: str
) -> None:
    user, home = tmp_path / "user", tmp_path / "home"
    program(tmp_path / "bin" / NAME, NEXT, prefix=prefix.format(user=user, home=home))
    search = find(ASKED, {"PATH": str(tmp_path / "bin"), "HOME": str(user)}, home)
    assert search.found is None
    assert "its prefix" in search.refused[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot run for this user: it is about a gateway of root's")
@pytest.mark.parametrize("change", ["folder", "above", "owner", "file", "library"])
def test_root_neither_runs_nor_uses_what_another_user_can_change(tmp_path: Path, change: str) -> None:
    made = program(tmp_path / "a" / "bin" / NAME, NEXT)
    (tmp_path / "a" / "lib").mkdir()
    variables = {"PATH": str(made.parent)}
    assert find(ASKED, variables, tmp_path / "home").found
    Path(f"{made}.was-run").unlink()
    match change:
        case "folder":
            made.parent.chmod(0o777)
        case "above":
            made.parent.parent.chmod(0o707)
        case "owner":
            os.chown(made.parent, 12345, 12345)
        case "file":
            made.chmod(0o757)
        case "library":
            (tmp_path / "a" / "lib").chmod(0o777)
    search = find(ASKED, variables, tmp_path / "home")
    assert search.found is None
    assert "users other than root can write to" in search.refused[0]
    assert Path(f"{made}.was-run").exists() == (change == "library")  # only the program itself says where that is


async def test_what_was_missing_is_looked_for_again_after_a_while(tmp_path: Path) -> None:
    project = make_project(tmp_path, "asks")
    (project / "Dockerfile").write_text(f"FROM python:{NEXT[0]}.{NEXT[1]}")
    variables = {"PATH": str(tmp_path / "bin")}
    now = [0.0]
    pythons = Pythons(tmp_path / "home", variables, lambda: now[0])
    missing = (await pythons.choose(load_project(project))).problem
    assert "which this host does not have" in missing
    program(tmp_path / "bin" / NAME, NEXT, prefix="/")
    assert (await pythons.choose(load_project(project))).problem == missing
    now[0] = 601.0
    assert "holds more than an interpreter" in (await pythons.choose(load_project(project))).problem


def test_a_fresh_project_asks_for_the_python_that_it_gets() -> None:
    (text,) = [
        text for path, text in scaffold.render("default", "x", "1.0.0").items() if path.name == "Dockerfile"
    ]
    assert text.startswith(f"FROM python:{OURS[0]}.{OURS[1]}-slim\n")
