"""Attacks by system calls, and on the host's settings."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.attacks import names
from tests.attacks.engines import AttackedEngine
from tests.attacks.outside import THROWAWAY, Outside
from tests.ordinary import OrdinaryUser

WITH_TERMINAL = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]


@pytest.fixture(scope="module")
def verdicts(engine: AttackedEngine, instance: str, given: dict[str, Any]) -> Any:
    return {how: engine.attack(instance, "kernel", names("kernel"), given, how) for how in ("tool", "exec")}


@pytest.mark.parametrize("how", ["tool", "exec"])
@pytest.mark.parametrize("name", names("kernel"))
def test_an_attack_by_system_calls_is_contained(verdicts: Any, name: str, how: str) -> None:
    assert verdicts[how][name]["succeeded"] is False, verdicts[how][name]["said"]


# Once: without the sandbox it does not matter whose engine it is.
@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", names("kernel"))
def test_an_attack_by_system_calls_succeeds_outside(outside: Outside, user: OrdinaryUser, name: str) -> None:
    if name == "use_setuid_program":  # root has all rights anyway
        outside.attack("kernel", name, user.command())
    elif name == "open_terminal_of_host":
        outside.attack("kernel", name, WITH_TERMINAL)
    else:
        outside.attack("kernel", name, THROWAWAY)
