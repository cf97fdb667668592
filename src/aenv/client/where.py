"""Where to connect, and with which key: the one order of the SDK and the command line, highest first.

1. an argument of `Environment`, or an option of the command line
2. a variable: DUMMY_INSTANCE_IP for a runtime, AENV_SYSTEM_URL for a gateway, HUB_BACKEND for a hub
3. the login: cli_config.json of this user, which `aenv login` writes, else of this machine (/etc/aenv)
4. no address: the caller uses this user's own platform

A file in the current folder gives no address and no key: it may have come with another person's code, and would
send this user's code, variables and keys to where that person says.

An address knows its source, so that a failed connection can name it.
Not here: starting this user's own platform (`embedded.py`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import InvalidRequest
from ..base.settings import DIRECT_MODE_VARIABLE, HUB_VARIABLE, ClientSettings
from .address import Located, control_origin

LOGIN_FILE = "cli_config.json"
FROM_LOGIN = ", which aenv login writes"
"""How the source of an address ends that `aenv logout` removes."""
MACHINE_FILE = Path("/etc/aenv") / LOGIN_FILE
_UNCHOSEN = "https://localhost:8080"  # the published command line writes it into every file by itself


@dataclass(frozen=True)
class Login:
    """The addresses and the key in a cli_config.json."""

    gateway: Located | None = None
    hub: Located | None = None
    api_key: str | None = field(default=None, repr=False)

    def is_for(self, url: str | None) -> bool:
        """Whether the key may go to `url`: one of the addresses in the same file, or any if the file has none."""
        own = [each for each in (self.gateway, self.hub) if each]
        return not own or url is None or any(_same(url, each) for each in own)


@dataclass(frozen=True)
class Where:
    """What to connect to, and the key to send there."""

    url: Located | None = None
    """The gateway or the hub; None is this user's own platform."""
    api_key: str | None = field(default=None, repr=False)
    runtime: Located | None = None
    """The runtime of direct mode, which needs no gateway."""


def find(
    known: ClientSettings,
    aenv_url: str | None = None,
    api_key: str | None = None,
    *,
    runtime_url: str | None = None,
    login: Login | None = None,
) -> Where:
    """The gateway or the runtime. With `runtime_url=""` it is never a runtime, also if the variable names one."""
    runtime = _located(runtime_url, "the argument runtime_url")
    if not runtime and not aenv_url and runtime_url is None:
        runtime = _located(known.direct_address, f"the variable {DIRECT_MODE_VARIABLE}")
    if runtime:
        return Where(api_key=api_key or known.api_key, runtime=runtime)
    login = saved_login(known.home) if login is None else login
    url = _located(aenv_url, "the argument aenv_url") or _gateway_variable(known)
    return _with_key(known, url, api_key, login, login.gateway)


def find_hub(known: ClientSettings, url: str | None, api_key: str | None, login: Login) -> Where:
    """The hub. A gateway has one too, so that an address of a gateway counts after an address of a hub."""
    variable = _located(known.hub_url, f"the variable {HUB_VARIABLE}") or _gateway_variable(known)
    return _with_key(
        known, _located(url, "the command line") or variable, api_key, login, login.hub or login.gateway
    )


def _with_key(
    known: ClientSettings, url: Located | None, api_key: str | None, login: Login, fallback: Located | None
) -> Where:
    """`url`, else `fallback` of the login, with the key for it."""
    url = url or fallback
    key = api_key or known.api_key
    if not key and login.is_for(url):
        key = login.api_key
    return Where(url, key)


def _gateway_variable(known: ClientSettings) -> Located | None:
    return _located(known.system_url, "the variable AENV_SYSTEM_URL")


def _located(address: str | None, source: str) -> Located | None:
    """`address` with its source, unless it has one."""
    if not address:
        return None
    return address if isinstance(address, Located) else Located(address, source)


def login_file(home: Path) -> Path:
    """The file that a login is read from: this user's, else the machine's."""
    own = home.expanduser() / LOGIN_FILE
    return MACHINE_FILE if not own.is_file() and MACHINE_FILE.is_file() else own


def saved_login(home: Path) -> Login:
    """What `aenv login` has saved for this user, else what the machine's administrator has."""
    file = login_file(home)
    _, values = read(file)
    hub = values.get("hub_config")
    hub = hub if isinstance(hub, dict) else {}
    saved = (values.get("system_url"), hub.get("hub_backend"), hub.get("api_key"))
    if not all(isinstance(value, str | None) for value in saved):
        raise InvalidRequest(f"{str(file)!r}: system_url, hub_config.hub_backend and its api_key must be strings")
    url, backend, api_key = saved
    source = repr(str(file)) if file == MACHINE_FILE else f"{str(file)!r}{FROM_LOGIN}"
    return Login(
        _located(url, source), _located(backend if backend != _UNCHOSEN else None, source), api_key or None
    )


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
