"""Base trees: the repository as it was before the solution, from a git mirror or from a release.

The tree of a Docker image is in the sidecar; `swebench_workplace.py` brings it here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO

from swebench_paths import leads_out
from swebench_records import Record

_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}\Z")
_GIT_VARIABLES = {"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/"}
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError)
# Archives without a date of their own have this, or less.
_NO_DATE = 631152000.0  # 1990


class NoBase(Exception):
    """There is no base tree for a record; the message says what is missing and how to get it."""


def mirror_name(record: Record) -> str:
    owner, _, name = record.repo.partition("/")
    return f"{owner}__{name}.git"


def mirror_of(record: Record, folders: Sequence[Path]) -> Path | None:
    """The mirror of a record's repository, in the first folder that has it."""
    return next((found for folder in folders if (found := folder / mirror_name(record)).is_dir()), None)


def from_git(record: Record, folders: Sequence[Path], tree: Path) -> str:
    """Check the record's commit out into `tree`, without any history; what it came from, for the report."""
    there = [folder for folder in folders if folder.is_dir()]
    if not there:
        raise NoBase(
            f"there is no folder {str(folders[0])!r} in the instance's view; put the mirrors into 'git' in the "
            "data folder, or let SWEBENCH_GIT_DIR name the folder that holds them"
        )
    mirror = mirror_of(record, there)
    if mirror is None:
        raise NoBase(
            f"no mirror {mirror_name(record)!r} in {str(there[0])!r}; make it where there is a network: "
            f"git clone --mirror https://github.com/{record.repo} {mirror_name(record)}"
        )
    if not _COMMIT.match(record.base_commit):
        raise NoBase(f"'base_commit' of {record.id!r} is {record.base_commit!r}, which is not a commit")
    tree.mkdir(parents=True)
    index = tree.parent / f"{tree.name}.index"
    try:
        # By way of an index of our own: the mirror is read-only, and `git archive` would leave out what
        # a repository wants left out of its releases, such as its tests.
        for words in (["read-tree", record.base_commit], ["checkout-index", "--all", "--force"]):
            _git(mirror, tree, index, words, record)
    finally:
        index.unlink(missing_ok=True)
    return f"git {record.base_commit[:12]}"


def _git(mirror: Path, tree: Path, index: Path, words: list[str], record: Record) -> None:
    command = ["git", "-c", "safe.directory=*", f"--git-dir={mirror}", f"--work-tree={tree}", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**_GIT_VARIABLES, "GIT_INDEX_FILE": str(index)}, cwd=tree
        )
    except FileNotFoundError:
        raise NoBase("SWEBENCH_BASE=git needs the program 'git', which is not installed here") from None
    if done.returncode:
        raise NoBase(f"{mirror.name!r} cannot give {record.base_commit!r}: {done.stderr.strip()[-300:]}")


