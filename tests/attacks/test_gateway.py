"""Attacks on the gateway and, through it, on other instances: one that root runs, and one of an ordinary user."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from aenv.attacks import projects
from aenv.engines.folder import InstanceFolder
from tests.attacks.served import Served, served
from tests.gateways import make_project
from tests.ordinary import OrdinaryUser

MEBIBYTE = 1 << 20
# With the host's network; it asks the gateway, and tells the status.
ASKING = '''
import http.client, json

from aenv import register_tool


@register_tool
def ask(port: int, target: str, headers: dict) -> dict:
    """What a server on this network says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    headers = {"content-type": "application/json", **headers}
    connection.request("POST", target, json.dumps({"text": "hello"}), headers)
    reply = connection.getresponse()
    return {"status": reply.status, "text": reply.read().decode()}
'''
ENDLESS = ["body without end", "chunks without end", "events without end"]
REFUSED = ["head without end", "headers without end", "interim answers without end", "chunk that is too large"]


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(
    request: pytest.FixtureRequest, user: OrdinaryUser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("projects")
    made = [
        make_project(folder),
        projects.make_project(folder / "hostile", "hostile"),
        make_project(folder, "asking", code=ASKING, network="full"),
    ]
    with served(user if request.param == "user" else None, projects=made) as gateway:
        yield gateway


@pytest.fixture
def instances(gateway: Served) -> Iterator[Any]:
    """`instances(name, **body)` makes one; all are ended with the test."""
    made: list[dict[str, Any]] = []

    def make(name: str = "echo@1.0.0", **body: Any) -> dict[str, Any]:
        made.append(gateway.create(name, **body))
        return made[-1]

    yield make
    for one in made:
        assert gateway.ask("DELETE", f"/env-instance/{one['id']}").status in (200, 404)


def memory(gateway: Served) -> int:
    return int(psutil.Process(gateway.pid).memory_info().rss)


@contextlib.contextmanager
def asked(gateway: Served, id: str) -> Iterator[Iterator[bytes]]:
    """What the gateway says to a client that has asked the instance, piece by piece as the client reads."""
    address = urlsplit(gateway.data_url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(f"GET /instances/{id}/x HTTP/1.1\r\nhost: {address.netloc}\r\n\r\n".encode())
        yield pieces(connection)


def pieces(connection: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(MEBIBYTE):
            yield piece


def read_until(stream: Iterator[bytes], most: int) -> int:
    read = 0
    for piece in stream:
        read += len(piece)
        if read >= most:
            break
    return read


def neighbours_answer(gateway: Served, id: str, times: int = 20) -> None:
    for number in range(times):
        reply = gateway.call(id, "echo", text=str(number))
        assert (reply.status, reply.data["content"][0]["text"]) == (200, str(number))


# Answers


@pytest.mark.parametrize("how", ENDLESS)
def test_an_answer_without_end_is_passed_on_as_it_is_read_and_no_faster(
    gateway: Served, instances: Any, how: str
) -> None:
    neighbour = instances()["id"]
    id = instances("hostile@1.0.0", arguments=[how])["id"]
    before = memory(gateway)
    with asked(gateway, id) as said:
        assert next(said).startswith(b"HTTP/1.1 200")
        neighbours_answer(gateway, neighbour)  # while the client reads nothing of the other
        assert read_until(said, 8 * MEBIBYTE) >= 8 * MEBIBYTE
        neighbours_answer(gateway, neighbour)
    assert memory(gateway) - before < 64 * MEBIBYTE
    neighbours_answer(gateway, neighbour)


@pytest.mark.parametrize("how", REFUSED)
def test_a_head_without_end_is_a_bad_gateway(gateway: Served, instances: Any, how: str) -> None:
    neighbour = instances()["id"]
    id = instances("hostile@1.0.0", arguments=[how])["id"]
    before = memory(gateway)
    with asked(gateway, id) as said:
        first = next(said)
        # What was wrong came after a good head: then the connection breaks off.
        expected = b"HTTP/1.1 200" if how == "chunk that is too large" else b"HTTP/1.1 502"
        assert first.startswith((expected, b"HTTP/1.1 502")), first
        if first.startswith(b"HTTP/1.1 200"):
            assert read_until(said, 64 * MEBIBYTE) < 64 * MEBIBYTE
    assert memory(gateway) - before < 64 * MEBIBYTE
    neighbours_answer(gateway, neighbour)


def test_answers_that_never_come_hold_up_no_other_client(gateway: Served, instances: Any) -> None:
    neighbour = instances()["id"]
    id = instances("hostile@1.0.0", arguments=["nothing"])["id"]
    address = urlsplit(gateway.data_url)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(asked(gateway, id))
        neighbours_answer(gateway, neighbour)
        for _ in range(100):  # and clients that never come to an end with what they ask
            connection = stack.enter_context(socket.create_connection((address.hostname, address.port)))
            connection.sendall(f"POST /instances/{neighbour}/tools/echo HTTP/1.1\r\ncontent-length: 9".encode())
        neighbours_answer(gateway, neighbour)
    assert gateway.ask("DELETE", f"/env-instance/{id}").status == 200
    neighbours_answer(gateway, neighbour)


@pytest.mark.parametrize("how", ENDLESS + REFUSED)
def test_these_answers_have_no_end_for_a_client_of_the_instance_itself(
    gateway: Served, instances: Any, how: str
) -> None:
    id = instances("hostile@1.0.0", arguments=[how])["id"]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(InstanceFolder(gateway.home / "run" / "instances", id).socket))
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert read_until(pieces(connection), 64 * MEBIBYTE) >= 64 * MEBIBYTE


# Tokens


def test_an_instance_reaches_no_other_with_its_own_token(gateway: Served, instances: Any) -> None:
    attacker, other = instances("asking@1.0.0"), instances()
    mine = {"authorization": f"Bearer {attacker['token']}"}
    by_id = {"AEnvCore-EnvInstance-ID": other["id"]}
    for target, headers in [
        (f"/instances/{other['id']}/tools/echo", mine),
        ("/tools/echo", {**mine, **by_id}),
        (f"/instances/{attacker['id']}/../{other['id']}/tools/echo", mine),
        (f"/instances/{attacker['id']}/tools/../../{other['id']}/tools/echo", mine),
        ("/tools/echo", {"authorization": mine["authorization"].replace(attacker["id"], other["id"])}),
    ]:
        status, said = _asked(gateway, attacker["id"], target, headers)
        assert (status >= 400, "hello" in said) == (True, False), (target, status, said)


def test_with_the_other_ones_token_it_would(gateway: Served, instances: Any) -> None:
    attacker, other = instances("asking@1.0.0"), instances()
    theirs = {"authorization": f"Bearer {other['token']}"}
    status, said = _asked(gateway, attacker["id"], f"/instances/{other['id']}/tools/echo", theirs)
    assert (status, "hello" in said) == (200, True)


def _asked(gateway: Served, id: str, target: str, headers: dict[str, str]) -> tuple[int, str]:
    port = urlsplit(gateway.data_url).port
    found = gateway.call(id, "ask", port=port, target=target, headers=headers).data["structured"]
    return found["status"], found["text"]
