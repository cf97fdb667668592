"""Tasks: folders of version 1 and of Harbor, read as they are; those of a data folder, or our own.

Not here: what happens with a task in an instance (`terminalbench_bench.py`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import terminalbench_yaml

from aenv import NotJudged, ToolError

VERSION_1, HARBOR = "version-1", "harbor"
SPLITS = (VERSION_1, HARBOR)
_PLACES = ("", "tasks", "original-tasks")
_CANARY = re.compile(r"^.*canary.*$", re.IGNORECASE | re.MULTILINE)
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_AGENT_SECONDS, _TEST_SECONDS = 900.0, 180.0
NO_DATA = (
    "no data for terminalbench: run 'aenv data pull terminalbench --from URL|DIR' (without --from it says what to "
    "fetch), or set TERMINALBENCH_DATA_DIR to a folder that has it"
)


@dataclass(frozen=True)
class Task:
    """What a task's folder says."""

    id: str
    folder: Path
    format: str
    instruction: str
    agent_seconds: float
    test_seconds: float
    facts: dict[str, Any]
    """Difficulty, category, tags: what there is."""
    canary: str
    keeps_processes: bool = False
    """Whether its tests look at what the agent has left running."""
    verifier_variables: dict[str, str] = field(default_factory=dict)
    """What its tests see; as the task spells it."""
    solution_variables: dict[str, str] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        return self.folder.parent == own_folder()

    @property
    def tests(self) -> Path:
        return self.folder / "tests"


def own_folder() -> Path:
    """Where the tasks are that ship with the environment."""
    return Path(__file__).parent.parent / "tasks"


def task_folders(variables: Any) -> list[Path]:
    """The folders of all tasks that this instance can have, by name."""
    chosen = variables.get("TERMINALBENCH_TASKS") or ""
    data = variables.get("TERMINALBENCH_DATA_DIR") or ""
    if chosen not in ("", "own", "data"):
        raise ToolError(f"variable TERMINALBENCH_TASKS is {chosen!r}; use 'own' or 'data'")
    if chosen == "data" and not data:
        raise ToolError(NO_DATA)
    if chosen == "own" or not data:
        places = [own_folder()]
    else:
        places = [Path(data) / place for place in _PLACES]
        if not Path(data).is_dir():
            raise ToolError(NO_DATA)
    found = (folder for place in places if place.is_dir() for folder in place.iterdir())
    return sorted((folder for folder in found if _format(folder)), key=lambda folder: folder.name)


def chosen_task(variables: Any) -> Task:
    """The task of this instance. ToolError says how to choose one, and which there are."""
    id = variables.get("TERMINALBENCH_TASK_ID") or ""
    folders = {folder.name: folder for folder in task_folders(variables)}
    if not id and len(folders) == 1:
        (id,) = folders
    if id not in folders:
        some = ", ".join([*folders][:5]) or "none"
        what = f"no task {id!r}" if id else "no task was chosen"
        raise ToolError(f"{what}; set TERMINALBENCH_TASK_ID to one of {len(folders)}, as in {some}")
    return load(folders[id])


def load(folder: Path) -> Task:
    """A task of either format."""
    format = _format(folder)
    if format == VERSION_1:
        return _version_1(folder)
    if format == HARBOR:
        return _harbor(folder)
    raise ToolError(f"{folder.name!r} is not a task: it has neither task.yaml nor task.toml")


def _format(folder: Path) -> str:
    if (folder / "task.toml").is_file() and (folder / "tests").is_dir():
        return HARBOR
    return VERSION_1 if (folder / "task.yaml").is_file() else ""


def _version_1(folder: Path) -> Task:
    text = _read(folder / "task.yaml")
    said = terminalbench_yaml.loads(text)
    if not isinstance(said, dict):
        raise ToolError(f"task.yaml of {folder.name!r} must hold a mapping")
    instruction = said.get("instruction") or next(
        (one.get("description") for one in said.get("descriptions") or () if one.get("key") == "base"), ""
    )
    parser = said.get("parser_name") or "pytest"
    if parser != "pytest":
        raise ToolError(f"task {folder.name!r} is judged by the parser {parser!r}; only 'pytest' is there")
    _check_services(folder, "docker-compose.yaml")
    return Task(
        id=folder.name,
        folder=folder,
        format=VERSION_1,
        instruction=_text(folder, instruction),
        agent_seconds=_seconds(said.get("max_agent_timeout_sec"), _AGENT_SECONDS),
        test_seconds=_seconds(said.get("max_test_timeout_sec"), _TEST_SECONDS),
        facts={name: said[name] for name in ("difficulty", "category", "tags") if name in said},
        canary=_canary(text, folder),
        keeps_processes=bool(said.get("run_tests_in_same_shell")),
    )


