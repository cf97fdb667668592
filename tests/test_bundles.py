"""Bundles: what is packed, that it is the same everywhere, and that nothing in one is trusted."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aenv.artifacts import bundles
from aenv.base.errors import AEnvError, Conflict, InvalidRequest, TooLarge
from tests.archives import CONFIG, FILES, archive, compressed, entry, link, make_folder

# What this tree was packed to by the first release. If it changed, pushing the same content again would conflict.
PINNED = {"config.json": "{}", "src/" + "ä" * 60 + ".py": "pass\n", "data.bin": bytes(200_000)}
PINNED_DIGEST = "0d712a525c44f96bd64ff33ab8de41f98519462956107f34eaa4426d236f3100"


def tree(folder: Path) -> dict[str, bytes | str]:
    """Every file below a folder with its content, every link with its target."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def packed(folder: Path, file: Path) -> list[str]:
    """The paths that a folder's bundle holds."""
    return sorted(bundles.pack(folder, file).files)


class TestPacking:
    def test_the_same_content_has_the_same_digest_wherever_and_whenever_it_is_packed(self, tmp_path):
        one = make_folder(tmp_path / "one", FILES)
        other = make_folder(tmp_path / "deep" / "other", dict(reversed(FILES.items())))
        os.utime(other / "config.json", (1, 1))
        (other / "README.md").chmod(0o600)
        (other / "empty").mkdir()
        first = bundles.pack(one, tmp_path / "a")
        assert first == bundles.pack(other, tmp_path / "b")
        assert first.digest == hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
        assert first.size_bytes == (tmp_path / "a").stat().st_size

    def test_the_digest_of_some_content_never_changes(self, tmp_path):
        folder = make_folder(tmp_path / "one", PINNED)
        (folder / "link").symlink_to("src")
        assert bundles.pack(folder, tmp_path / "a").digest == PINNED_DIGEST

    @pytest.mark.parametrize("change", ["content", "name", "mode"])
    def test_other_content_has_another_digest(self, tmp_path, change):
        folder = make_folder(tmp_path / "one", FILES)
        before = bundles.pack(folder, tmp_path / "a").digest
        match change:
            case "content":
                (folder / "README.md").write_text("# other\n")
            case "name":
                (folder / "README.md").rename(folder / "READ.md")
            case "mode":
                (folder / "src" / "environment.py").chmod(0o700)
        assert bundles.pack(folder, tmp_path / "a").digest != before

    def test_any_tar_reads_a_bundle(self, tmp_path):
        bundles.pack(make_folder(tmp_path / "one", FILES), tmp_path / "a.tar.gz")
        with tarfile.open(tmp_path / "a.tar.gz") as tar:
            assert tar.getnames() == sorted(FILES)
            assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info in tar} == {
                (0, 0, 0, "", 0o644)
            }
        subprocess.run(["tar", "-tzf", tmp_path / "a.tar.gz"], check=True, capture_output=True)

    def test_what_is_nobodys_source_stays_out_without_any_rule(self, tmp_path):
        left_out = [
            ".git/config",
            ".env",
            ".env.local",
            ".venv/bin/python",
            "venv/x",
            "src/__pycache__/a.pyc",
            "b.pyc",
        ]
        left_out += [
            ".mypy_cache/x",
            ".pytest_cache/x",
            ".ruff_cache/x",
            ".DS_Store",
            "src/.env",
            "my/env/pyvenv.cfg",
        ]
        folder = make_folder(tmp_path / "one", {**FILES, **dict.fromkeys([*left_out, "my/env/lib/x.py"], "x")})
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "a.sock"))
            os.mkfifo(folder / "pipe")
            assert packed(folder, tmp_path / "a") == sorted(FILES)

    @pytest.mark.skipif(not shutil.which("git"), reason="git says what is ignored")
    def test_gitignore_files_mean_what_they_mean_to_git(self, tmp_path):
        folder = make_folder(
            tmp_path / "one",
            {
                ".gitignore": "*.log\n!keep.log\n/build/\ndata/*\n!data/.keep\n# a\n\\#odd\nfoo/**/bar\n**/tmp\n",
                "a.log": "",
                "keep.log": "",
                "build/x": "",
                "src/build/x": "",
                "data/x": "",
                "data/.keep": "",
                "data/sub/y": "",
                "#odd": "",
                "foo/a/b/bar": "",
                "foo/bar": "",
                "x/tmp/y": "",
                "tmp": "",
                "src/.gitignore": "!a.log\nlocal.py\n/only\n",
                "src/a.log": "",
                "src/b.log": "",
                "src/local.py": "",
                "src/deep/local.py": "",
                "src/deep/only": "",
                "src/only": "",
                "gone/.gitignore": "*\n",
                "gone/x": "",
                "ümläut/ä b.txt": "",
            },
        )
        subprocess.run(
            ["git", "init", "-q", folder], check=True, env={"PATH": os.environ["PATH"], "HOME": "/nowhere"}
        )
        listed = subprocess.run(
            ["git", "-C", folder, "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
        ).stdout
        assert packed(folder, tmp_path / "a") == sorted(listed.decode().strip("\0").split("\0"))

    def test_aenvignore_says_more_than_gitignore_and_may_overrule_it(self, tmp_path):
        files = {".gitignore": "*.bin\n", ".aenvignore": "docs/\n!model.bin\n", "a.bin": "", "model.bin": ""}
        folder = make_folder(tmp_path / "one", {**files, "docs/x.md": ""})
        assert packed(folder, tmp_path / "a") == [".aenvignore", ".gitignore", "model.bin"]

    def test_a_link_inside_the_tree_stays_a_link(self, tmp_path):
        folder = make_folder(tmp_path / "one", FILES)
        (folder / "src" / "read.me").symlink_to("../README.md")
        (folder / "code").symlink_to("src")
        bundles.pack(folder, tmp_path / "a")
        bundles.unpack(tmp_path / "a", tmp_path / "out")
        assert tree(tmp_path / "out") == tree(folder)

    @pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "src/../../secret", "src/up/../secret"])
    def test_a_link_out_of_the_tree_is_refused_by_name_and_nothing_is_left(self, tmp_path, target):
        folder = make_folder(tmp_path / "one", FILES)
        (folder / "src" / "up").symlink_to("..")
        (folder / "leak").symlink_to(target)
        with pytest.raises(InvalidRequest, match="link 'leak'"):
            bundles.pack(folder, tmp_path / "a")
        assert not (tmp_path / "a").exists()

    def test_a_missing_folder_is_named(self, tmp_path):
        with pytest.raises(InvalidRequest, match="nowhere"):
            bundles.pack(tmp_path / "nowhere", tmp_path / "a")


