"""The Python blocks of the shared documents run as they stand there, with only the repairs that are listed.

The documents are read when the test runs; no copy of them lives here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aenv import Environment
from tests.documents.authored import AUTHORED, Authored
from tests.documents.blocks import python_lines, read
from tests.documents.clients import CLIENTS
from tests.documents.untried import UNTRIED
from tests.judges.servers import ENVIRONMENTS, Served, runtime
from tests.venvs import judge

RUN_BLOCK = Path(__file__).parent / "documents" / "run_block.py"


@pytest.fixture
def documents(shared: Path) -> Path:
    return shared / "documents"


@pytest.fixture(scope="module")
def documented() -> Iterator[Served]:
    """The tools that the documents call without defining them."""
    with runtime(ENVIRONMENTS / "documented") as server:
        yield server


def test_every_python_block_of_the_documents_is_listed(documents: Path) -> None:
    listed = [entry.block for table in (AUTHORED, CLIENTS, UNTRIED) for entry in table.values()]
    unknown = []
    for path in sorted(documents.iterdir()):
        document = path.name.partition("_")[0]
        text = read(documents, document)
        spans = [block.span(text) for block in listed if block.document == document]
        covered = [n for span in spans for n in span]
        assert len(covered) == len(set(covered)), f"blocks of {path.name} overlap"
        unknown += [f"{path.name}:{n + 1}: {text[n]}" for n in python_lines(text) if n not in set(covered)]
    assert not unknown, "Python in the documents that no table lists:\n" + "\n".join(unknown)


@pytest.mark.parametrize("name", [name for name, entry in AUTHORED.items() if not entry.slow])
async def test_a_block_that_defines_an_environment_serves_it(
    name: str, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _served(AUTHORED[name], documents, tmp_path) as server:
        monkeypatch.setenv("DUMMY_INSTANCE_IP", server.address)
        async with Environment("doc@1.0.0") as env:
            await AUTHORED[name].check(env)


@pytest.mark.slow  # fastmcp takes seconds to import
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, entry in AUTHORED.items() if entry.slow])
async def test_a_block_that_also_makes_a_fastmcp_server_serves_its_tools(
    name: str, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The block's missing import is a package that we do not depend on: it comes from a judge's environment.
    (packages,) = judge("fastmcp2").parent.parent.glob("lib/python*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    await test_a_block_that_defines_an_environment_serves_it(name, documents, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENTS)
def test_a_block_that_uses_an_environment_runs(
    name: str, documents: Path, documented: Served, tmp_path: Path
) -> None:
    client = CLIENTS[name]
    program = tmp_path / "block.py"
    program.write_text(client.block.code(documents))
    with _address_for(client.served, documented, documents, tmp_path) as address:
        done = subprocess.run(
            [sys.executable, RUN_BLOCK, program, client.then],
            input=client.types,
            capture_output=True,
            text=True,
            env={**os.environ, **({"DUMMY_INSTANCE_IP": address} if address else {})},
        )
    assert done.returncode == 0, f"{program.read_text()}\n{done.stdout}\n{done.stderr}"
    assert client.prints in done.stdout


@contextmanager
def _address_for(served: str, documented: Served, documents: Path, folder: Path) -> Iterator[str]:
    """Where a client finds what it calls."""
    if served in AUTHORED:
        with _served(AUTHORED[served], documents, folder) as server:
            yield server.address
    else:
        yield documented.address if served else ""


@contextmanager
def _served(authored: Authored, documents: Path, folder: Path) -> Iterator[Served]:
    source = folder / "authored" / "src"
    source.mkdir(parents=True)
    (source / "block.py").write_text(authored.block.code(documents))
    with runtime(source.parent) as server:
        yield server
