"""The projects that attacks are made from: environments of this package, each written out as a project folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
PROGRAMS = _HERE / "programs"
ENVIRONMENTS = _HERE / "environments"
VERSION = "1.0.0"


def make_project(folder: Path, environment: str = "attacked", name: str = "", **deploy: Any) -> Path:
    """Write the environment as the project `name`, with the attack programs beside its code."""
    (folder / "src").mkdir(parents=True)
    shutil.copy(ENVIRONMENTS / f"{environment}.py", folder / "src" / "environment.py")
    for helper in ENVIRONMENTS.glob(f"{environment}_*.py"):
        shutil.copy(helper, folder / "src" / helper.name)
    shutil.copytree(PROGRAMS, folder / "programs", ignore=shutil.ignore_patterns("__pycache__"))
    config = {"name": name or environment, "version": VERSION, "deployConfig": deploy}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
