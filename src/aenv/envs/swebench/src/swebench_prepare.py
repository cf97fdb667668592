"""What the instances of records need besides the records, made ready: `aenv data prepare swebench`.

In the target folder, which instances see read-only:

    pythons/VERSION/          an interpreter, as far as it is not one of the system's folders
    sdists/, git/             what base trees are made of
    venvs/ID/lib/…            the packages that environment.yml pins, and the metadata of the project itself
    venvs/ID/tree/            files that its installation has made in the tree, such as the module of its version
    venvs/ID/prepared.json    what all this was made of; written last

A record that is there is left as it is. Unlike all else here this runs on the operator's own account, with its
network, and runs code of the repository: its setup.py, as any installation does.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import swebench_bases as bases
import swebench_pythons as pythons
import swebench_sites as sites
from swebench_pythons import Interpreter
from swebench_records import Record

Say = Callable[[str], None]

NOTE = "prepared.json"
_TAIL = 1500  # characters of what a program said
_BUILDS = ("setuptools", "wheel")
_INSTALLERS = ("__editable__*", "*.pth", "*.egg-link", ".lock", "bin")


class NotPrepared(Exception):
    """A record cannot be made ready; the message says why."""


@dataclass(frozen=True)
class Preparation:
    """Makes records ready, in `target`."""

    data: Path
    target: Path
    base: str
    """"sdist" or "git"."""
    uv: str
    variables: Mapping[str, str]

    def prepare(self, record: Record, say: Say) -> str:
        """Make one record ready; what its base is. NotPrepared, or NoBase, says why it cannot be."""
        python = self._python(record, say)
        record = replace(record, sdist=self._release(record, python, say)) if self.base == "sdist" else record
        self._mirror(record, say)
        venv, key = self.target / "venvs" / record.id, self._key(record, python)
        if noted(venv).get("key") != key:
            with _made(venv) as new:
                variant = self._install(record, python, new, say)
                note = {"key": key, "base": self.base, "sdist": record.sdist, "python": python.version}
                (new / NOTE).write_text(json.dumps({**note, "variant": variant}))
        return str(noted(venv)["variant"])

    def _key(self, record: Record, python: Interpreter) -> str:
        parts = [python.version, self.base, record.sdist, record.base_commit, record.environment]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    # The interpreter.

    def _python(self, record: Record, say: Say) -> Interpreter:
        minor = pythons.wanted(record.environment)
        found = pythons.found(minor, [self.target], self.variables) if minor else pythons.own()
        if found is None:
            raise NotPrepared(
                f"no Python {minor} on this machine; install it with 'pyenv install {minor}' or with 'uv python "
                f"install {minor}', or let {pythons.VARIABLE} name it"
            )
        kept = self.target / "pythons" / found.version
        if found.prefix.is_relative_to("/usr") or found.prefix == kept or not minor:
            return found  # an instance sees it anyway
        if not kept.exists():
            say(f"copying Python {found.version}")
            with _made(kept) as new:
                _copy_interpreter(found, new)
        copy = pythons.probed(kept / "bin" / f"python{minor}", {})
        if copy is None or copy.prefix != kept:
            raise NotPrepared(f"{str(found.prefix)!r} cannot be copied: it works only where it is")
        return copy

    # What the base tree is made of.

    def _release(self, record: Record, python: Interpreter, say: Say) -> str:
        """The release that stands for the commit, as "pytest-7.1.2"; fetched, where it is not here yet."""
        sdists = [self.target / "sdists", self.data / "sdists"]
        known = replace(
            record, sdist=record.sdist or str(noted(self.target / "venvs" / record.id).get("sdist") or "")
        )
        try:
            if known.sdist or (self.data / "sdists").is_dir():
                return bases.stem(bases.sdist_of(known, sdists).name)
        except bases.NoBase:
            pass  # fetched, then
        if record.sdist:
            name, _, version = record.sdist.rpartition("-")
        elif record.created_at:
            say(f"looking for the release of {record.project} before {record.created_at}")
            wanted = ("--no-deps", "--no-header", "--no-annotate", "--exclude-newer", record.created_at)
            said = self._uv("pip", "compile", "-", *wanted, "--python", str(python.path), given=record.project)
            name, _, version = said.strip().partition("==")
        else:
            raise NotPrepared("it names no 'sdist', and has no 'created_at' to find one by")
        say(f"fetching {name} {version}")
        with tempfile.TemporaryDirectory() as folder:
            pip = ("tool", "run", "--python", str(python.path), "--with", "setuptools", "pip", "download")
            self._uv(*pip, "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, f"{name}=={version}")
            [file] = Path(folder).iterdir()
            sdists[0].mkdir(parents=True, exist_ok=True)
            shutil.move(file, sdists[0] / file.name)
        return bases.stem(file.name)

    def _mirror(self, record: Record, say: Say) -> None:
        if self.base != "git" or bases.mirror_of(record, self._mirrors):
            return
        say(f"cloning {record.repo}")
        with _made(self.target / "git" / bases.mirror_name(record)) as new:
            _run(["git", "clone", "--quiet", "--mirror", f"https://github.com/{record.repo}", str(new)])

    @property
    def _mirrors(self) -> list[Path]:
        named = self.variables.get("SWEBENCH_GIT_DIR")
        return [*([Path(named)] if named else []), self.target / "git", self.data / "git"]

    # Packages.

    def _install(self, record: Record, python: Interpreter, new: Path, say: Say) -> str:
        packages = new / "lib" / f"python{python.minor}" / "site-packages"
        packages.mkdir(parents=True)
        wanted = sites.pins(record.environment)
        own = {sites.normal(record.project), sites.normal(record.sdist.rpartition("-")[0])}
        with tempfile.TemporaryDirectory() as work:
            pins, builds = Path(work, "pins.txt"), Path(work, "builds.txt")
            pins.write_text("".join(f"{name}=={version}\n" for name, version in wanted.items() if name not in own))
            builds.write_text("".join(f"{name}=={wanted[name]}\n" for name in _BUILDS if name in wanted))
            to = ("--link-mode", "copy", "--python", str(python.path), "--target", str(packages))
            if pins.read_text():
                say(f"installing {len(wanted)} packages for Python {python.version}")
                self._uv("pip", "install", *to, "--no-deps", "--compile-bytecode", "-r", str(pins))
            say(f"installing {record.project} for development")
            tree = Path(work, "tree")
            variant = self._tree(record, tree)
            before = _files(tree)
            there = {*packages.iterdir()}
            constraints = ("--build-constraints", str(builds)) if builds.read_text() else ()
            # With what it requires besides: a release may need what the commit, for which the pins are, does not.
            more = ("--override", str(pins), *constraints, "-e", str(tree))
            self._uv("pip", "install", *to, "--compile-bytecode", *more, version=_version(record))
            for pattern in _INSTALLERS:  # a verdict has its tree elsewhere, and says so itself
                for path in {*packages.glob(pattern)} - there:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in sorted(_files(tree) - before):
                if "__pycache__" not in path.parts and path.parts[0] != "build":
                    (new / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(tree / path, new / "tree" / path)
        return variant

    def _tree(self, record: Record, tree: Path) -> str:
        if self.base == "git":
            return bases.from_git(record, self._mirrors, tree)
        return f"sdist variant: {bases.from_sdist(record, [self.target / 'sdists', self.data / 'sdists'], tree)}"

    def _uv(self, *words: str, given: str = "", version: str = "") -> str:
        variables = dict(self.variables)
        if version:  # a tree without history knows none
            variables["SETUPTOOLS_SCM_PRETEND_VERSION"] = version
        return _run(
            [self.uv, *words, "--color", "never"] if words[0] == "pip" else [self.uv, *words], given, variables
        )


def noted(venv: Path) -> dict[str, object]:
    """What a record's packages were made of; empty where they are not there."""
    try:
        said = json.loads((venv / NOTE).read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


@contextmanager
def _made(place: Path) -> Iterator[Path]:
    """A folder that is there when all of it is; what was there before is replaced."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as folder:
        new = Path(folder, place.name)
        new.mkdir()
        yield new
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)


def _copy_interpreter(python: Interpreter, new: Path) -> None:
    """The standard library and the program, for a place that has another name."""
    library = f"lib/python{python.minor}"

    def left_out(folder: str, names: list[str]) -> list[str]:
        at = os.path.relpath(folder, python.prefix)
        left = {
            ".": {*names} - {"bin", "lib"},
            "bin": {name for name in names if not name.startswith("python")},
            "lib": {name for name in names if not name.startswith(("python", "libpython"))},
            library: {"site-packages", "idlelib", "turtledemo"},
            f"{library}/test": {*names} - {"__init__.py", "support"},
        }.get(at, set())
        return [name for name in names if name in left or name.endswith(".a")]

    shutil.copytree(python.prefix, new, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    (new / library / "site-packages").mkdir(exist_ok=True)
    # Programs that were linked to a library in their own folder look for it where it was built: beside them now.
    old, beside = f"\0{python.prefix}/lib\0".encode(), b"$ORIGIN/../lib"
    for file in [*(new / "bin").iterdir(), *(new / "lib").glob("libpython*")]:
        if file.is_file() and not file.is_symlink() and old in (content := file.read_bytes()):
            if len(beside) > len(old) - 2:
                raise NotPrepared(f"{str(python.prefix)!r} cannot be copied: its path is too short to be replaced")
            file.write_bytes(content.replace(old, b"\0" + beside.ljust(len(old) - 2, b"\0") + b"\0"))


def _files(tree: Path) -> set[Path]:
    return {path.relative_to(tree) for path in tree.rglob("*") if path.is_file() and not path.is_symlink()}


def _version(record: Record) -> str:
    """What a project that asks git for its version is told."""
    numbers = record.version.split(".")
    return f"{record.version}.dev0" if numbers and all(part.isdecimal() for part in numbers) else "0.0.0"


def _run(command: list[str], given: str = "", variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise NotPrepared(f"{' '.join(command[:4])} … failed: {(done.stderr or done.stdout).strip()[-_TAIL:]}")
    return done.stdout
