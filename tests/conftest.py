"""Fixtures that every test may use: a real runtime as a child process, and the shared test data."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests import skips
from tests.running import Runtime, running_runtime

# A shell that starts the tests in the background has them ignore it, and what they start would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).parent.parent
LONGEST = (
    "test_doc_commands.py",
    "test_templates.py",
    "test_openapi.py",
    "test_makers.py",
    "test_doctor.py",
    "test_native_chaos.py",
    "test_repository.py",
    "test_native_engine.py",
    "test_terminalbench.py",
    "test_centre_pages.py",
    "test_validate.py",
)
"""The files that take longest, the longest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--make-integrations", action="store_true", help="install the frameworks that are not there yet"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no core waits for it at the end."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at eight thousand tests again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last, and in one line, what did not run."""
    skipped = terminalreporter.stats.get("skipped", [])
    if said := skips.line(str(report.longrepr[2]) for report in skipped):
        terminalreporter.write_line(said)


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own.

    Pytest's fixture looks through the folders of all tests before it for a number, and makes a link to the newest:
    a tenth of the time of a whole run, since ext4 searches long for an inode where many were removed just now.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{name}{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the developer's shell has set must not reach the tests, nor the tests the developer's files."""
    for name in ("AENV_SYSTEM_URL", "DUMMY_INSTANCE_IP", "AENV_API_KEY", "AENV_ALLOW_UNISOLATED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AENV_HOME", str(tmp_path / "aenv-home"))


@pytest.fixture
def shared() -> Path:
    """The folder with shared test data."""
    folder = Path(os.environ.get("AENV_TEST_SHARED") or REPOSITORY.parent / "shared")
    if not folder.is_dir():
        message = f"no shared test data at {folder}; set AENV_TEST_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Callable[[str], Path]:
    """`project(code)` makes a folder with an environment that consists of this code."""
    made = 0

    def make(code: str) -> Path:
        nonlocal made
        made += 1
        folder = tmp_path / f"project{made}"
        (folder / "src").mkdir(parents=True)
        (folder / "src" / "custom_env.py").write_text(code)
        (folder / "config.json").write_text(
            f'{{"name": "env{made}", "version": "1.0.0", "buildConfig": {{}}, "deployConfig": {{}}}}'
        )
        return folder

    return make


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., object]]:
    """`await start(path, *options)` gives a running runtime; all are ended with the test."""
    async with AsyncExitStack() as stack:

        async def start_one(path: Path, *options: str, **variables: str) -> Runtime:
            return await stack.enter_async_context(running_runtime(path, *options, variables=variables))

        yield start_one
