"""Where an instance's data is, and what `datasource` means: that folder, or the image of its sidecar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...artifacts.data.data_folders import checked, fetched, is_named_here, named_here
from ...base.config import Project
from ...base.errors import InvalidRequest
from ...base.paths import below
from ...engines.base import DATA_PLACE


def data_and_sidecar(datasource: str, project: Project, roots: Sequence[Path]) -> tuple[Path | None, str]:
    """The folder, or the image; InvalidRequest for a folder that is not below one of `roots`."""
    if datasource.startswith(("/", "./", "~")):
        return _folder("datasource", datasource, roots), ""
    if not datasource or any(mark in datasource for mark in "/:@"):
        return None, datasource
    prefix = project.deploy.image_prefix
    return None, f"{prefix}{'' if prefix.endswith((':', '/')) else ':'}{datasource}"


@dataclass(frozen=True)
class Offered:
    """The folders that the operator offers."""

    data_roots: tuple[Path, ...] = ()
    """Below which a request may name one."""
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    """By the variables under which every environment may ask for them."""
    home: Path | None = None
    """Below which is what was fetched."""


def declared_data(given: Mapping[str, str], project: Project, offered: Offered) -> Path | None:
    """The folder that the environment asks for in its config.json; None where nobody has it, which it will tell.

    The request's variable names it, by the rules of `datasource`; else the operator: by an option, by a variable
    of this process, or by having fetched it.
    """
    if project.data is None:
        return None
    variable = project.data.variable
    if named := given.get(variable):
        return _folder(f"environment_variables.{variable}", named, offered.data_roots)
    has_fetched = fetched(project.data.name, offered.home) if offered.home else None
    return _of_operator("data.variable", variable, project, offered, has_fetched)


def declared_folders(given: Mapping[str, str], project: Project, offered: Offered) -> dict[str, Path]:
    """Further folders that the environment asks for, by variable: as far as they are named, in the same ways."""
    found = {}
    for variable in project.data.folders if project.data else ():
        named = given.get(variable)
        if not named:
            name = variable.removesuffix("_DATA_DIR").lower().replace("_", "-")
            prepared = fetched(name, offered.home) if offered.home and variable.endswith("_DATA_DIR") else None
            folder = _of_operator("data.folders", variable, project, offered, prepared)
        elif named == DATA_PLACE or named.startswith(f"{DATA_PLACE}/"):
            folder = None  # it is among the data, as the instance sees them
        else:
            folder = _folder(f"environment_variables.{variable}", named, offered.data_roots)
        if folder:
            found[variable] = folder
    return found


def _of_operator(
    where: str, variable: str, project: Project, offered: Offered, has_fetched: Path | None = None
) -> Path | None:
    """The folder that the operator means by `variable`.

    Our own variables are not for what was published: its author would choose which of them, and so which folder of
    the host, is shown inside.
    """
    if listed := offered.data_folders.get(variable):
        return checked(listed, variable)
    ours = None if project.is_published else named_here(variable)
    if ours or has_fetched:
        return ours or has_fetched
    if project.is_published and is_named_here(variable):
        raise InvalidRequest(
            f"field '{where}' of environment '{project.ref}': this gateway lists no folder for {variable}; "
            f"its operator does so with --data-folder {variable}=PATH"
        )
    return None


def _folder(where: str, datasource: str, roots: Sequence[Path]) -> Path:
    if not roots:
        raise InvalidRequest(
            f"field {where!r}: this gateway offers no folders; its operator names them with --data-root"
        )
    for root in roots:
        with suppress(RuntimeError):  # "~name" of a user who is not there
            folder = below(root.expanduser(), Path(datasource).expanduser())
            if folder and folder.is_dir():
                return folder
    # What is not there and what lies elsewhere get the same answer: callers must not learn what the host has.
    raise InvalidRequest(f"field {where!r}: {datasource!r} is not a folder below a data root of this gateway")
