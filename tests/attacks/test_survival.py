"""What an instance says to the gateway that made it: it may end that instance, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.served import Served, served
from tests.gateways import make_project
from tests.ordinary import OrdinaryUser

# The channel on which a runtime says that it is ready is an open descriptor, so the environment's code can use it.
SAYING = """
import os, socket, time

for number in range(3, 64):
    try:
        found = socket.socket(fileno=os.dup(number))
    except OSError:
        continue
    if found.family == socket.AF_UNIX and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        os.write(number, {line!r}.encode("utf-8", "surrogatepass") + b"\\n")
time.sleep(60)
"""
LINES = {
    "not-a-number": '{"ready": true, "tools": [{"name": "a", "x": NaN}]}',
    "infinite": '{"ready": true, "tools": [{"name": "a", "x": 1e999}]}',
    "deep": '{"ready": true, "tools": [{"name": "a", "x": ' + "[" * 900 + "]" * 900 + "}]}",
    "half-a-pair": '{"ready": true, "tools": [{"name": "\\ud800"}]}',
    "tools-as-text": '{"ready": true, "tools": "none"}',
    "tools-as-numbers": '{"ready": true, "tools": [1, 2]}',
    "error-as-list": '{"ready": false, "error": [1]}',
    "error-half-a-pair": '{"ready": false, "error": "\\ud800"}',
    "no-json": "ready",
    "a-number": "1",
}


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(
    request: pytest.FixtureRequest, user: OrdinaryUser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("projects")
    projects = [make_project(folder)]
    for name, line in LINES.items():
        projects.append(make_project(folder, name, code=SAYING.format(line=line)))
    with served(user if request.param == "user" else None, projects=projects) as gateway:
        yield gateway


@pytest.mark.parametrize("name", LINES)
def test_whatever_an_instance_says_when_it_starts_the_instances_of_others_go_on(
    gateway: Served, name: str
) -> None:
    neighbour = gateway.create()["id"]
    made = gateway.ask("POST", "/env-instance", {"envName": f"{name}@1.0.0", "ttl": "10s"})
    if made.status == 200:  # harmless, and taken as it is
        assert gateway.ask("DELETE", f"/env-instance/{made.data['id']}").status == 200
    else:
        assert made.json["error"] == "start_failed", made.body
    assert gateway.call(neighbour, "echo", text="still here").status == 200
    assert gateway.ask("DELETE", f"/env-instance/{neighbour}").status == 200
    for status in ("", "?status=Failed", "?status=Terminated"):
        assert gateway.ask("GET", f"/env-instance/*/list{status}").status == 200
