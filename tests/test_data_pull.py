"""`aenv data pull`: whole and checked, or not there at all; against a server that misbehaves."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from aenv.artifacts.data import manifests
from aenv.artifacts.data.pull import pull
from aenv.artifacts.data.sources import SOURCES
from aenv.base.errors import AEnvError, Conflict, InvalidRequest, NetworkError, NotFound
from tests.command_line import aenv, environ

BIG = bytes(range(256)) * 4096  # a megabyte, in which a piece at a wrong place is another content


class Served:
    """What a server offers, what goes wrong, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: list[int] = []
        """For the next answers: after so many bytes the connection breaks."""
        self.redirects: dict[str, str] = {}
        self.knows_ranges = True
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def folder(self, content: dict[str, bytes], **changes: Any) -> None:
        """Offer these files with their manifest, in which `changes` are made to every entry."""
        self.files = {f"/{path}": text for path, text in content.items()}
        entries = [entry(path, text) | changes for path, text in content.items()]
        self.files["/manifest.json"] = json.dumps({"revision": "r1", "files": entries}).encode()


def entry(path: str, content: bytes) -> dict[str, Any]:
    return {"path": path, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


@pytest.fixture
def served() -> Iterator[Served]:
    offer = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("range", "")
            offer.asked.append((self.path, asked))
            if self.path in offer.redirects:
                self.send_response(302)
                self.send_header("location", offer.redirects[self.path])
                self.end_headers()
                return
            content = offer.files.get(unquote(self.path))
            if content is None:
                self.send_error(404)
                return
            start = int(asked[6:-1]) if asked and offer.knows_ranges else 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("content-range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("content-range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("content-length", str(len(content) - start))
            self.end_headers()
            cut = offer.cut_after.pop(0) if offer.cut_after and len(content) > 1000 else None
            self.wfile.write(content[start:] if cut is None else content[start : start + cut])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        offer.url = f"http://127.0.0.1:{server.server_port}"
        yield offer
        server.shutdown()
        thread.join()


def fetch(home: Path, source: str, **options: Any) -> manifests.Manifest:
    return pull("my-data", home, lambda what, total: nullcontext(lambda done: None), source=source, **options)


def contents(home: Path) -> dict[str, bytes]:
    folder = home / "data" / "my-data"
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {path: file.read_bytes() for path, file in files.items() if path != "manifest.json"}


def nothing_is_there(home: Path) -> bool:
    return not (home / "data" / "my-data").exists()


def packed(*members: tuple[str, bytes], links: dict[str, str] | None = None) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for path, content in members:
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for path, target in (links or {}).items():
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return made.getvalue()


# From a URL


def test_every_file_of_a_manifest_is_fetched_and_compared(served: Served, tmp_path: Path) -> None:
    given = {"a/b c.json": b"{}", "big": BIG, "empty": b""}
    served.folder(given)
    assert fetch(tmp_path, served.url).revision == "r1"
    assert contents(tmp_path) == given
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".my-data.lock", "my-data"]


def test_a_connection_that_breaks_is_taken_up_where_it_broke(served: Served, tmp_path: Path) -> None:
    served.folder({"big": BIG})
    served.cut_after = [500_000, 100_000]
    fetch(tmp_path, served.url)
    assert contents(tmp_path) == {"big": BIG}
    assert [asked for path, asked in served.asked if path == "/big"] == ["", "bytes=500000-", "bytes=600000-"]


def test_a_pull_that_failed_goes_on_with_what_it_had(served: Served, tmp_path: Path) -> None:
    served.folder({"a": b"first", "big": BIG})
    served.cut_after = [500_000, 0]
    with pytest.raises(NetworkError, match="the same command continues"):
        fetch(tmp_path, served.url)
    assert nothing_is_there(tmp_path)
    served.asked.clear()
    fetch(tmp_path, served.url)
    assert contents(tmp_path) == {"a": b"first", "big": BIG}
    assert served.asked == [("/manifest.json", ""), ("/big", "bytes=500000-")]


def test_a_server_without_ranges_sends_it_all_again(served: Served, tmp_path: Path) -> None:
    served.folder({"big": BIG})
    served.knows_ranges = False
    served.cut_after = [1000]
    fetch(tmp_path, served.url)
    assert contents(tmp_path) == {"big": BIG}


def test_what_is_left_of_another_manifest_is_not_mixed_in(served: Served, tmp_path: Path) -> None:
    served.folder({"gone": b"old", "big": BIG})
    served.cut_after = [500_000, 0]
    with pytest.raises(NetworkError):
        fetch(tmp_path, served.url)
    served.folder({"big": BIG[::-1]})
    fetch(tmp_path, served.url)
    assert contents(tmp_path) == {"big": BIG[::-1]}


def test_a_file_with_another_checksum_is_refused_and_fetched_anew_the_next_time(
    served: Served, tmp_path: Path
) -> None:
    served.folder({"big": BIG}, sha256="0" * 64)
    for _ in range(2):
        with pytest.raises(NetworkError, match=r"'big' is not what it should be: .* and not 1048576 and 000"):
            fetch(tmp_path, served.url)
        assert nothing_is_there(tmp_path)
    assert [asked for path, asked in served.asked if path == "/big"] == ["", ""]


def test_no_more_is_taken_than_the_manifest_says(served: Served, tmp_path: Path) -> None:
    served.folder({"big": BIG}, size=10)
    with pytest.raises(AEnvError, match="larger than the 10 bytes"):
        fetch(tmp_path, served.url)
    assert nothing_is_there(tmp_path)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([{"path": "../../out", "sha256": "0" * 64, "size": 1}], "leads out"),
        ([{"path": "/etc/passwd", "sha256": "0" * 64, "size": 1}], "leads out"),
        ([{"path": "a", "link": "../../x"}], "leads out"),
        ([{"path": "a", "link": "b"}, {"path": "a/c", "sha256": "0" * 64, "size": 1}], "below a file"),
        ([{"path": "a", "sha256": "0" * 64, "size": 1}] * 2, "twice"),
        ([{"path": "manifest.json", "sha256": "0" * 64, "size": 1}], "itself"),
        ([{"path": "a", "sha256": "none", "size": 1}], "not a manifest"),
        ([{"path": "a", "sha256": "0" * 64, "size": -1}], "not a manifest"),
        ([{"path": "a", "sha256": "0" * 64, "size": 1 << 50}], "more than"),
        ([7], "not a manifest"),
        (None, "not a manifest"),
    ],
)
def test_a_manifest_that_is_wrong_or_wicked_is_refused_before_anything_is_fetched(
    served: Served, tmp_path: Path, files: Any, why: str
) -> None:
    served.files["/manifest.json"] = json.dumps({"files": files}).encode()
    with pytest.raises(AEnvError, match=why):
        fetch(tmp_path, served.url)
    assert nothing_is_there(tmp_path)
    assert [path for path, _ in served.asked] == ["/manifest.json"]