class TestReading:
    def test_what_was_packed_comes_out(self, tmp_path):
        files = {**FILES, "a" * 120 + "/" + "b" * 120: "long", "ü/ä.txt": "umlaut", "big": os.urandom(3 << 20)}
        folder = make_folder(tmp_path / "one", files)
        (folder / "src" / "environment.py").chmod(0o755)
        bundle = bundles.pack(folder, tmp_path / "a")
        bundles.unpack(tmp_path / "a", tmp_path / "out")
        assert tree(tmp_path / "out") == tree(folder)
        assert (tmp_path / "out" / "src" / "environment.py").stat().st_mode & 0o777 == 0o755
        assert bundles.inspect(tmp_path / "a").files == bundle.files

    def test_a_bundle_says_what_it_is(self, tmp_path):
        bundles.pack(make_folder(tmp_path / "one", FILES), tmp_path / "a")
        contents = bundles.inspect(tmp_path / "a")
        assert contents.config["name"] == "echo"
        assert contents.readme == "# echo\n"
        assert contents.requirements == ["aenvironment", "httpx>=0.27"]
        assert list(contents.sources) == ["src/environment.py"]

    def test_the_one_folder_of_a_published_archive_is_left_out(self, tmp_path):
        make_folder(tmp_path / "my-env", {**FILES, ".git/HEAD": "x"})
        (tmp_path / "my-env" / "inside").symlink_to("README.md")
        with tarfile.open(tmp_path / "a", "w:gz") as tar:
            tar.add(tmp_path / "my-env", "my-env")
        bundles.unpack(tmp_path / "a", tmp_path / "out")
        assert tree(tmp_path / "out") == tree(tmp_path / "my-env")
        assert bundles.inspect(tmp_path / "a").config["name"] == "echo"

    def test_a_hard_link_to_a_file_before_it_is_a_copy(self, tmp_path):
        archive(tmp_path / "a", [entry("one", b"text"), link("two", "one", hard=True)])
        bundles.unpack(tmp_path / "a", tmp_path / "out")
        assert (tmp_path / "out" / "two").read_text() == "text"
        files = bundles.inspect(tmp_path / "a").files
        assert files["one"] == files["two"]

    def test_a_folder_that_exists_is_not_touched(self, tmp_path):
        bundles.pack(make_folder(tmp_path / "one", FILES), tmp_path / "a")
        make_folder(tmp_path / "out", {"mine": "x"})
        with pytest.raises(Conflict, match="exists"):
            bundles.unpack(tmp_path / "a", tmp_path / "out")
        assert tree(tmp_path / "out") == {"mine": b"x"}

    @pytest.mark.parametrize("config", ["[]", "{", '{"a": ' * 5000])
    def test_a_config_that_is_no_object_is_refused(self, tmp_path, config):
        archive(tmp_path / "a", [entry("config.json", config.encode())], config=False)
        with pytest.raises(InvalidRequest, match=r"config\.json in the bundle"):
            bundles.inspect(tmp_path / "a")


