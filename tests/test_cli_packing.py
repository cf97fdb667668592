"""What `aenv push` and `aenv build` pack of a project: its files, and its config.json as that version's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aenv.artifacts import bundles
from aenv.cli import local_project, project_bundle
from tests.archives import make_folder

CONFIG = {
    "name": "pinned",
    "version": "1.0.0",
    "artifacts": [
        {"id": "", "type": "image", "content": "docker.io/aenv/pinned:1"},
        {"id": "pinned@1.0.0", "type": "bundle", "content": "sha256:0"},
    ],
}
FILES = {
    "src/environment.py": "pass\n",
    ".gitignore": "*.log\n",
    "a.log": "left out\n",
    "zero": "",
    "run.sh": "#!\n",
}
# What `aenv push -v 2.0.0` made of this project when it packed twice. Another one would be refused as a conflict.
PINNED_DIGEST = "af6543b771c97a4c6600d71c791a87f53b16a64c0c44d49c7afd21b77cd52ca0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = make_folder(tmp_path / "project", {**FILES, "config.json": json.dumps(CONFIG)})
    (folder / "run.sh").chmod(0o755)
    (folder / "config.json").chmod(0o755)
    (folder / "link").symlink_to("src")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_the_digest_of_a_project_never_changes(folder: Path, work: Path) -> None:
    packed = project_bundle.pack(local_project.load(folder), work, "2.0.0")
    assert packed.bundle.digest == PINNED_DIGEST


def test_its_config_json_says_the_version_and_not_the_bundle_of_a_build(folder: Path, work: Path) -> None:
    before = (folder / "config.json").read_bytes()
    packed = project_bundle.pack(local_project.load(folder), work, "2.0.0")
    said = bundles.inspect(packed.archive).config
    assert (said["version"], [each["type"] for each in said["artifacts"]]) == ("2.0.0", ["image"])
    assert str(packed.project.ref) == "pinned@2.0.0"
    assert (folder / "config.json").read_bytes() == before


def test_a_project_is_packed_without_a_copy_of_its_files(folder: Path, work: Path) -> None:
    project_bundle.pack(local_project.load(folder), work)
    assert [path.name for path in work.iterdir()] == ["bundle.tar.gz"]


def test_a_config_json_that_is_a_link_is_packed_as_what_it_says(folder: Path, work: Path, tmp_path: Path) -> None:
    (folder / "config.json").rename(tmp_path / "elsewhere.json")
    (folder / "config.json").symlink_to(tmp_path / "elsewhere.json")
    assert project_bundle.pack(local_project.load(folder), work, "2.0.0").bundle.digest == PINNED_DIGEST