def test_a_url_without_a_manifest_is_refused_where_no_checksums_are_known(served: Served, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"no checksums are known for my-data.*--from DIR.*manifest\.json"):
        fetch(tmp_path, served.url)


@pytest.mark.parametrize("name", ["swebench", "terminalbench"])
def test_what_is_published_without_known_checksums_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"no checksums are known for {name}.*{SOURCES[name].url}"):
        pull(name, tmp_path, lambda what, total: nullcontext(lambda done: None))


def test_nobody_is_led_to_another_kind_of_place(served: Served, tmp_path: Path) -> None:
    for there, why in (("file:///etc/passwd", "not allowed"), ("ftp://127.0.0.1/x", "which is not https")):
        served.redirects["/manifest.json"] = there
        with pytest.raises(NetworkError, match=why):
            fetch(tmp_path, served.url)
    with pytest.raises(InvalidRequest, match="must begin with"):
        fetch(tmp_path, f"file://{tmp_path}")


def test_a_redirect_to_another_place_of_the_same_kind_is_followed(served: Served, tmp_path: Path) -> None:
    served.folder({"big": BIG})
    served.files["/elsewhere"] = served.files.pop("/big")
    served.redirects["/big"] = f"{served.url}/elsewhere"
    served.cut_after = [1000]
    fetch(tmp_path, served.url)
    assert contents(tmp_path) == {"big": BIG}
    assert ("/elsewhere", "bytes=1000-") in served.asked


# An archive


def manifest_of(**files: bytes) -> bytes:
    return json.dumps(
        {"revision": "r2", "files": [entry(path, content) for path, content in files.items()]}
    ).encode()


def test_an_archive_is_unpacked_and_compared_with_the_manifest_in_it(served: Served, tmp_path: Path) -> None:
    noise = os.urandom(200_000)
    served.files["/x.tar.gz"] = packed(
        ("top/manifest.json", manifest_of(big=noise)), ("top/big", noise), ("top/more", b"")
    )
    served.cut_after = [100_000]
    assert fetch(tmp_path, f"{served.url}/x.tar.gz").revision == "r2"
    assert contents(tmp_path) == {"big": noise}  # what its manifest does not name is left out
    assert served.asked == [("/x.tar.gz", ""), ("/x.tar.gz", "bytes=100000-")]


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (packed(("../out", b"x"), ("manifest.json", manifest_of())), "leads out"),
        (packed(("/tmp/out", b"x")), "leads out"),
        (packed(("a", b"x"), links={"l": "../../out"}), "leads out"),
        (packed(("a", b"x")), "no checksums are known"),
        (packed(("manifest.json", manifest_of(a=b"y")), ("a", b"x")), "is not what it should be"),
        (packed(("manifest.json", manifest_of(a=b"y")), ("b", b"x")), "'a' of the manifest is not in"),
        (b"no archive", "not a sound"),
        (packed(("a", os.urandom(50_000)))[:20_000], "not complete"),
    ],
    # What is packed has the time in it, and names of tests must be the same in every process.
    ids=["above", "elsewhere", "a link", "no manifest", "another file", "no file", "no archive", "cut short"],
)
def test_an_archive_that_is_wrong_or_wicked_leaves_nothing(
    served: Served, tmp_path: Path, archive: bytes, why: str
) -> None:
    served.files["/x.tar.gz"] = archive
    home = tmp_path / "in" / "home"
    with pytest.raises(AEnvError, match=why):
        fetch(home, f"{served.url}/x.tar.gz")
    assert nothing_is_there(home)
    assert [path.name for path in tmp_path.rglob("out")] == []
    assert not (home / "data" / ".my-data.partial" / "archive.tar.gz").exists()  # it is fetched anew


