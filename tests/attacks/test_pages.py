"""Attacks by web pages: a browser on the gateway's machine shows a page of another server.

Without accounts every request that is not refused is an administrator's.
"""

from __future__ import annotations

import http.server
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.attacks.served import Served, served
from tests.gateways import make_project
from tests.running import running_runtime
from tests.system import require

CREATE = json.dumps({"envName": "echo@1.0.0"}).encode()
PAGES = ["http://localhost:3000", "http://127.0.0.1:3000", "https://evil.example", "null"]
FOREIGN = [
    *({"origin": page} for page in PAGES),
    *({"sec-fetch-site": site, "sec-fetch-mode": "no-cors"} for site in ("cross-site", "same-site")),
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
]
LISTED = "http://localhost:6274"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served(arguments=["--allow-origin", LISTED]) as gateway:
        yield gateway


def living(gateway: Served) -> int:
    return len(gateway.ask("GET", "/env-instance/*/list").data)


# With the headers that browsers send


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "application/json"])
def test_a_foreign_page_changes_nothing(gateway: Served, headers: dict[str, str], media: str) -> None:
    before = living(gateway)
    sent = {**headers, "content-type": media}
    for target in ("/env-instance", "/env-service", "/token", "/env"):
        assert gateway.ask("POST", target, CREATE, headers=sent).status == 403
    assert gateway.ask("DELETE", "/env-instances?label=a=b", headers=sent).status == 403
    assert living(gateway) == before


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_foreign_page_reads_nothing_and_calls_no_instance(gateway: Served, headers: dict[str, str]) -> None:
    made = gateway.create()
    path = f"/instances/{made['id']}"
    for target in ("/env-instance/*/list", "/env", "/health", "/metrics", "/docs", f"{path}/health"):
        assert gateway.ask("GET", target, headers=headers).status == 403
    for data_port in (True, False):
        reply = gateway.ask("POST", f"{path}/tools/echo", b'{"text": "a"}', headers=headers, data_port=data_port)
        assert reply.status == 403
    assert gateway.call(made["id"], "echo", text="a").status == 200


def test_a_link_to_the_gateway_can_be_followed_and_nothing_else(gateway: Served) -> None:
    follows = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert gateway.ask("GET", "/docs", headers=follows).status == 200
    assert gateway.ask("POST", "/env-instance", CREATE, headers=follows).status == 403


def test_a_page_of_the_gateway_itself_calls_it_with_json_alone(gateway: Served) -> None:
    own = {"origin": gateway.url, "sec-fetch-site": "same-origin"}
    for media, status in (("application/json; charset=utf-8", 200), ("text/plain", 403)):
        reply = gateway.ask("POST", "/env-instance", CREATE, headers={**own, "content-type": media})
        assert reply.status == status
    other = {"origin": gateway.data_url}  # where pages from inside instances are
    assert gateway.ask("POST", "/env-instance", CREATE, headers=other).status == 403


def test_programs_send_no_origin_and_whatever_type_they_like(gateway: Served) -> None:
    for headers in ({}, {"content-type": "text/plain"}, {"sec-fetch-mode": "cors"}):  # the last is Node's
        assert gateway.ask("POST", "/env-instance", CREATE, headers=headers).status == 200


def test_a_page_that_is_listed_may_call_and_read(gateway: Served) -> None:
    made = gateway.create()
    for data_port in (True, False):
        asked = {
            "origin": LISTED,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,mcp-protocol-version",
        }
        target = f"/instances/{made['id']}/tools/echo"
        reply = gateway.ask("OPTIONS", target, headers=asked, data_port=data_port)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (204, LISTED)
        assert reply.headers["access-control-allow-headers"] == "content-type,mcp-protocol-version"
        headers = {"origin": LISTED, "sec-fetch-site": "same-site", "content-type": "application/json"}
        reply = gateway.ask("POST", target, b'{"text": "a"}', headers=headers, data_port=data_port)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, LISTED)
        refused = gateway.ask("OPTIONS", target, headers={**asked, "origin": PAGES[0]}, data_port=data_port)
        assert (refused.status >= 400, "access-control-allow-origin" in refused.headers) == (True, False)
    sent = {"origin": LISTED, "content-type": "text/plain"}  # a file, for which the browser has asked first
    assert gateway.ask("PUT", f"/env-instance/{made['id']}/files/a", b"b", headers=sent).status == 200
    reply = gateway.ask("GET", "/env", headers={"origin": LISTED})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, LISTED)


