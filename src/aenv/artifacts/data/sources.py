"""Where the data of the built-in environments is published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...base.config import Data
from ...base.errors import InvalidRequest
from . import manifests
from .data_folders import on_host
from .manifests import Manifest


@dataclass(frozen=True)
class DataSource:
    """Data that others publish."""

    data: Data
    about: str
    revision: str
    url: str
    """The folder that the paths of the manifest are relative to; without a manifest, the archive of it all.

    Empty for packages of the host's distribution (`chromium.py`).
    """

    @property
    def manifest(self) -> Manifest | None:
        """The checksums that this package knows, if any."""
        file = Path(__file__).with_name(f"{self.data.name}.json")
        return manifests.parse(file.read_bytes(), str(file)) if file.is_file() else None


def _archive(repository: str, commit: str) -> str:
    return f"https://github.com/{repository}/archive/{commit}.tar.gz"


_SWEBENCH = "34d7c5e2ab2950f91dee00f734001959ed884797"
_TERMINALBENCH = "91e10457b5410f16c44364da1a34cb6de8c488a5"

SOURCES = {
    source.data.name: source
    for source in (
        DataSource(
            Data("tau2", "TAU2_DATA_DIR"),
            "databases, policies and tasks of τ²-bench (MIT)",
            "v1.0.1",
            "https://github.com/sierra-research/tau2-bench/raw/v1.0.1/data",
        ),
        DataSource(
            Data("swebench", "SWEBENCH_DATA_DIR"),
            "tasks of SWE-bench, one folder each",
            _SWEBENCH,
            _archive("SWE-bench/swe-bench-tasks", _SWEBENCH),
        ),
        DataSource(
            Data("terminalbench", "TERMINALBENCH_DATA_DIR"),
            "tasks of Terminal-Bench core 0.1.1",
            _TERMINALBENCH,
            _archive("laude-institute/terminal-bench", _TERMINALBENCH),
        ),
        # Not at one revision: the archive of a Debian release has only the newest of each package.
        DataSource(
            Data("browser", "BROWSER_DATA_DIR"), "Chromium and its libraries, of Debian's packages", "", ""
        ),
    )
}


def overview(home: Path) -> list[dict[str, str]]:
    """All data that is known or here, and where this machine has it."""
    others = {path.name for path in (home / "data").glob("[!.]*/")} - {*SOURCES}
    found = [*SOURCES.values(), *(DataSource(Data(name, ""), "", "", "") for name in sorted(others))]
    return [
        {
            "name": source.data.name,
            "folder": _folder(source.data, home),
            "variable": source.data.variable,
            "revision": source.revision,
            "about": source.about,
        }
        for source in found
    ]


def _folder(data: Data, home: Path) -> str:
    try:
        return str(on_host(data, home) or "")
    except InvalidRequest as error:
        return f"({error.message})"
