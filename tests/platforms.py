"""Platforms of embedded mode that programs under test have started: they outlive the programs by ten minutes."""

from __future__ import annotations

from pathlib import Path

import psutil


def platforms(home: Path) -> list[psutil.Process]:
    """Those with the given AENV_HOME."""
    named = ((process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [process for process, words in named if str(home / "run") in " ".join(words)]


def end_platforms(home: Path) -> None:
    for process in platforms(home):
        process.terminate()
        process.wait(10)
