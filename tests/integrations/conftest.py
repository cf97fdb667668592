"""What tests of integrations share: a framework's Python, and a gateway that its programs call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from aenv.examples.trainers import LINE_PROJECT
from tests.gateways import Gateway, running_gateway
from tests.integrations import frameworks

Run = Callable[..., Awaitable[str]]
PROJECTS = Path(__file__).parent / "projects"
LINE = LINE_PROJECT


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """All of this folder: they start programs of others, which take seconds to import."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integrations)
            item.add_marker(pytest.mark.slow)
            if config.getoption(frameworks.MAKE):
                # The first test of a framework installs it: npm tries for minutes where there is no network.
                item.add_marker(pytest.mark.timeout(900), append=False)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway with the built-in environments."""
    async with running_gateway(tmp_path / "home") as running:
        yield running


@pytest.fixture
def run(gateway: Gateway, tmp_path: Path, pytestconfig: pytest.Config) -> Run:
    """`await run("gymnasium", "one.py")` runs a program of `programs/` where that framework is installed."""

    async def run_one(name: str, program: str, *arguments: str, **variables: str) -> str:
        python = frameworks.python_of(name, pytestconfig)
        url = {"AENV_SYSTEM_URL": f"http://127.0.0.1:{gateway.address.port}"}
        source = frameworks.PROGRAMS / program if program.endswith(".py") else program
        return await frameworks.run(python, source, *arguments, cwd=tmp_path, **url, **variables)

    return run_one
