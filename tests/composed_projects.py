"""Projects to compose environments of, and pushes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aenv.artifacts import bundles
from aenv.base.http1 import Headers
from tests.gateways import Gateway, make_project

SAYS = """
import os
from pathlib import Path
from aenv import register_tool


@register_tool
def says() -> str:
    "Which one this is."
    return "TEXT"


@register_tool
def write(name: str, text: str) -> str:
    "Write a file into the workspace."
    Path(name).write_text(text)
    return os.getcwd()


@register_tool
def read(name: str) -> str:
    "Read a file of the workspace."
    return Path(name).read_text()


@register_tool
def folder() -> str:
    "Where it works."
    return os.environ["AENV_WORKSPACE"]
"""


def part(folder: Path, name: str, text: str = "", version: str = "1.0.0") -> Path:
    """A project whose tool `says` says `text`, or its name."""
    return make_project(folder, name, version, SAYS.replace("TEXT", text or name))


def project(folder: Path, name: str, code: str, version: str = "1.0.0", **fields: Any) -> Path:
    """A project folder with further fields of config.json."""
    made = make_project(folder, name, version, code)
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, **fields}))
    return made


def url_of(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address.port}"


async def push(gateway: Gateway, source: Path, who: Headers = (), **body: Any) -> tuple[int, Any]:
    """Push a project folder: the status and the reply of what publishes it."""
    config = json.loads((source / "config.json").read_text())
    bundle = bundles.pack(source, source.with_suffix(".packed"))
    content = source.with_suffix(".packed").read_bytes()
    about = {"digest": bundle.digest, "size_bytes": len(content)}
    status, reply = await gateway.ask("POST", "/bundles", about, who)
    assert status == 200, reply
    if not reply["data"]["exists"]:
        status, reply = await gateway.ask("PUT", f"/bundles/{bundle.digest}?offset=0", content, who)
        assert status == 200, reply
    told = {"name": config["name"], "version": config["version"], "bundle": bundle.digest, **body}
    return await gateway.ask("POST", "/env", told, who)


async def pushed(gateway: Gateway, source: Path, who: Headers = (), **body: Any) -> None:
    """The same, where it must work."""
    status, reply = await push(gateway, source, who, **body)
    assert status == 200, reply
