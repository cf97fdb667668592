"""The Python that a record asks for, found on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.envs.swebench_data import RECORD

# isort: split
import swebench_pythons as pythons
import swebench_sites as sites
from swebench_records import record_of

Make = Callable[[Path, str], Path]


@pytest.fixture
def make() -> Make:
    """`make(place, "3.9.1")` writes a program that says it is that Python."""

    def made(place: Path, version: str) -> Path:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\necho {version}; echo {place}; echo {place.parent.parent}\n")
        place.chmod(0o755)
        return place

    return made


def environment(*lines: str) -> str:
    return "name: testbed\ndependencies:\n" + "".join(f"  - {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        (environment("pip=24.2=py39h06a4308_0", "python=3.9.20=he870216_1"), "3.9"),
        (environment("python=3.6"), "3.6"),
        (environment("python==3.10.4"), "3.10"),
        (environment("python-dateutil=2.8"), ""),
        ("", ""),
    ],
)
def test_a_record_asks_for_a_python_in_its_environment_file(text: str, minor: str) -> None:
    assert pythons.wanted(text) == minor


def test_interpreters_are_found_in_their_order(tmp_path: Path, make: Make) -> None:
    home = tmp_path / "home"
    uv = make(home / ".local/share/uv/python/cpython-2.1.4/bin/python2.1", "2.1.4")
    variables = {"HOME": str(home), "PATH": str(tmp_path / "bin")}

    def found() -> Path | None:
        interpreter = pythons.found("2.1", [tmp_path / "data"], variables)
        return interpreter and interpreter.path

    assert found() == uv
    pyenv = make(home / ".pyenv/versions/2.1.3/bin/python2.1", "2.1.3")
    assert found() == pyenv
    on_path = make(tmp_path / "bin/python2.1", "2.1.0")
    assert found() == on_path
    prepared = make(tmp_path / "data/pythons/2.1.1/bin/python2.1", "2.1.1")
    assert found() == prepared
    named = make(tmp_path / "mine/snake", "2.1.2")
    variables["SWEBENCH_PYTHONS"] = f"{tmp_path / 'nowhere'}:{named}"
    assert found() == named
    folder = make(tmp_path / "more/2.1.9/bin/python2.1", "2.1.9")
    variables["SWEBENCH_PYTHONS"] = str(tmp_path / "more")
    assert found() == folder


def test_what_does_not_work_or_is_another_version_is_passed_over(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "a/python2.1", "2.2.0")
    broken = make(tmp_path / "b/python2.1", "2.1.0")
    broken.write_text("#!/bin/sh\necho pyenv: version is not chosen >&2; exit 127\n")
    variables = {"PATH": f"{tmp_path / 'a'}:{tmp_path / 'b'}", "HOME": str(tmp_path)}
    assert pythons.found("2.1", [], variables) is None
    works = make(tmp_path / "c/python2.1", "2.1.7")
    found = pythons.found("2.1", [], {**variables, "PATH": f"{variables['PATH']}:{tmp_path / 'c'}"})
    assert found == pythons.Interpreter(works, "2.1.7", tmp_path)


def test_our_own_interpreter_is_one_of_them() -> None:
    own = pythons.own()
    assert own.minor == ".".join(map(str, sys.version_info[:2]))
    assert pythons.found(own.minor, [], {}) == own
    assert pythons.probed(Path(sys.executable), {}) == own


def test_condas_python_packages_are_pins_like_those_of_pip() -> None:
    text = environment("mpmath=1.3.0=py39h06a4308_0", "openssl=3.0.15=h5eee18b_0", "python=3.9.20=he870216_1")
    assert sites.pins(f"{text}  - pip:\n      - attrs==23.1.0\n") == {"mpmath": "1.3.0", "attrs": "23.1.0"}


def test_packages_are_those_of_the_interpreter_that_runs_them(tmp_path: Path, make: Make) -> None:
    python = pythons.probed(make(tmp_path / "snakes/bin/python2.1", "2.1.7"), {})
    (tmp_path / "venvs" / RECORD["instance_id"] / "lib" / "python2.1" / "site-packages").mkdir(parents=True)
    site = sites.build(record_of(RECORD), [tmp_path / "none", tmp_path], tmp_path / "site", None, python)
    assert site.python.resolve() == tmp_path / "snakes/bin/python2.1"
    assert site.packages == tmp_path / "site/lib/python2.1/site-packages"
    assert site.ready == tmp_path / "venvs" / RECORD["instance_id"] / "lib/python2.1/site-packages"
    assert (site.packages / "ready.pth").read_text() == f"{site.ready}\n"
    with pytest.raises(sites.NoSite, match="is of another Python than"):
        sites.build(record_of(RECORD), [tmp_path], tmp_path / "other", None)