HOSTILE = {
    "parent": [entry("../x", b"1")],
    "parent in the middle": [entry("src/../../x", b"1")],
    "absolute": [entry("/tmp/aenv-x", b"1")],
    "link out": [link("leak", "../../etc")],
    "absolute link": [link("leak", "/etc")],
    "link chain": [link("d/d/up", "../.."), link("leak", "d/d/up/../secret")],
    "link out of the one folder": [link("top/leak", "../other")],
    "write through a link": [link("src", "/tmp"), entry("src/aenv-x", b"1")],
    "write through a link inside": [link("src", "."), entry("src/x", b"1")],
    "replaced link": [link("a", "config.json"), entry("a", b"1")],
    "file twice": [entry("a", b"1"), entry("a", b"2")],
    "file below a file": [entry("a", b"1"), entry("a/b", b"2")],
    "file where a folder is": [entry("a/b", b"1"), entry("a", b"2")],
    "hard link out": [link("leak", "/etc/passwd", hard=True)],
    "hard link up": [link("leak", "../secret", hard=True)],
    "hard link to a link": [link("a", "config.json"), link("b", "a", hard=True)],
    "hard link to itself": [link("a", "a", hard=True)],
    "device": [entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "pipe": [entry("pipe", type=tarfile.FIFOTYPE)],
    "no name": [entry("./", b"1")],
    "name too long": [entry("x" * 300, b"1")],
    "path too long": [entry("/".join(["x" * 100] * 11)[1:], b"1")],
    "NUL": [entry("a", b"1", pax_headers={"path": "a\0b"})],
    "link to NUL": [link("a", "x")],
}
HOSTILE["link to NUL"][0][0].pax_headers = {"linkpath": "b\0c"}


class TestHostileBundles:
    @pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
    def test_is_refused_and_nothing_is_written(self, tmp_path, entries):
        place = tmp_path / "place"
        place.mkdir()
        in_top = entries[0][0].name.startswith("top/")
        first = [entry("top/config.json", CONFIG.encode())] if in_top else []
        archive(tmp_path / "a", [*first, *entries], config=not in_top)
        with pytest.raises(InvalidRequest):
            bundles.unpack(tmp_path / "a", place / "out")
        with pytest.raises(InvalidRequest):
            bundles.inspect(tmp_path / "a")
        assert list(place.iterdir()) == []
        assert not Path("/tmp/aenv-x").exists()

    def test_links_in_a_circle_lead_nowhere_and_do_no_harm(self, tmp_path):
        archive(tmp_path / "a", [link("a", "b"), link("b", "a/../a")])
        bundles.unpack(tmp_path / "a", tmp_path / "out")

    @pytest.mark.slow  # thousands of links
    def test_a_tangle_of_links_is_refused_before_it_costs_much(self, tmp_path):
        tangle = [link(f"l{n}", "/".join([*["d", ".."] * 100, f"l{n + 1}"])) for n in range(3000)]
        archive(tmp_path / "a", [*tangle, entry("d/x", b"1")])
        with pytest.raises(InvalidRequest, match="tangle"):
            bundles.inspect(tmp_path / "a")

    def test_a_bomb_is_refused_by_what_it_claims(self, tmp_path):
        info, _ = entry("zeros", size=1 << 30)
        plain = entry("config.json", CONFIG.encode())[0].tobuf() + CONFIG.encode().ljust(512, b"\0")
        compressed(tmp_path / "a", plain + info.tobuf() + bytes(64 << 20))
        with pytest.raises(TooLarge, match="more than 16 MiB"):
            bundles.unpack(tmp_path / "a", tmp_path / "place" / "out", max_bytes=16 << 20)
        assert list((tmp_path / "place").iterdir()) == []

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_a_bomb_between_two_files_is_refused_before_it_is_in_memory(self, tmp_path, kind):
        info, _ = entry("head", size=64 << 20, type=kind)
        compressed(tmp_path / "a", info.tobuf() + bytes(64 << 20))
        with pytest.raises(TooLarge, match="far more than its files"):
            bundles.inspect(tmp_path / "a")

    def test_a_bomb_behind_the_last_file_is_refused(self, tmp_path):
        compressed(tmp_path / "a", entry("x")[0].tobuf() + bytes(64 << 20))
        with pytest.raises(TooLarge):
            bundles.inspect(tmp_path / "a")

    def test_heads_upon_heads_are_refused(self, tmp_path):
        info, _ = entry("head", size=4, type=tarfile.GNUTYPE_LONGNAME)
        compressed(tmp_path / "a", (info.tobuf() + b"abc".ljust(512, b"\0")) * 2000)
        with pytest.raises(AEnvError):
            bundles.inspect(tmp_path / "a")

    def test_more_files_than_allowed_are_refused(self, tmp_path):
        archive(tmp_path / "a", [entry(f"d{n}/x") for n in range(10)])
        with pytest.raises(TooLarge, match="more than 20 files"):
            bundles.inspect(tmp_path / "a", max_files=20)
        bundles.inspect(tmp_path / "a", max_files=21)

    def test_hard_links_do_not_multiply_for_free(self, tmp_path):
        archive(tmp_path / "a", [entry("x", bytes(1 << 20)), *[link(f"y{n}", "x", hard=True) for n in range(10)]])
        with pytest.raises(TooLarge):
            bundles.unpack(tmp_path / "a", tmp_path / "out", max_bytes=8 << 20)

    def test_a_bundle_that_ends_anywhere_before_its_end_is_refused(self, tmp_path):
        bundles.pack(make_folder(tmp_path / "one", FILES), tmp_path / "a")
        whole = (tmp_path / "a").read_bytes()
        for size in [*range(0, len(whole), 97), len(whole) - 1]:
            (tmp_path / "a").write_bytes(whole[:size])
            with pytest.raises(InvalidRequest):
                bundles.inspect(tmp_path / "a")

    def test_a_bundle_that_goes_on_is_refused(self, tmp_path):
        bundles.pack(make_folder(tmp_path / "one", FILES), tmp_path / "a")
        with (tmp_path / "a").open("ab") as file:
            file.write((tmp_path / "a").read_bytes())
        with pytest.raises(InvalidRequest, match="goes on"):
            bundles.inspect(tmp_path / "a")

    @pytest.mark.slow  # three hundred archives
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=12)), min_size=1, max_size=6))
    def test_whatever_the_bytes_the_answer_is_a_refusal_or_a_result(self, tmp_path, changes):
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
                tar.addfile(*_opened(entry("config.json", CONFIG.encode())))
                tar.addfile(*_opened(entry("ä" * 60, b"x", pax_headers={"comment": "long" * 30})))
            plain = bytearray(buffer.getvalue())
        for at, new in changes:
            plain[at : at + len(new)] = new
        compressed(tmp_path / "a", bytes(plain))
        with contextlib.suppress(InvalidRequest, TooLarge):
            bundles.inspect(tmp_path / "a")


def _opened(made: tuple[tarfile.TarInfo, bytes]) -> tuple[tarfile.TarInfo, io.BytesIO]:
    return made[0], io.BytesIO(made[1])


MEASURE = """
import resource, sys
from pathlib import Path
from aenv.artifacts import bundles
import pathspec
folder, file, out = map(Path, sys.argv[1:])
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bundles.pack(folder, file)
bundles.inspect(file)
bundles.unpack(file, out)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) >> 10)
"""


@pytest.mark.slow
def test_packing_and_reading_fifty_megabytes_takes_little_memory(tmp_path):
    folder = make_folder(tmp_path / "one", FILES)
    with (folder / "data.bin").open("wb") as file:
        for _ in range(50):
            file.write(os.urandom(1 << 20))
    command = [sys.executable, "-c", MEASURE, folder, tmp_path / "a", tmp_path / "out"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 24  # MiB
