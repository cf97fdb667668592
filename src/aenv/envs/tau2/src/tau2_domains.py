"""The domains: which there are, what tools they have, and where their files are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import tau2_airline
import tau2_mock
import tau2_retail
import tau2_telecom
from tau2_airline import AirlineTools
from tau2_mock import MockTools, MockUserTools
from tau2_retail import RetailTools
from tau2_telecom_agent import TelecomTools
from tau2_telecom_scene import TelecomUserTools
from tau2_toolkit import Toolkit, ToolSpec
from tau2_world import Source

from aenv import ToolError

_NO_DATA = "no data for tau2: run 'aenv data pull tau2', or set TAU2_DATA_DIR to a folder that has it"


@dataclass(frozen=True)
class Domain:
    """What is known of a domain without its files."""

    name: str
    folder: str
    agent: type[Toolkit]
    user: type[Toolkit] | None
    load: Callable[[Path], Source]
    has_solo: bool


_ALL = (
    Domain("mock", "mock", MockTools, MockUserTools, tau2_mock.load, True),
    Domain("airline", "airline", AirlineTools, None, tau2_airline.load, False),
    Domain("retail", "retail", RetailTools, None, tau2_retail.load, False),
    Domain(
        *("telecom", "telecom", TelecomTools, TelecomUserTools),
        partial(tau2_telecom.load, workflow=False),
        has_solo=True,
    ),
    Domain(
        *("telecom-workflow", "telecom", TelecomTools, TelecomUserTools),
        partial(tau2_telecom.load, workflow=True),
        has_solo=True,
    ),
)
DOMAINS = {domain.name: domain for domain in _ALL}


def data_folder(variables: Mapping[str, str]) -> Path:
    """The folder that has `domains` and `user_simulator`: what TAU2_DATA_DIR names, or its `tau2`."""
    given = variables.get("TAU2_DATA_DIR")
    if not given:
        raise ToolError(_NO_DATA)
    for folder in (Path(given) / "tau2", Path(given)):
        if (folder / "domains").is_dir():
            return folder
    raise ToolError(f"{_NO_DATA}; {given!r} has neither 'tau2/domains' nor 'domains'")


@cache
def source(folder: Path, domain: str) -> Source:
    """A domain's files. One for the whole process: a zygote that has read them hands them to its instances."""
    known = DOMAINS[domain]
    place = folder / "domains" / known.folder
    if not place.is_dir():
        raise ToolError(f"{_NO_DATA}; {str(folder)!r} has no 'domains/{known.folder}'")
    return known.load(place)


@cache
def specs(domain: str, *, solo: bool) -> dict[str, ToolSpec]:
    """The tools that an agent has: in solo mode also those of the user."""
    known = DOMAINS[domain]
    borrowed = known.user.specs() if solo and known.user else {}
    return {**known.agent.specs(), **borrowed}


@cache
def user_specs(domain: str) -> dict[str, ToolSpec]:
    """The tools that a user has."""
    known = DOMAINS[domain]
    return known.user.specs() if known.user else {}
