"""The environment centre as a server gives it out: files, policy, accounts, other origins, and the live stream."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.http1 import Response
from aenv.control.serving import quantiles
from aenv.control.serving.centre import FOLDER
from tests import raw
from tests.conftest import REPOSITORY
from tests.gateways import Gateway, make_project, running_gateway

_MAX_FIRST_PAGE = 300_000
SOURCES = REPOSITORY / "web"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as running:
        yield running


async def get(gateway: Gateway, path: str, **headers: str) -> tuple[Response, bytes]:
    sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    response = await gateway.pool.request(gateway.control, "GET", path, sent)
    return response, await response.read()


def named(text: str) -> list[str]:
    """The files that a page names."""
    return re.findall(r'(?:src|href)="\./([^"]+)"', text)


async def test_the_first_page_is_small_and_can_only_run_what_the_wheel_has(gateway: Gateway) -> None:
    page, body = await get(gateway, "/")
    assert page.status == 200
    policy = page.header(b"content-security-policy") or ""
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert b"<script>" not in body and b"style=" not in body
    size = 0
    for name in named(body.decode()):
        file, packed = await get(gateway, f"/{name}", accept_encoding="gzip")
        assert file.status == 200 and "immutable" in (file.header(b"cache-control") or "")
        assert gzip.decompress(packed) == (FOLDER / name).read_bytes()
        size += len(packed)
    assert 20_000 < size < _MAX_FIRST_PAGE


async def test_a_page_that_has_not_changed_is_not_sent_again(gateway: Gateway) -> None:
    first, _ = await get(gateway, "/")
    again, body = await get(gateway, "/", if_none_match=first.header(b"etag") or "")
    assert (again.status, body) == (304, b"")


@pytest.mark.parametrize(
    "name", ["../../__init__.py", "..%2findex.html", "nothing.js", "%2e%2e%2f%2e%2e%2fmain.py"]
)
async def test_a_name_leads_to_no_other_file(gateway: Gateway, name: str) -> None:
    response, _ = await get(gateway, f"/assets/{name}")
    assert response.status == 404


async def test_a_visitor_without_a_token_learns_only_that_one_is_needed(gateway: Gateway) -> None:
    assert (await gateway.ask("GET", "/session"))[1]["data"]["role"] == "admin"
    _, made = await gateway.ask("POST", "/token", {"user": "ann", "role": "admin"})
    status, said = await gateway.ask("GET", "/session")
    assert (status, said["data"]["role"], said["data"]["user"]) == (200, "anonymous", "")
    bearer = (("authorization", f"Bearer {made['data']['token']}"),)
    assert (await gateway.ask("GET", "/session", headers=bearer))[1]["data"]["user"] == "ann"
    assert (await gateway.ask("GET", "/env-instances/live"))[0] == 401


@pytest.mark.parametrize("path", ["/session", "/env-instances/live", "/env", "/metrics"])
async def test_a_page_of_another_origin_reads_nothing(gateway: Gateway, path: str) -> None:
    for headers in ({"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}):
        response, body = await get(gateway, path, **headers)
        assert response.status == 403 and response.header(b"access-control-allow-origin") is None, body


async def as_browsers_ask(gateway: Gateway, host: str, method: str, path: str, **headers: str) -> raw.Reply:
    """What a page gets that is at `host`; on a connection of its own."""
    sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())

    def ask() -> raw.Reply:
        with raw.connected(f"http://127.0.0.1:{gateway.control.port}") as connection:
            connection.send(raw.request(method, path, b"", sent, host))
            return connection.reply()

    return await asyncio.to_thread(ask)


async def test_a_page_that_is_opened_by_a_name_gets_its_files_and_may_not_act(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", host="0.0.0.0", insecure=True) as gateway:
        host = f"gateway:{gateway.control.port}"
        page = await as_browsers_ask(gateway, host, "GET", "/")
        assert page.status == 200
        for origin in (f"http://{host}", "https://evil.example", "null"):
            for name in named(page.body.decode()):
                file = await as_browsers_ask(gateway, host, "GET", f"/{name}", origin=origin)
                assert (file.status, file.body) == (200, (FOLDER / name).read_bytes())
                assert "access-control-allow-origin" not in file.headers
                assert file.headers["cross-origin-resource-policy"] == "same-origin"
                sent = {"origin": origin, "sec_fetch_site": "cross-site"}
                assert (await as_browsers_ask(gateway, host, "GET", f"/{name}", **sent)).status == 403
            for method, path in (("POST", "/session"), ("POST", "/env-instance"), ("GET", "/env"), ("GET", "/")):
                refused = await as_browsers_ask(gateway, host, method, path, origin=origin)
                assert refused.status == 403 and "--allow-origin" in refused.json()["message"]


async def test_a_name_that_was_made_to_lead_to_this_machine_gets_no_file(gateway: Gateway) -> None:
    for name in named((FOLDER / "index.html").read_text()):
        for headers in ({}, {"origin": "http://evil.example"}):
            assert (await as_browsers_ask(gateway, "evil.example", "GET", f"/{name}", **headers)).status == 403


class Stream:
    """The events of the live list."""

    def __init__(self, response: Response) -> None:
        self._chunks = response.__aiter__()
        self._rest = b""

    async def next(self, wanted: str) -> Any:
        """The data of the next event of this name."""
        while True:
            while b"\n\n" not in self._rest:
                async with asyncio.timeout(20):
                    self._rest += await anext(self._chunks)
            block, _, self._rest = self._rest.partition(b"\n\n")
            name, _, data = block.decode().partition("\ndata: ")
            if name == f"event: {wanted}":
                return json.loads(data)

    async def row(self, id: str, status: str) -> dict[str, Any]:
        """The row of an instance, once it has this status."""
        while True:
            for row in await self.next("instances"):
                if row["id"] == id and row["status"] == status:
                    found: dict[str, Any] = row
                    return found


async def watch(gateway: Gateway, token: str = "") -> Stream:
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    response = await gateway.pool.request(gateway.control, "GET", "/env-instances/live", headers)
    assert response.status == 200, await response.read()
    return Stream(response)


async def test_the_stream_tells_what_is_there_and_then_what_changes(gateway: Gateway) -> None:
    before = await gateway.create(labels={"experiment": "a"})
    stream = await watch(gateway)
    row = await stream.row(before["id"], "Running")
    assert (row["env"], row["labels"]) == ("echo@1.0.0", {"experiment": "a"})
    assert (await stream.next("ready"))["instances"] == 1
    usage = await stream.next("usage")
    assert usage["queue"] == 0
    assert usage["history"][-1][1:] == [1, 0, 0]  # alive, calls, errors
    made = await gateway.create()
    assert (await stream.row(made["id"], "Running"))["expires_at"] == made["expires_at"]
    await gateway.ask("PUT", f"/env-instance/{made['id']}/ttl", {"ttl": "3h"})
    assert (await stream.row(made["id"], "Running"))["expires_at"] > made["expires_at"]
    await gateway.ask("DELETE", f"/env-instance/{made['id']}")
    assert (await stream.row(made["id"], "Terminated"))["reason"] == "deleted"


async def test_the_stream_tells_how_long_creates_and_calls_take(gateway: Gateway) -> None:
    stream = await watch(gateway)
    figures = (await stream.next("usage"))["figures"]
    assert figures == {"calls": 0, "errors": 0, "create": None, "call": None, "stages": {}}
    made = await gateway.create()
    for _ in range(3):
        await gateway.call(made["id"], "echo", text="a")
    figures = (await stream.next("usage"))["figures"]
    while figures["calls"] < 3:
        figures = (await stream.next("usage"))["figures"]
    for median, p90, p99 in (figures["create"], figures["call"], *figures["stages"].values()):
        assert 0 < median <= p90 <= p99 < 60
    assert "engine" in figures["stages"]


def test_the_pages_have_code_for_each_framework() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {path.stem for path in (REPOSITORY / "src" / "aenv" / "integrations").glob("*.py")}
    shown = re.findall(r'^    module: "(\w+)"', (SOURCES / "src" / "frameworks.ts").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(modules & {name.replace("-", "_") for name in extras})


def test_quantiles_lie_within_the_buckets_of_their_observations() -> None:
    assert quantiles.of_buckets([1.0, 2.0, 4.0], [0, 10, 0, 0]) == pytest.approx([1.5, 1.9, 1.99])
    assert quantiles.of_buckets([1.0, 2.0], [5, 0, 5]) == pytest.approx([1.0, 2.0, 2.0])  # half above all bounds
    assert quantiles.of_buckets([1.0], [0, 0]) is None


async def test_what_comes_with_aenv_is_listed_for_all_but_visitors(gateway: Gateway) -> None:
    status, said = await gateway.ask("GET", "/env?builtin=true&q=terminal")
    assert status == 200 and "mini-terminal" in [one["name"] for one in said["data"]]
    names = [one["name"] for one in (await gateway.ask("GET", "/env?builtin=true"))[1]["data"]]
    assert len(names) == len(set(names)) and "echo" not in names  # without aliases and folders
    [second] = (await gateway.ask("GET", "/env?builtin=true&offset=1&limit=1"))[1]["data"]
    assert second["name"] == names[1]
    await gateway.ask("POST", "/token", {"user": "ann", "role": "admin"})
    assert (await gateway.ask("GET", "/env?builtin=true"))[1]["data"] == []


async def test_an_instance_that_breaks_is_told_with_its_reason(gateway: Gateway) -> None:
    made = await gateway.create()
    stream = await watch(gateway)
    await gateway.ask("POST", f"/instances/{made['id']}/tools/die", {}, origin=gateway.data)
    assert (await stream.row(made["id"], "Failed"))["reason"]


async def test_a_stream_tells_the_instances_of_its_own_account_alone(gateway: Gateway) -> None:
    _, first = await gateway.ask("POST", "/token", {"user": "root", "role": "admin"})
    admin = (("authorization", f"Bearer {first['data']['token']}"),)
    tokens = {}
    for user in ("ann", "bob"):
        _, made = await gateway.ask("POST", "/token", {"user": user, "role": "user"}, admin)
        tokens[user] = made["data"]["token"]
    stream = await watch(gateway, tokens["ann"])
    assert "queue" not in await stream.next("usage")
    ids = {}
    for user in ("bob", "ann"):
        headers = (("authorization", f"Bearer {tokens[user]}"),)
        _, said = await gateway.ask("POST", "/env-instance", {"envName": "echo@1.0.0"}, headers)
        ids[user] = said["data"]["id"]
    told = [row["id"] for row in await stream.next("instances")]
    assert ids["ann"] in told and ids["bob"] not in told


@pytest.mark.slow
def test_the_built_files_are_those_of_their_sources(tmp_path: Path) -> None:
    if not shutil.which("npx") or not (SOURCES / "node_modules").is_dir():
        pytest.skip("no Node, or no packages for it; install them with: npm ci --prefix web")
    for command in (
        ["tsc", "--noEmit"],
        ["vite", "build", "--outDir", str(tmp_path / "built"), "--logLevel", "warn"],
    ):
        done = subprocess.run(["npx", "--no-install", *command], cwd=SOURCES, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    fresh = {
        path.relative_to(tmp_path / "built"): path for path in (tmp_path / "built").rglob("*") if path.is_file()
    }
    kept = {path.relative_to(FOLDER): path for path in FOLDER.rglob("*") if path.is_file()}
    assert sorted(fresh) == sorted(kept), "build again with: npm run build --prefix web"
    assert [name for name in fresh if fresh[name].read_bytes() != kept[name].read_bytes()] == []


def test_the_lock_file_has_digests_and_no_addresses() -> None:
    text = (SOURCES / "package-lock.json").read_text()
    packages = [one for name, one in json.loads(text)["packages"].items() if name]
    assert packages and all(one.get("integrity", "").startswith("sha512-") for one in packages)
    assert "resolved" not in text


def test_each_library_in_the_built_files_has_its_licence() -> None:
    text = (FOLDER / "licenses.txt").read_text()
    wanted = json.loads((SOURCES / "package.json").read_text())["dependencies"]
    assert [name for name in wanted if f"\n{name} " not in f"\n{text}"] == []