def from_sdist(record: Record, sdists: Path | Sequence[Path], tree: Path) -> str:
    """Unpack the record's release into `tree`; its file, for the report."""
    file = sdist_of(record, sdists)
    place = tree.with_name(f"{tree.name}.unpacked")
    place.mkdir(parents=True)
    try:
        for name, mode, data in _members(file):
            target = place.joinpath(*name.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with data, target.open("wb") as out:
                shutil.copyfileobj(data, out)
            target.chmod(0o755 if mode & 0o100 else 0o644)
        tops = [*place.iterdir()]
        if len(tops) != 1 or not tops[0].is_dir():
            raise NoBase(f"{file.name!r} is not an sdist: it should hold one folder, and holds {len(tops)} things")
        tops[0].rename(tree)
    except _BROKEN as error:
        raise _broken(file, error) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return file.name


def sdist_of(record: Record, sdists: Path | Sequence[Path]) -> Path:
    """The file of the release that stands for a record's commit; the first folder that has one counts."""
    if not isinstance(sdists, Path):
        *others, last = sdists
        for folder in others:
            with contextlib.suppress(NoBase):
                return sdist_of(record, folder)
        sdists = last
    files = {stem(file.name): file for file in sorted(sdists.glob("*")) if file.name.endswith(_ARCHIVES)}
    if record.sdist:
        wanted = _normal(stem(record.sdist))
        if found := next((file for stem, file in files.items() if _normal(stem) == wanted), None):
            return found
        name, _, version = stem(record.sdist).rpartition("-")
        raise NoBase(
            f"no sdist {record.sdist!r} in {str(sdists)!r}; fetch it where there is a network: "
            f"pip download --no-deps --no-binary :all: {name}=={version}"
        )
    if not record.created_at:
        raise NoBase(f"{record.id!r} names no 'sdist', and has no 'created_at' to find one by")
    before, times = _seconds(record.created_at, record), _times(sdists)
    own = [file for stem, file in files.items() if _normal(stem.rpartition("-")[0]) == _normal(record.project)]
    dated = [(times.get(file.name) or _made_at(file), file) for file in own]
    old = [one for one in dated if one[0] and one[0] <= before]
    if not old:
        raise NoBase(
            f"no sdist of {record.project!r} from before {record.created_at} in {str(sdists)!r}, which has "
            f"{', '.join(file.name for file in own) or 'none of it'}; fetch one, or name it as its 'sdist'"
        )
    return max(old)[1]


def add(files: Path, tree: Path) -> None:
    """Copy files into a tree; those that it has stay as they are."""
    for file in files.rglob("*"):
        place = tree / file.relative_to(files)
        if file.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)


def stem(name: str) -> str:
    """The name of an archive without what says its kind."""
    return next((name.removesuffix(end) for end in _ARCHIVES if name.endswith(end)), name)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _times(sdists: Path) -> dict[str, float]:
    """When files were uploaded, as index.json, written when they were fetched, has it: {file: time}."""
    file = sdists / "index.json"
    if not file.is_file():
        return {}
    try:
        said = json.loads(file.read_text())
        return {name: datetime.fromisoformat(time).astimezone(UTC).timestamp() for name, time in said.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise NoBase(f"{str(file)!r} must be an object of files and ISO times: {error}") from None


def _seconds(text: str, record: Record) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NoBase(f"'created_at' of {record.id!r} is {text!r}, which is no ISO time") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _made_at(file: Path) -> float:
    """When a release was made, by the newest of its files; 0 when they do not say."""
    try:
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                times = [_stamp(one) for one in archive.infolist()]
        else:
            with tarfile.open(file) as tar:
                times = [float(one.mtime) for one in tar]
    except _BROKEN as error:
        raise _broken(file, error) from None
    newest = max(times, default=0.0)
    return newest if newest > _NO_DATE else 0.0


def _stamp(info: zipfile.ZipInfo) -> float:
    try:
        return datetime(*info.date_time, tzinfo=UTC).timestamp()
    except ValueError:  # such as the month 0, of archives without dates
        return 0.0


def _broken(file: Path, error: Exception) -> NoBase:
    why = str(error).partition("\n")[0].rstrip(":")
    return NoBase(f"{str(file)!r} cannot be unpacked: {why}; fetch it again")


def _members(file: Path) -> Iterator[tuple[PurePosixPath, int, IO[bytes]]]:
    """The plain files of an archive. Links and devices are left out; a path that leads out is refused."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    yield _safe(info.filename, file), info.external_attr >> 16, archive.open(info)
        return
    with tarfile.open(file) as tar:
        for member in tar:
            if member.isfile() and (data := tar.extractfile(member)):
                yield _safe(member.name, file), member.mode, data


def _safe(name: str, file: Path) -> PurePosixPath:
    if leads_out(name):
        raise NoBase(f"{file.name!r} holds {name!r}, which leads out of it")
    return PurePosixPath(name)
