"""The size of a service's storage: it holds where the gateway can make it hold, and elsewhere that is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.attacks.served import Served, served
from tests.gateways import make_project
from tests.ordinary import OrdinaryUser

CODE = '''
import os

from aenv import register_tool

PIECE = b"x" * (1 << 20)


@register_tool
def fill(name: str, most: int) -> dict:
    """Write so many MiB, or as many as there is room for."""
    written = 0
    with open(f"{os.environ['AENV_STORAGE']}/{name}", "wb", buffering=0) as file:
        try:
            while written < most:
                written += file.write(PIECE) >> 20
        except OSError as error:
            return {"written": written, "error": error.errno}
    return {"written": written, "error": 0}


@register_tool
def names() -> dict:
    """What is in the storage."""
    return {"names": sorted(os.listdir(os.environ["AENV_STORAGE"]))}
'''
Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(
    request: pytest.FixtureRequest, user: OrdinaryUser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("projects")
    projects = [make_project(folder, "keeper", version, CODE) for version in ("1.0.0", "1.1.0")]
    with served(user if request.param == "user" else None, projects=projects) as gateway:
        yield gateway


def service(gateway: Served, version: str = "1.0.0", **body: Any) -> tuple[dict[str, Any], Call]:
    """A service that runs: its record, and calls of its tools."""
    reply = gateway.ask("POST", "/env-service", {"envName": f"keeper@{version}", **body})
    assert reply.status == 200, reply.body
    record = reply.data
    while record["status"] != "Running":
        assert record["status"] in ("Creating", "Pending"), record
        time.sleep(0.02)
        record = gateway.ask("GET", f"/env-service/{record['id']}").data

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        said = gateway.ask("POST", f"/services/{record['id']}/tools/{tool}", arguments, data_port=True)
        assert said.status == 200, said.body
        found: dict[str, Any] = said.json["data"]["structured"]
        return found

    return record, call


def end(gateway: Served, record: dict[str, Any], *, storage: bool) -> None:
    query = "?deleteStorage=true" if storage else ""
    assert gateway.ask("DELETE", f"/env-service/{record['id']}{query}").status == 200


def test_storage_holds_no_more_than_its_size(gateway: Served) -> None:
    record, call = service(gateway, storage_size="32Mi", pvc_name="sized")
    filled = call("fill", name="file", most=64)
    if gateway.user:
        assert "ordinary user" in record["not_enforced"][0]
        assert filled == {"written": 64, "error": 0}
        end(gateway, record, storage=True)
        return
    assert record["not_enforced"] == []
    assert filled["error"] == 28  # no space left on the device
    assert filled["written"] < 32
    end(gateway, record, storage=False)
    # The next one has it again, whatever it asks for, and though what ran the one before may still be there.
    record, call = service(gateway, "1.1.0", storage_size="64Mi", pvc_name="sized")
    assert call("names") == {"names": ["file"]}
    assert call("fill", name="more", most=64)["written"] <= 1
    end(gateway, record, storage=True)
    record, call = service(gateway, storage_size="32Mi", pvc_name="sized")
    assert call("names") == {"names": []}
    end(gateway, record, storage=True)
    assert [path.name for path in (gateway.home / "storage").rglob("*") if path.is_file()] == []


def test_storage_that_was_made_without_a_size_goes_on_without_and_says_so(gateway: Served) -> None:
    record, call = service(gateway, pvc_name="open")
    assert record["not_enforced"] == []
    assert call("fill", name="file", most=1)["error"] == 0
    end(gateway, record, storage=False)
    record, call = service(gateway, pvc_name="open", storage_size="32Mi")
    assert "storage_size: it was made without one" in record["not_enforced"][0]
    assert call("names") == {"names": ["file"]}
    end(gateway, record, storage=True)
