"""Where the gateway is: what the caller gives, else a variable, else what `aenv login` keeps, else no address.

The same for the SDK and the command line. An address knows its source, so that a failed connection can name it.
Not here: starting this user's own platform, which is what no address means (`embedded.py`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import InvalidRequest
from ..base.settings import DIRECT_MODE_VARIABLE, ClientSettings
from .address import Located, control_origin

LOGIN_FILE = "cli_config.json"


@dataclass(frozen=True)
class Kept:
    """What a cli_config.json says about the gateway and the hub."""

    url: Located | None = None
    api_key: str | None = field(default=None, repr=False)
    others: tuple[str, ...] = ()
    """Further addresses that the key is for."""
    is_foreign: bool = False
    """Whether the file may have come with someone's code: it gets no key of ours, nor others one of its keys."""

    def is_for(self, url: str | None) -> bool:
        """Whether the key may go there: to the addresses that it is kept with, or anywhere if there are none."""
        own = [each for each in (self.url, *self.others) if each]
        return not own or url is None or any(_same(url, each) for each in own)


@dataclass(frozen=True)
class Where:
    """The gateway to use, or None for this user's own platform, and the key to send there."""

    url: Located | None
    api_key: str | None = field(default=None, repr=False)


def find(
    known: ClientSettings,
    given: str | None,
    api_key: str | None = None,
    *,
    argument: str = "the argument aenv_url",
    variable: tuple[str | None, str] | None = None,
    kept: Kept | None = None,
) -> Where:
    """The first address of the three; `variable` is another one than AENV_SYSTEM_URL, with its name.

    A key that is kept goes to the address that it is kept with, and to no other.
    """
    value, name = variable or (known.system_url, "AENV_SYSTEM_URL")
    kept = login(known.home) if kept is None else kept
    if given:
        url: Located | None = given if isinstance(given, Located) else Located(given, argument)
    elif value:
        url = Located(value, f"the variable {name}")
    else:
        url = kept.url
        if kept.is_foreign and url:
            return Where(url, api_key or kept.api_key)
    if not api_key and not known.api_key and not kept.is_foreign and kept.is_for(url):
        return Where(url, kept.api_key)
    return Where(url, api_key or known.api_key)


def runtime(known: ClientSettings, given: str | None) -> str | None:
    """The runtime of direct mode: "" for none, whatever the variable says."""
    if given is not None:
        return given if isinstance(given, Located) or not given else Located(given, "the argument runtime_url")
    direct = known.direct_address
    return Located(direct, f"the variable {DIRECT_MODE_VARIABLE}") if direct else None


def login(home: Path) -> Kept:
    """What `aenv login` has kept for this user."""
    file = home.expanduser() / LOGIN_FILE
    _, values = read(file)
    hub = values.get("hub_config")
    hub = hub if isinstance(hub, dict) else {}
    url, backend, key = values.get("system_url"), hub.get("hub_backend"), hub.get("api_key")
    if not all(isinstance(value, str | None) for value in (url, backend, key)):
        raise InvalidRequest(f"{str(file)!r}: system_url, hub_config.hub_backend and its api_key must be texts")
    found = Located(url, f"{str(file)!r}, which aenv login writes") if url else None
    return Kept(found, key or None, (backend,) if backend else ())


def read(file: Path) -> tuple[str, dict[str, Any]]:
    """Text and values of a cli_config.json; nothing when there is none. InvalidRequest when it is wrong."""
    try:
        with file.open(encoding="utf-8") as opened:
            owner, text = os.fstat(opened.fileno()).st_uid, opened.read()
        values = json.loads(text)
    except FileNotFoundError:
        return "", {}
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{str(file)!r} is not JSON: {error}") from error
    if owner not in (0, os.geteuid()):
        raise InvalidRequest(f"{str(file)!r} belongs to another user; remove it, or make it yours")
    if not isinstance(values, dict):
        raise InvalidRequest(f"{str(file)!r} must hold a JSON object")
    return text, values


def _same(one: str, other: str) -> bool:
    try:
        return control_origin(one) == control_origin(other)
    except InvalidRequest:
        return False