def _harbor(folder: Path) -> Task:
    import tomllib

    text = _read(folder / "task.toml")
    try:
        said = tomllib.loads(text)
    except ValueError as error:
        raise ToolError(f"task.toml of {folder.name!r} cannot be read: {error}") from None
    _check_services(folder, "environment/docker-compose.yaml")
    metadata = said.get("metadata") or {}
    return Task(
        id=folder.name,
        folder=folder,
        format=HARBOR,
        instruction=_text(folder, _read(folder / "instruction.md")),
        agent_seconds=_seconds((said.get("agent") or {}).get("timeout_sec"), _AGENT_SECONDS),
        test_seconds=_seconds((said.get("verifier") or {}).get("timeout_sec"), _TEST_SECONDS),
        facts={name: metadata[name] for name in ("difficulty", "category", "tags") if name in metadata},
        canary=_canary(text, folder),
        verifier_variables=_table(folder, said, "verifier"),
        solution_variables=_table(folder, said, "solution"),
    )


def _table(folder: Path, said: dict[str, Any], of: str) -> dict[str, str]:
    """The variables of `[verifier.env]` or `[solution.env]`."""
    found = (said.get(of) or {}).get("env") or {}
    if not isinstance(found, dict) or any(isinstance(value, dict | list) for value in found.values()):
        raise ToolError(f"[{of}.env] of task {folder.name!r} must be a table of texts")
    return {name: str(value) for name, value in found.items()}


def filled_in(spelled: dict[str, str], variables: Any) -> dict[str, str]:
    """Variables of a task with `${NAME}` and `${NAME:-default}` replaced by those of the instance.

    NotJudged when one is not there: nothing of the host is taken for it.
    """

    def value(match: re.Match[str]) -> str:
        given = variables.get(match[1]) or match[2]
        if given is None:
            raise NotJudged("not_ready", f"the task needs the variable {match[1]}; create the instance with it")
        return str(given)

    return {name: _REFERENCE.sub(value, text) for name, text in spelled.items()}


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it; no link is followed."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def programs_below(folder: Path) -> list[str]:
    """Those of them that may be executed."""
    return [name for name in files_below(folder) if os.access(folder / name, os.X_OK)]


def _check_services(folder: Path, file: str) -> None:
    """Refuse what needs more than one container. Of its compose file, nothing else is of interest."""
    below = f"\n{_read_if_there(folder / file)}".partition("\nservices:")[2]
    block = re.match(r"(?:[ \t].*|#.*|)(?:\n(?:[ \t].*|#.*|))*", below)
    indented = re.findall(r"^([ \t]+)([\w.-]+):", block[0] if block else "", re.MULTILINE)
    services = [name for indent, name in indented if indent == indented[0][0]]
    if len(services) > 1:
        raise ToolError(
            f"task {folder.name!r} needs {len(services)} containers ({', '.join(services)}); one is there"
        )


def _text(folder: Path, instruction: Any) -> str:
    if not isinstance(instruction, str) or not instruction.strip():
        raise ToolError(f"task {folder.name!r} has no instruction")
    return instruction.strip()


def _seconds(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _canary(text: str, folder: Path) -> str:
    """The line that marks benchmark data, so that it can be found where it should not be."""
    for candidate in (text, *map(_read_if_there, (folder / "instruction.md", folder / "Dockerfile"))):
        if found := _CANARY.search(candidate):
            return found[0].strip("#<!-> \t")
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{path.name} of task {path.parent.name!r} cannot be read: {error}") from None


def _read_if_there(path: Path) -> str:
    return _read(path) if path.is_file() else ""
