"""Logs in a file: they rotate, so that they never fill the disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.base import logs
from tests.command_line import aenv, serving


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = logging.getLogger("aenv").handlers[:]
    yield
    for handler in logging.getLogger("aenv").handlers:
        if handler not in before:
            handler.close()
    logs.setup_logging(before[0] if before else None)


def test_a_log_file_rotates_and_the_oldest_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    path.write_text("from before\n")
    logs.configure("INFO", file=path, file_bytes=1000)
    for number in range(200):
        logging.getLogger("aenv.test").info("line %d", number)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["gateway.log", *(f"gateway.log.{n}" for n in range(1, 6))]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert path.read_text().endswith("line 199\n")
    assert "from before" not in "".join(file.read_text() for file in files)


@pytest.mark.slow
def test_serve_logs_to_a_file_and_not_to_stderr(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "gateway.log"
    options = ("--port", "0", "--data-port", "0", "--home", str(tmp_path / "home"))
    with serving("serve", *options, "--log-file", path) as server:
        said = server.until("export AENV_SYSTEM_URL", on="stderr")
        url = said[-1].partition("=")[2]
        assert f"listening on {url}, data on" in path.read_text()
        assert "listening" not in "".join(said)


@pytest.mark.slow
def test_a_log_file_that_cannot_be_written_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in ("serve", "hub"):
        done = aenv(command, "--home", tmp_path / "home", "--log-file", tmp_path / "file" / "gateway.log")
        assert done.returncode == 1
        assert done.stderr.startswith(f"aenv: cannot log to '{tmp_path / 'file' / 'gateway.log'}': ")
