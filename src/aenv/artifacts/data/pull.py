"""`pull`: a folder of data, whole and checked at `<home>/data/<name>`, or not there at all.

What has been fetched stays in `<home>/data/.<name>.partial` until all is there; the next pull goes on with it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from ...base.errors import AEnvError, Conflict, InvalidRequest, NetworkError, NotFound
from ...base.locks import alone
from ...base.paths import below
from .. import bundles
from . import chromium, manifests
from .download import OnBytes, download, read
from .manifests import MAX_BYTES, MAX_FILES, Manifest, ManifestEntry
from .sources import SOURCES

Bar = Callable[[str, int], AbstractContextManager[OnBytes]]
"""Shows what is done, and how much of so many bytes."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_ARCHIVES = (".tar.gz", ".tgz")
_MAX_MANIFEST = 128 << 20


def pull(name: str, home: Path, bar: Bar, *, source: str = "", force: bool = False) -> Manifest:
    """Fetch the data of that name, from where it is published or from `source`, a URL or a folder."""
    if not _NAME.match(name):
        raise InvalidRequest(f"bad name {name!r}; use lower-case letters, digits and '-'")
    if not source and name not in SOURCES:
        raise NotFound(f"no data {name!r} is known; there are {', '.join(SOURCES)}; others take --from")
    target, work = home / "data" / name, home / "data" / f".{name}.partial"
    with alone(home / "data" / f".{name}.lock", f"{name} is being pulled by another program"):
        if target.exists() and not force:
            raise Conflict(f"{name} is there already, in {str(target)!r}; --force replaces it")
        pulling = _Pull(name, work, bar)
        manifest = pulling.named(pulling.run(source))
        (pulling.tree / manifests.NAME).write_bytes(manifest.dump())
        if target.exists():
            target.rename(work / "old")
        pulling.tree.rename(target)
        shutil.rmtree(work)
    return manifest


