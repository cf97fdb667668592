"""Where an instance's data is, and what `datasource` means: that folder, or the image of its second part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..config import Project
from ..data.folders import named_here, on_host
from ..engines.base import DATA_PLACE
from ..errors import InvalidRequest

_DEFAULT_PREFIX = "docker.io/library/aenv"  # published


def data_and_second(datasource: str, project: Project, roots: Sequence[Path]) -> tuple[Path | None, str]:
    """The folder, or the image; InvalidRequest for a folder that is not below one of `roots`."""
    if datasource.startswith(("/", "./", "~")):
        return _folder("datasource", datasource, roots), ""
    if not datasource or any(mark in datasource for mark in "/:@"):
        return None, datasource
    prefix = str(project.deploy.get("imagePrefix") or _DEFAULT_PREFIX)
    return None, f"{prefix}{'' if prefix.endswith((':', '/')) else ':'}{datasource}"


def declared_data(
    given: Mapping[str, str], project: Project, roots: Sequence[Path], home: Path | None
) -> Path | None:
    """The folder that the environment asks for in its config.json; None where nobody has it, which it will tell.

    The request's variable names it, by the rules of `datasource`; else our own variable; else it has been fetched.
    """
    if project.data is None:
        return None
    if named := given.get(project.data.variable):
        return _folder(f"environment_variables.{project.data.variable}", named, roots)
    return on_host(project.data, home) if home else None


def declared_folders(given: Mapping[str, str], project: Project, roots: Sequence[Path]) -> dict[str, Path]:
    """Further folders that the environment asks for, by variable: as far as they are named, in the same ways."""
    found = {}
    for variable in project.data.folders if project.data else ():
        named = given.get(variable)
        if not named:
            folder = named_here(variable)
        elif named == DATA_PLACE or named.startswith(f"{DATA_PLACE}/"):
            folder = None  # it is among the data, as the instance sees them
        else:
            folder = _folder(f"environment_variables.{variable}", named, roots)
        if folder:
            found[variable] = folder
    return found


def _folder(field: str, datasource: str, roots: Sequence[Path]) -> Path:
    if not roots:
        raise InvalidRequest(
            f"field {field!r}: this gateway offers no folders; its operator names them with --data-root"
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
    raise InvalidRequest(f"field {field!r}: {datasource!r} is no folder below a data root of this gateway")
