"""What pip is told about aenv where a Dockerfile stands on the host root: that it is installed.

It is: instances bring it along. Without this, `RUN pip install -r requirements.txt` would fetch it, and all that
it needs, from a package index; and nothing could be built without a network.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from . import folder_cache
from .host_rootfs import HostEntry, write

FOLDER = "/opt/aenv"
"""Where it is told, for PYTHONPATH."""
INSTALL = "pip install --no-cache-dir --find-links . -r requirements.txt"
"""The line of our own template. Instances get these packages as requirements, so it is left out there."""
_NAME = "aenvironment"


def runtime_layer(home: Path) -> Path:
    """A layer for above the skeleton."""
    version = metadata.version(_NAME)
    told = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {version}\n"
    place = folder_cache.place(home) / f"runtime-{folder_cache.digest([told])[:32]}"
    if not folder_cache.use(place):
        with folder_cache.new(place) as folder:
            path = f"{FOLDER.lstrip('/')}/{_NAME}-{version}.dist-info/METADATA"
            write(folder, {path: HostEntry(0o644, told.encode())})
        folder_cache.use(place)
    return place