class _Pull:
    """One pull, into `tree`."""

    def __init__(self, name: str, work: Path, bar: Bar) -> None:
        self.tree = work / "tree"
        self._name = name
        self._work = work
        self._bar = bar
        self._source = SOURCES.get(name)
        self._known = self._source.manifest if self._source else None

    def run(self, source: str) -> Manifest:
        if not source:
            assert self._source
            if not self._source.url:
                return self._install()
            return self._fetch(self._source.url, self._known or self._refused())
        if "://" not in source:
            folder = Path(source).expanduser()
            if not folder.is_dir():
                raise InvalidRequest(f"--from {source!r} is neither a folder nor a URL")
            there = self._in(folder) or manifests.of_folder(folder)
            self._begin(there.dump())
            return self._copy(folder, there)
        if source.partition("?")[0].endswith(_ARCHIVES):
            return self._unpack(source)
        text = read(f"{source.rstrip('/')}/{manifests.NAME}", _MAX_MANIFEST)
        manifest = (
            manifests.parse(text, f"the {manifests.NAME} of {source!r}") if text is not None else self._known
        )
        return self._fetch(source, manifest or self._refused())

    def _install(self) -> Manifest:
        """Chromium, which the archive of the host's distribution has."""
        self._begin(self._name.encode())
        archive = chromium.Archive(self._work)
        packages = archive.plan()
        with self._bar(f"downloading {self._name}", sum(package.size for package in packages)) as show:
            archive.fetch(packages, show)
        archive.unpack(packages, self._work / "unpacked", self.tree)
        version = next(package.version for package in packages if package.name == "chromium")
        manifest = replace(manifests.of_folder(self.tree), revision=version)
        self._finish(manifest)
        return manifest

    def named(self, manifest: Manifest) -> Manifest:
        """With its revision, if it has all that is published of one."""
        known = self._known
        return (
            replace(manifest, revision=known.revision)
            if known and {*known.files} <= {*manifest.files}
            else manifest
        )

    def _begin(self, what: bytes) -> None:
        """What an earlier pull of the same has left is kept, and of nothing else."""
        note, digest = self._work / "what", hashlib.sha256(what).hexdigest()
        if not note.is_file() or note.read_text() != digest:
            shutil.rmtree(self._work, ignore_errors=True)
        self.tree.mkdir(parents=True, exist_ok=True)
        note.write_text(digest)

    def _refused(self) -> Manifest:
        fetch = f" (fetch {self._source.url}, and unpack it)" if self._source else ""
        raise InvalidRequest(
            f"no checksums are known for {self._name}, so what arrives could be anything: name a folder with "
            f"--from DIR{fetch}, or a URL that has a {manifests.NAME} with path, sha256 and size of every file"
        )

    def _in(self, folder: Path) -> Manifest | None:
        file = folder / manifests.NAME
        return manifests.parse(file.read_bytes(), repr(str(file))) if file.is_file() else None

    def _fetch(self, base: str, manifest: Manifest) -> Manifest:
        """Each file by itself."""
        self._begin(manifest.dump())

        def fetch(entry: ManifestEntry, place: Path, show: OnBytes) -> None:
            download(f"{base.rstrip('/')}/{quote(entry.path)}", place, entry.size, show)

        return self._put_all("downloading", manifest, fetch)

    def _unpack(self, url: str) -> Manifest:
        self._begin(url.encode())
        archive, unpacked = self._work / "archive.tar.gz", self._work / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with self._bar(f"downloading {self._name}", 0) as show:
            if not archive.exists():
                download(url, archive, MAX_BYTES, show)
        try:
            bundles.unpack(archive, unpacked, max_bytes=MAX_BYTES, max_files=MAX_FILES)
            inside = list(unpacked.iterdir())
            # Archives of a repository hold one folder, named after it.
            top = inside[0] if len(inside) == 1 and inside[0].is_dir() else unpacked
            return self._copy(top, self._in(top) or self._known or self._refused())
        except AEnvError:
            archive.unlink()  # it will not be better the next time
            raise

    def _copy(self, folder: Path, manifest: Manifest) -> Manifest:
        def copy(entry: ManifestEntry, place: Path, show: OnBytes) -> None:
            file = below(folder, entry.path)
            if file is None or not file.is_file():
                raise InvalidRequest(f"{entry.path!r} of the manifest is not in {str(folder)!r}")
            shutil.copyfile(file, place)

        return self._put_all("copying", manifest, copy)

    def _put_all(
        self, doing: str, manifest: Manifest, put: Callable[[ManifestEntry, Path, OnBytes], None]
    ) -> Manifest:
        """Have every file put into its place that is not there yet, and check it."""
        done = 0
        with self._bar(f"{doing} {self._name}", manifest.total_bytes) as show:
            for entry in manifest.files:
                place = self._place(entry)
                if not entry.link and not (place.is_file() and _is(entry, place)):
                    put(entry, place, lambda now, before=done: show(before + now))  # type: ignore[misc]
                    self._check(entry, place)
                done += entry.size
                show(done)
        self._finish(manifest)
        return manifest

    def _place(self, entry: ManifestEntry) -> Path:
        place = self.tree / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _check(self, entry: ManifestEntry, place: Path) -> None:
        if not _is(entry, place):
            size, digest = place.stat().st_size, manifests.sha256(place)
            place.unlink()
            raise NetworkError(
                f"{entry.path!r} is not what it should be: it has {size} bytes and sha256 {digest}, "
                f"and not {entry.size} and {entry.sha256}"
            )

    def _finish(self, manifest: Manifest) -> None:
        """Links come last, so that nothing is written through one."""
        for entry in manifest.files:
            place = self._place(entry)
            if entry.link:
                place.unlink(missing_ok=True)
                place.symlink_to(entry.link)
            else:
                place.chmod(0o755 if entry.executable else 0o644)


def _is(entry: ManifestEntry, file: Path) -> bool:
    return file.stat().st_size == entry.size and manifests.sha256(file) == entry.sha256
