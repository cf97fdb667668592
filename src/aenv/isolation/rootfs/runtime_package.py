"""What pip is told about aenv where a Dockerfile stands on the host root: that it is installed.

It is: instances bring it along. Without this, `RUN pip install -r requirements.txt` would fetch it, and all that
it needs, from a package index; and nothing could be built without a network.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from .host_rootfs import HostEntry, layer

FOLDER = "/opt/aenv"
"""Where it is told, for PYTHONPATH."""
INSTALL = "pip install --no-cache-dir --find-links . -r requirements.txt"
"""The line of our own template. Instances get these packages as requirements, so it is left out there."""
_NAME = "aenvironment"


def runtime_layer(home: Path) -> Path:
    """A layer for above the skeleton."""
    version = metadata.version(_NAME)
    told = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {version}\n"
    path = f"{FOLDER.lstrip('/')}/{_NAME}-{version}.dist-info/METADATA"
    return layer(home, "runtime", [told], lambda: {path: HostEntry(0o644, told.encode())})