# From a folder


def test_a_folder_is_copied_as_it_is(tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "a").mkdir(parents=True)
    (given / ".git").mkdir()
    (given / ".git" / "config").touch()
    (given / "a" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (given / "a" / "run.sh").chmod(0o755)
    (given / "link").symlink_to("a/run.sh")
    fetch(tmp_path, str(given))
    pulled = tmp_path / "data" / "my-data"
    assert sorted(path.name for path in pulled.iterdir()) == ["a", "link", "manifest.json"]
    assert os.access(pulled / "a" / "run.sh", os.X_OK)
    assert os.readlink(pulled / "link") == "a/run.sh"


def test_what_was_pulled_can_be_served_to_others(served: Served, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "run.sh").write_bytes(b"#!/bin/sh\n")
    (given / "run.sh").chmod(0o755)
    (given / "link").symlink_to("run.sh")
    fetch(tmp_path / "one", str(given))
    first = tmp_path / "one" / "data" / "my-data"
    served.files = {f"/{path.name}": path.read_bytes() for path in first.iterdir() if not path.is_symlink()}
    fetch(tmp_path / "two", served.url)
    second = tmp_path / "two" / "data" / "my-data"
    assert (second / "manifest.json").read_bytes() == (first / "manifest.json").read_bytes()
    assert os.access(second / "run.sh", os.X_OK)
    assert os.readlink(second / "link") == "run.sh"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "shadow").symlink_to("/etc/shadow")
    with pytest.raises(InvalidRequest, match=r"'shadow' .* leads out"):
        fetch(tmp_path, str(given))
    assert nothing_is_there(tmp_path)


def test_what_is_there_is_replaced_only_by_force_and_as_a_whole(served: Served, tmp_path: Path) -> None:
    served.folder({"old": b"1"})
    fetch(tmp_path, served.url)
    served.folder({"new": BIG})
    with pytest.raises(Conflict, match=r"is there already.*--force"):
        fetch(tmp_path, served.url)
    served.cut_after = [500, 0]
    with pytest.raises(NetworkError):
        fetch(tmp_path, served.url, force=True)
    assert contents(tmp_path) == {"old": b"1"}
    fetch(tmp_path, served.url, force=True)
    assert contents(tmp_path) == {"new": BIG}


def test_names_that_are_paths_and_names_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    for name in ("../x", "a/b", "", ".", "A"):
        with pytest.raises(InvalidRequest, match="bad name"):
            pull(name, tmp_path, lambda what, total: nullcontext(lambda done: None), source=str(tmp_path))
    with pytest.raises(NotFound, match="tau2, swebench, terminalbench"):
        pull("other", tmp_path, lambda what, total: nullcontext(lambda done: None))


def test_two_pulls_of_the_same_do_not_meet(served: Served, tmp_path: Path) -> None:
    served.folder({"a": b"1"})

    @contextlib.contextmanager
    def meanwhile(what: str, total: int) -> Iterator[Any]:
        with pytest.raises(Conflict, match="being pulled by another program"):
            fetch(tmp_path, served.url)
        yield lambda done: None

    pull("my-data", tmp_path, meanwhile, source=served.url)
    assert contents(tmp_path) == {"a": b"1"}


# The table


def test_the_known_checksums_are_those_of_the_data(shared: Path) -> None:
    known = SOURCES["tau2"].manifest
    assert known
    wrong = [one.path for one in known.files if manifests.sha256(shared / "data" / one.path) != one.sha256]
    assert wrong == []


def test_every_source_is_pinned(tmp_path: Path) -> None:
    published = [
        source for source in SOURCES.values() if source.data.name != "browser"
    ]  # of the host's own archive
    for source in published:
        assert source.revision and source.revision in source.url
        assert source.url.startswith("https://github.com/")


# The command


@pytest.mark.slow
def test_the_command_pulls_and_lists(served: Served, tmp_path: Path) -> None:
    served.folder({"a": b"12345"})
    env = environ(AENV_HOME=str(tmp_path / "home"))
    done = aenv("data", "pull", "swebench", "--from", served.url, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "home" / "data" / "swebench"
    assert done.stdout == f"pulled swebench, revision r1: 1 files, 5 bytes, in {folder}\n"
    listed = json.loads(aenv("data", "list", "--json", env=env).stdout)
    assert [(each["name"], each["folder"]) for each in listed] == [
        ("tau2", ""),
        ("swebench", str(folder)),
        ("terminalbench", ""),
        ("browser", ""),
    ]
    again = aenv("data", "pull", "swebench", "--from", served.url, env=env)
    assert (again.returncode, again.stdout) == (1, "")
    assert "--force replaces it" in again.stderr