def test_a_page_from_inside_an_instance_is_not_one_of_the_control_ports(gateway: Served) -> None:
    made = gateway.create()
    reply = gateway.ask("GET", f"/instances/{made['id']}/health")
    assert (reply.status, reply.headers["content-security-policy"]) == (200, "sandbox")


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_foreign_page_does_not_call_a_runtime_that_stands_alone(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with running_runtime(make_project(tmp_path)) as runtime:
        sent = {**headers, "content-type": "text/plain"}
        for target in ("/tools/echo", "/mcp", "/functions/size"):
            assert (await runtime.request("POST", target, b'{"text": "a"}', sent))[0].status == 403
        assert (await runtime.call("POST", "/tools/echo", {"text": "a"}))[0] == 200


# With a browser

PAGE = """<!doctype html><title>attack</title><iframe name=hidden></iframe>
<form id=form method=post enctype=text/plain target=hidden action="{url}/env-instance">
<input name='{{"envName": "echo@1.0.0", "x": "' value='"}}'></form>
<script>
async function attempt(name, act) {{
  try {{ const reply = await act(); return [name, reply.type + " " + reply.status]; }}
  catch (error) {{ return [name, "failed"]; }}
}}
(async () => {{
  const said = [];
  const body = JSON.stringify({{envName: "echo@1.0.0"}});
  const post = {{method: "POST", body}};
  said.push(await attempt("simple", () => fetch("{url}/env-instance", {{...post, mode: "no-cors"}})));
  said.push(await attempt("json", () =>
    fetch("{url}/env-instance", {{...post, headers: {{"content-type": "application/json"}}}})));
  said.push(await attempt("read", () => fetch("{url}/env-instance/*/list")));
  const image = new Image();
  const shown = new Promise(resolve => {{ image.onload = image.onerror = resolve; }});
  image.src = "{url}/env-instance/*/list";
  await shown;
  const sent = new Promise(resolve => {{ frames[0].frameElement.onload = resolve; }});
  document.getElementById("form").submit();
  await sent;
  await fetch("/done?said=" + encodeURIComponent(JSON.stringify(said)));
}})();
</script>"""


class Attacker:
    """A page on a port of its own, which Chromium shows."""

    def __init__(self, port: int, said: queue.Queue[dict[str, str]]) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self._said = said

    def attack(self, url: str) -> dict[str, str]:
        """What the page says at its end: of what kind the reply to each attempt was."""
        with tempfile.TemporaryDirectory() as profile:
            flags = [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                f"--user-data-dir={profile}",
            ]
            command = [require("chromium", "chromium"), *flags, f"{self.origin}/?url={quote(url)}"]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                return self._said.get(timeout=60)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                # Its output ends with the last of its processes, which write into the profile until then.
                process.communicate(timeout=60)


@pytest.fixture
def attacker() -> Iterator[Attacker]:
    done: queue.Queue[dict[str, str]] = queue.Queue()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            body = PAGE.format(url=asked["url"][0]).encode() if "url" in asked else b""
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if "said" in asked:
                done.put(dict(json.loads(asked["said"][0])))

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Attacker(server.server_port, done)
        server.shutdown()


def test_a_browser_that_shows_a_page_of_another_port_changes_nothing(gateway: Served, attacker: Attacker) -> None:
    before = living(gateway)
    # The first was sent and answered, unread; the others were not let out, or their answer was not let in.
    assert attacker.attack(gateway.url) == {"simple": "opaque 0", "json": "failed", "read": "failed"}
    assert living(gateway) == before


def test_a_browser_lets_a_listed_page_call_and_read_with_json_alone(attacker: Attacker) -> None:
    with served(arguments=["--allow-origin", attacker.origin]) as gateway:
        assert attacker.attack(gateway.url) == {"simple": "opaque 0", "json": "cors 200", "read": "cors 200"}
        assert living(gateway) == 1
