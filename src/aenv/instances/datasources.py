"""What `datasource` means: a folder of data that the instance may read, or the image of its second part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..config import Project
from ..errors import InvalidRequest

_DEFAULT_PREFIX = "docker.io/library/aenv"  # published


def data_and_second(datasource: str, project: Project, roots: Sequence[Path]) -> tuple[Path | None, str]:
    """The folder, or the image; InvalidRequest for a folder that is not below one of `roots`."""
    if datasource.startswith(("/", "./", "~")):
        return _folder(datasource, roots), ""
    if not datasource or any(mark in datasource for mark in "/:@"):
        return None, datasource
    prefix = str(project.deploy.get("imagePrefix") or _DEFAULT_PREFIX)
    return None, f"{prefix}{'' if prefix.endswith((':', '/')) else ':'}{datasource}"


def _folder(datasource: str, roots: Sequence[Path]) -> Path:
    if not roots:
        raise InvalidRequest(
            "field 'datasource': this gateway offers no folders; its operator names them with --data-root"
        )
    for root in roots:
        try:
            # Links are followed first, so that none leads out. Relative to the root: nobody knows our own folder.
            top = root.expanduser().resolve(strict=True)
            folder = (top / Path(datasource).expanduser()).resolve(strict=True)
            if folder.is_relative_to(top) and folder.is_dir():
                return folder
        except (OSError, RuntimeError, ValueError):  # not there; a loop of links; no such home; a zero character
            continue
    # What is not there and what lies elsewhere get the same answer: it tells nobody what the host has.
    raise InvalidRequest(f"field 'datasource': {datasource!r} is no folder below a data root of this gateway")
