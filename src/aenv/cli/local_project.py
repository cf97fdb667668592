"""The project that a command is about; a config.json that is wrong ends the command with exit code 3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base import config
from ..base.errors import InvalidRequest, NotFound
from . import files, output


def load(folder: Path) -> config.Project:
    """The project in `folder`."""
    try:
        return config.load_project(folder)
    except InvalidRequest as error:
        raise output.Failure(error.message, exit_code=3) from error


def named(what: str | None, work_dir: Path) -> config.Project:
    """The project in the folder `what` of `work_dir`, or in one of its folders whose config.json has that name."""
    if what is None or (work_dir / what / config.FILE_NAME).is_file():
        return load(work_dir / (what or "."))
    for file in (work_dir / config.FILE_NAME, *sorted(work_dir.glob(f"*/{config.FILE_NAME}"))):
        if _name(file) == what:
            return load(file.parent)
    if (work_dir / what).is_dir():
        return load(work_dir / what)  # which says what is missing there
    where = str(work_dir.resolve())
    raise output.Failure(f"no project {what!r} in {where!r}", hint="aenv push PATH, or aenv init NAME")


@contextmanager
def push_first(ref: str) -> Iterator[None]:
    """An environment that is not found, and is the project in the current folder, is to be pushed."""
    try:
        yield
    except NotFound as error:
        if error.message.startswith("environment ") and _name(Path(config.FILE_NAME)) == ref.partition("@")[0]:
            error.details.setdefault("hint", "aenv push")
        raise


def _name(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_bytes())["name"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # another project's trouble, or none at all


def around(path: Path) -> config.Project | None:
    """The project that `path` is, or is the `src` of, or is a file of; None where there is no config.json."""
    folder = path if path.is_dir() else path.parent
    homes = [folder, folder.parent] if folder.name == "src" else [folder]
    found = next((home for home in homes if (home / config.FILE_NAME).is_file()), None)
    return load(found) if found else None


def with_artifacts(project: config.Project, kind: str, made: Sequence[dict[str, str]]) -> config.Project:
    """Write artifacts into the project's config.json, in the place of those of their kind."""
    after = changed(project, [*made, *other_artifacts(project, kind)])
    file = project.path / config.FILE_NAME
    files.replace(file, spelled(after.raw), file.stat().st_mode & 0o777)
    return after


def changed(project: config.Project, artifacts: Sequence[dict[str, str]], version: str = "") -> config.Project:
    """The project with other artifacts, and maybe another version; its raw config.json agrees."""
    version = version or project.version
    listed = {"artifacts": list(artifacts)} if artifacts or "artifacts" in project.raw else {}
    raw = {**project.raw, "version": version, **listed}
    return replace(project, version=version, artifacts=tuple(artifacts), raw=raw)


def other_artifacts(project: config.Project, kind: str) -> list[dict[str, str]]:
    """The artifacts of a project, without those of a kind."""
    return [each for each in project.artifacts if each.get("type") != kind]


def spelled(raw: Mapping[str, Any]) -> str:
    """The text of a config.json."""
    return json.dumps(raw, indent=2, ensure_ascii=False) + "\n"
