"""Attacks by network, for each network policy."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aenv.isolation.sandbox import landlock
from tests.attacks import names
from tests.attacks.engines import AttackedEngine
from tests.attacks.outside import THROWAWAY, Outside

OWN_NETWORK = ["unshare", "--net"]


@pytest.fixture(scope="module")
def verdicts(engine: AttackedEngine, instance: str, given: dict[str, Any]) -> Any:
    return {how: engine.attack(instance, "network", names("network"), given, how) for how in ("tool", "exec")}


@pytest.mark.parametrize("how", ["tool", "exec"])
@pytest.mark.parametrize("name", names("network"))
def test_an_attack_by_network_is_contained(verdicts: Any, name: str, how: str) -> None:
    assert verdicts[how][name]["succeeded"] is False, verdicts[how][name]["said"]


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", names("network"))
def test_an_attack_by_network_succeeds_outside(outside: Outside, name: str) -> None:
    if name == "reuse_inherited_sockets":
        # In another network namespace, as inside; with a listener of the host's, as an instance must never get.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            outside.attack("network", name, OWN_NETWORK, [listener.fileno()])
    elif name == "reach_host_by_egress":
        with _trusting_proxy() as port:
            outside.attack("network", name, proxy=port)
    elif name.startswith("reach_"):
        outside.attack("network", name)
    else:
        outside.attack("network", name, THROWAWAY)


# The other policies


def test_a_list_of_hosts_never_opens_the_host_itself(
    engine: AttackedEngine, instances: Any, given: dict[str, Any]
) -> None:
    id = instances(network="egress", hosts=["*", "127.0.0.0/8", "::1", "localhost", "0.0.0.0/0"])
    for how in ("tool", "exec"):
        found = engine.attack(id, "network", names("network"), given, how)
        assert [name for name, verdict in found.items() if verdict["succeeded"] is not False] == []
        assert "the proxy refuses" in found["reach_host_by_egress"]["said"]


def test_a_full_network_is_the_hosts_but_gives_no_rights_over_it(
    engine: AttackedEngine, instances: Any, given: dict[str, Any]
) -> None:
    id = instances(network="full")
    # What `full` means: whatever listens on the host can be reached; nothing else changes. So the same programs
    # find their way as soon as the network namespace is not there.
    meant = {"reach_host_loopback", "reach_host_addresses"}
    # Below this version of landlock abstract sockets are reached as well.
    meant |= set() if landlock.abi() >= 6 else {"reach_abstract_socket"}
    for how in ("tool", "exec"):
        found = engine.attack(id, "network", names("network"), given, how)
        assert {name for name, verdict in found.items() if verdict["succeeded"] is not False} == meant


@pytest.mark.parametrize("area", ["files", "processes", "descriptors"])
def test_a_full_network_opens_no_files_or_processes(
    engine: AttackedEngine, instances: Any, given: dict[str, Any], area: str
) -> None:
    id = instances(network="full")
    for how in ("tool", "exec"):
        found = engine.attack(id, area, names(area), given, how)
        assert {
            name: verdict["said"] for name, verdict in found.items() if verdict["succeeded"] is not False
        } == {}


@pytest.mark.parametrize("network", ["none", "full"])
def test_files_move_between_folders_with_every_network(
    engine: AttackedEngine, instances: Any, network: str
) -> None:
    id = instances(network=network)
    moved = engine.evaluate(
        id,
        """
        import os
        os.makedirs("/workspace/one"), os.makedirs("/workspace/two")
        open("/workspace/one/file", "w").write("moved")
        os.rename("/workspace/one/file", "/workspace/two/file")
        os.rename("/workspace/two", "/workspace/one/two")
        said = open("/workspace/one/two/file").read()
        """,
    )
    assert moved == "moved"


@contextlib.contextmanager
def _trusting_proxy() -> Iterator[int]:
    """One that says yes to everything."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
