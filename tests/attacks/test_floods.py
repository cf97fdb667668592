"""Much of everything: while one instance, or one request, says far too much, the calls of others are answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.base.wire import MAX_HISTORY_BYTES
from aenv.inside.runtime.history import History
from tests.attacks.served import Reply, Served, served
from tests.gateways import make_project
from tests.ordinary import OrdinaryUser

MEBIBYTE = 1 << 20

# It answers in place of the runtime, with what the variable says.
FLOODING = """
import json, os, socket, threading

CALL = {"kind": "tool", "name": "a", "arguments": "{}", "started_at": "", "duration_ms": 1, "ok": True,
        "result_bytes": 0}
BODIES = {
    "large": lambda: json.dumps({"success": True, "data": {"calls": [CALL] * 400_000}}).encode(),
    "wide": lambda: b'{"success":true,"data":{"calls":[' + b"[]," * 340_000 + b"[]]}}",
    "many": lambda: json.dumps({"success": True, "data": {"calls": [CALL] * 257}}).encode(),
    "deep": lambda: b"[" * 1_000_000,
    "other": lambda: b'{"success":true,"data":{"calls":[{"kind":1}]}}',
    "none": lambda: b"null",
    "valid": lambda: json.dumps({"success": True, "data": {"calls": [dict(CALL, more=1)]}}).encode(),
}


BODY = BODIES[os.environ["FLOOD"]]() if "FLOOD" in os.environ else b""


def answer(connection):
    while connection.recv(65536):
        body = BODY
        try:
            connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%b" % (len(body), body))
        except OSError:
            return


def serve(listener):
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


for number in map(int, os.listdir("/proc/self/fd")):
    try:
        found = socket.socket(fileno=os.dup(number))
    except OSError:
        continue
    if found.family == socket.AF_UNIX and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        decoy = socket.socket(socket.AF_UNIX)
        decoy.bind("/tmp/decoy")
        decoy.listen()
        os.dup2(decoy.fileno(), number)
        found.setblocking(True)
        threading.Thread(target=serve, args=(found,), daemon=True).start()
        break
    found.detach()
"""


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(
    request: pytest.FixtureRequest, user: OrdinaryUser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("projects")
    projects = [make_project(folder), make_project(folder, "flooding", code=FLOODING)]
    with served(user if request.param == "user" else None, projects=projects) as gateway:
        yield gateway


def attacked(gateway: Served, neighbour: str, attack: Any) -> list[Reply]:
    """The replies to an attack. While it is under way, the calls of another are answered."""
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(attack()))
    thread.start()
    while True:
        assert gateway.call(neighbour, "echo", text="still here").status == 200
        assert gateway.ask("GET", "/health").status == 200
        if not thread.is_alive():
            return replies


@pytest.mark.parametrize(
    ("flood", "status"),
    [("large", 502), ("wide", 502), ("many", 502), ("deep", 502), ("other", 502), ("none", 502), ("valid", 200)],
)
def test_a_history_is_read_as_far_as_a_runtime_may_say(gateway: Served, flood: str, status: int) -> None:
    neighbour = gateway.create()["id"]
    id = gateway.create("flooding@1.0.0", environment_variables={"FLOOD": flood})["id"]
    before = psutil.Process(gateway.pid).memory_info().rss
    [reply] = attacked(gateway, neighbour, lambda: gateway.ask("GET", f"/env-instance/{id}/history"))
    assert reply.status == status, reply.body[:300]
    if status == 200:
        assert "more" not in reply.data[0]
    assert psutil.Process(gateway.pid).memory_info().rss - before < 64 * MEBIBYTE
    for made in (neighbour, id):
        assert gateway.ask("DELETE", f"/env-instance/{made}").status == 200


LARGE: dict[str, tuple[Any, str]] = {
    "labels": ({str(number): "" for number in range(40_000)}, "at most 64 items"),
    "labels (one)": ({"a": "b" * 300}, "longer than 256 bytes"),
    "environment_variables": ({str(number): "" for number in range(40_000)}, "at most 1000 items"),
    "arguments": ([""] * 100_000, "at most 1000 items"),
    "network": ({"egress": ["a.example"] * 50_000}, "at most 256 hosts"),
    "owner": ("a" * 500_000, "at most 256 characters"),
    "ttl": ("9" * 500_000, "at most 64 characters"),
    "resources": ({str(number): 1 for number in range(40_000)}, "at most 16 items"),
    "mount_points": ([{}] * 100_000, "at most 64 items"),
    "datasource": ("a" * 500_000, "at most 4096 characters"),
}


@pytest.mark.parametrize("field", LARGE)
def test_a_create_that_asks_for_far_too_much_is_refused_with_the_name_of_the_field(
    gateway: Served, field: str
) -> None:
    neighbour = gateway.create()["id"]
    value, message = LARGE[field]
    name = field.partition(" ")[0]
    body = json.dumps({"envName": "echo@1.0.0", name: value}).encode()
    [reply] = attacked(gateway, neighbour, lambda: gateway.ask("POST", "/env-instance", body))
    assert reply.status == 400, reply.body[:300]
    assert reply.json["message"].startswith(f"field '{name}'"), reply.body[:300]
    assert message in reply.json["message"]
    assert gateway.ask("DELETE", f"/env-instance/{neighbour}").status == 200


def test_64_labels_of_256_bytes_are_fine(gateway: Served) -> None:
    made = gateway.create(labels={f"{number:02}": "x" * 254 for number in range(64)})
    assert len(made["labels"]) == 64
    assert gateway.ask("DELETE", f"/env-instance/{made['id']}").status == 200


def test_a_runtime_tells_of_as_many_of_its_newest_calls_as_a_reply_may_hold() -> None:
    history = History()
    for number in range(300):
        with history.call("tool", f"{number}", {"text": '"\0' * 1000}):
            pass
    calls = history.as_list()
    assert calls[-1]["name"] == "299"
    assert 64 < len(calls) <= 256
    assert len(json.dumps(calls)) < MAX_HISTORY_BYTES
