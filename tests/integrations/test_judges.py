"""Other people's MCP clients, in every mode they have, against our runtime and through our gateway.

Each runs in its own virtual environment (`tests/judges/`), and checks the same list of behaviours.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.servers import ENVIRONMENTS, Gateway, Served, gateway, runtime
from tests.system import require
from tests.venvs import judge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # a foreign client takes seconds to import

JUDGED = ENVIRONMENTS / "judged"
PINNED = "2026-07-28"
CLIENTS = [
    ("mcp1", "legacy"),
    ("mcp2", "legacy"),
    ("mcp2", "auto"),
    ("mcp2", PINNED),
    ("fastmcp2", "legacy"),
    ("fastmcp4", "legacy"),
    ("fastmcp4", "auto"),
    ("fastmcp4", PINNED),
]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with runtime(JUDGED) as server:
        yield server


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, dict[str, Any]]]:
    """A gateway, and what it says of an instance."""
    with gateway(tmp_path_factory.mktemp("home"), JUDGED) as served:
        yield served, served.create("judged@1.0.0")


@pytest.mark.parametrize(("client", "mode"), CLIENTS)
async def test_a_client_passes_against_the_runtime(served: Served, client: str, mode: str) -> None:
    await _passes(client, mode, "--url", f"{served.address}/mcp")


@pytest.mark.parametrize(("client", "mode"), CLIENTS)
async def test_a_client_passes_through_the_gateway_by_url(
    instance: tuple[Gateway, dict[str, Any]], client: str, mode: str
) -> None:
    _, made = instance
    await _passes(client, mode, "--url", made["mcp_url"])


@pytest.mark.parametrize(("client", "mode"), CLIENTS)
async def test_a_client_passes_through_the_gateway_by_header(
    instance: tuple[Gateway, dict[str, Any]], client: str, mode: str
) -> None:
    gateway, made = instance
    header = f"AEnvCore-EnvInstance-ID={made['id']}"
    await _passes(client, mode, "--url", f"{gateway.data_url}/mcp", "--header", header)


@pytest.mark.parametrize(("client", "mode"), CLIENTS)
async def test_a_client_passes_over_stdio(client: str, mode: str) -> None:
    await _passes(client, mode, "--", sys.executable, "-m", "aenv.main", str(JUDGED), "--stdio")


async def _passes(client: str, mode: str, *target: str) -> None:
    """Run the judge to its end; the failures, if any, are the message."""
    python = await asyncio.to_thread(judge, client)
    script = Path(__file__).parent.parent / "judges" / f"{client}.py"
    process = await asyncio.create_subprocess_exec(
        python,
        script,
        "--mode",
        mode,
        *target,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await process.communicate()
    reports = [json.loads(line) for line in output.splitlines()]
    failures = {report["check"]: report["failure"] for report in reports if report["failure"]}
    assert not failures, "\n".join(f"{check}: {failure}" for check, failure in failures.items())
    assert process.returncode == 0, complaints.decode()
    assert reports, "the judge checked nothing"


async def test_mcp_inspector_lists_and_calls(served: Served) -> None:
    inspect = [await asyncio.to_thread(_inspector), "--yes", INSPECTOR, "--cli", f"{served.address}/mcp"]
    listed = await _json(*inspect, "--transport", "http", "--method", "tools/list")
    assert "add" in [tool["name"] for tool in listed["tools"]]
    call = ("--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=40")
    assert (await _json(*inspect, "--transport", "http", *call))["structuredContent"] == {"sum": 42}


INSPECTOR = "@modelcontextprotocol/inspector"


def _inspector() -> str:
    """The path of npx, once it has MCP Inspector; without a package registry the test is skipped."""
    npx = require("npx", "npm")
    done = subprocess.run([npx, "--yes", INSPECTOR, "--cli", "--help"], capture_output=True, text=True)
    if done.returncode:
        reason = f"npx cannot fetch MCP Inspector: {done.stderr.strip()[-300:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return npx


async def _json(*command: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return dict(json.loads(output))
