"""Attacks through the gateway's own doors: as an instance, another account, a viewer, a local user, a web page."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from ..base.errors import AEnvError
from ..client.api import Api
from .stage import TIMEOUT, AttackStage
from .watched import WATCHED, demand, expect, gateway_process, watched

__all__ = ["WATCHED"]

_LOWER = """
said = []
for name in ("self", "1"):
    for value in ("-1000", "0", "1"):
        try:
            with open(f"/proc/{name}/oom_score_adj", "w") as file:
                file.write(value)
        except OSError:
            continue
        said.append(value)
"""


@watched
async def lower_oom_score(stage: AttackStage) -> str:
    async with stage.instance() as attacker:
        demand(await attacker.evaluate(_LOWER) == [], "a tool could change when it is ended")
        done = await attacker.remote.exec(["python3", "-c", f"{_LOWER}print(*said)"], timeout=TIMEOUT)
        demand(done.stdout.strip() == "", "a command could change when it is ended")
    return "its score cannot be written"


@watched
async def nonsense_when_it_starts(stage: AttackStage) -> str:
    async with stage.instance() as neighbour:
        before = gateway_process(stage)
        said = "the create was answered"
        try:
            async with stage.instance("hostile", arguments=["nonsense"]):
                pass
        except AEnvError as error:
            said = f"the create was refused: {error}"
        demand(await stage.api.list_instances() is not None, "instances cannot be listed")
        demand(gateway_process(stage) == before, "the gateway is another process")
        demand(await neighbour.evaluate("said = 1") == 1, "another instance is gone")
    return said


@watched
async def smuggle_replies(stage: AttackStage) -> str:
    async with stage.instance() as neighbour:
        origin, base, token = await stage.data_path(neighbour.id)
        for how in ("two replies", "two lengths", "chunks and a length", "cookies"):
            async with stage.instance("hostile", arguments=[how]) as attacker:
                _, target, theirs = await stage.data_path(attacker.id)
                reader, writer = await asyncio.open_connection(origin.host, origin.port)
                try:
                    # Both requests on one connection: what was sent too much would be the second one's answer.
                    for path, key in ((f"{target}/x", theirs), (f"{base}/health", token)):
                        head = f"GET {path} HTTP/1.1\r\nhost: {origin.host}:{origin.port}\r\n"
                        writer.write(f"{head}authorization: Bearer {key}\r\n\r\n".encode())
                    said = await _until_quiet(reader)
                finally:
                    writer.close()
            demand(b"forged" not in said, f"{how}: a reply of its own was passed on, or a cookie")
            demand(
                b"clear-site-data" not in said.lower(), f"{how}: a header for the gateway's origin was passed on"
            )
    return "one reply each, without headers that speak for the gateway"


async def _until_quiet(reader: asyncio.StreamReader) -> bytes:
    said = b""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(1):  # for replies that should not come, which no event announces
            while piece := await reader.read(65536):
                said += piece
    return said


@watched
async def flood_the_gateway(stage: AttackStage) -> str:
    async with stage.instance() as neighbour:
        async with stage.instance("hostile", arguments=["long history"]) as attacker:
            asking = asyncio.create_task(_history(attacker.remote))
            for number in range(20):
                demand(await neighbour.evaluate(f"said = {number}") == number, "others are held up")
            demand(not await asking, "a history of 56 MB was read and passed on")
        with suppress(AEnvError):
            async with stage.instance(labels={f"label-{number}": "x" for number in range(40_000)}):
                demand(False, "an instance with 40,000 labels was made")
    return "what was too long was refused, and others were answered meanwhile"


async def _history(remote: Any) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT):
            await remote.history()
    except (AEnvError, TimeoutError):
        return False
    return True


# Other accounts, and users of the host


@watched
async def open_by_seen_id(stage: AttackStage) -> str:
    async with stage.instance() as other:
        origin, base, token = await stage.data_path(other.id)
        status = await _status(stage, "GET", f"{base}/health", token)
        expect(status == 200, f"its own token gives {status}")
        by_id = [("AEnvCore-EnvInstance-ID", other.id)]
        for target, headers in ((f"{base}/health", []), ("/health", by_id)):
            response = await stage.api.pool().request(origin, "GET", target, headers)
            await response.read()
            demand(response.status in (401, 403), f"its id alone opens it: {response.status}")
    return "its id alone opens nothing"


@watched
async def find_ids_on_host(stage: AttackStage) -> str:
    async with stage.instance() as other:
        await other.remote.exec(["true"], timeout=TIMEOUT)
        token = str((await other.record()).token)
        for name in filter(str.isdigit, os.listdir("/proc")):
            for file in ("cmdline", "cgroup", "comm"):  # which every user of the host may read
                text = await asyncio.to_thread(_text, f"/proc/{name}/{file}")
                demand(other.id not in text, f"its id is in /proc/{name}/{file}")
                demand(token not in text, f"its token is in /proc/{name}/{file}")
        demand(os.stat(stage.folder / "home").st_mode & 0o077 == 0, "the gateway's home is open to others")
    return "neither its id nor its token is shown to other users"


def _text(path: str) -> str:
    with suppress(OSError), open(path, "rb") as file:
        return file.read().decode("utf-8", "replace")
    return ""


@watched
async def act_as_viewer(stage: AttackStage) -> str:
    async with stage.instance() as other, _viewer(stage, "doctor") as viewer:
        seen = await viewer.get_instance(other.id)
        expect(seen.status == "Running", "the viewer sees nothing at all")
        demand(not seen.token, "the viewer is given the token of an instance")
        for method, target, body in (
            ("DELETE", f"/env-instance/{other.id}", None),
            ("PUT", f"/env-instance/{other.id}/ttl", {"ttl": "1h"}),
            ("POST", f"/env-instance/{other.id}/exec", {"command": ["true"]}),
            ("POST", "/env-instance", {"envName": "attacked@1.0.0"}),
        ):
            try:
                await viewer.call(method, target, body)
            except AEnvError as error:
                demand(error.status in (401, 403), f"{method} {target} gave {error.status}")
            else:
                demand(False, f"{method} {target} was done")
        demand(await other.evaluate("said = 1") == 1, "the instance is gone")
    return "it looked, and changed nothing"


@asynccontextmanager
async def _viewer(stage: AttackStage, user: str) -> AsyncIterator[Api]:
    made = await stage.api.call("POST", "/token", {"user": user, "role": "viewer"})
    async with Api(stage.api.origin, api_key=made["token"], max_retries=0) as viewer:
        yield viewer


@watched
async def name_folder_of_host(stage: AttackStage) -> str:
    for folder in (str(stage.folder / "host"), "/etc", "/"):
        with suppress(AEnvError):
            async with stage.instance(datasource=folder):
                demand(False, f"an instance was given {folder}")
    return "no folder that the operator did not list was given"


@watched
async def call_from_web_page(stage: AttackStage) -> str:
    async with stage.instance() as other:
        _, base, token = await stage.data_path(other.id)
        expect(await _status(stage, "GET", f"{base}/health", token) == 200, "its token does not open it")
        for site in ("http://evil.example", "http://127.0.0.1:1", "null"):
            for target, key in ((f"{base}/health", token), ("/env-instance/*/list", stage.key)):
                status = await _status(stage, "GET", target, key, origin=site)
                demand(status in (400, 401, 403), f"GET {target} from {site} gave {status}")
    return "pages of other origins were refused"


async def _status(stage: AttackStage, method: str, target: str, key: str, **headers: str) -> int:
    """On the control port, which serves both kinds of paths."""
    sent = [("authorization", f"Bearer {key}"), *headers.items()]
    response = await stage.api.pool().request(stage.api.origin, method, target, sent)
    await response.read()
    return response.status
