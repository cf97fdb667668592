"""Tars of strangers: whatever is in them, nothing leaves the folder."""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest, StartFailed, TooLarge
from aenv.isolation.rootfs import folder_cache
from aenv.isolation.rootfs.unpacking import UnpackLimits
from tests.rootfs.unpacking import tree, unpacked
from tests.saved_images import (
    as_ordinary_user,
    device,
    file,
    folder,
    hard_link,
    layer,
    link,
)

# Hostile tars


async def test_no_entry_leaves_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    entries = (
        file("../up", "1"),
        file(str(outside / "absolute"), "2"),
        folder("tmp"),
        link("through", "/tmp"),
        file("through/inner", "3"),
        link("up", "../../../../../.."),
        hard_link("stolen", "tmp/inner"),
        link("x", str(outside)),
    )
    target = await unpacked(tmp_path, layer(*entries))
    assert tree(outside) == {"secret": "kept"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "target"]
    assert (target / "up").is_symlink() and (target / "tmp/inner").read_text() == "3"
    assert (target / "stolen").stat().st_ino == (target / "tmp/inner").stat().st_ino


@pytest.mark.parametrize(
    "entries",
    [
        (link("x", "{outside}"), file("x/new", "1")),
        (link("x", "{outside}/secret"), hard_link("y", "x/../secret")),
        (hard_link("y", "{outside}/secret"),),
        (hard_link("y", "../outside/secret"),),
        (link("x", "../outside"), folder("x/new")),
    ],
    ids=["file through a link", "hard link through a link", "absolute hard link", "climbing hard link", "folder"],
)
async def test_links_to_outside_lead_nowhere(
    tmp_path: Path, entries: tuple[tuple[tarfile.TarInfo, bytes], ...]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    for entry, _ in entries:
        entry.linkname = entry.linkname.format(outside=outside)
    with pytest.raises((StartFailed, InvalidRequest)):
        await unpacked(tmp_path, layer(*entries))
    assert tree(outside) == {"secret": "kept"}
    assert (outside / "secret").stat().st_nlink == 1


async def test_a_later_layer_cannot_write_through_a_link_of_an_earlier_one(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(StartFailed):
        await unpacked(tmp_path, layer(link("x", str(outside))), layer(file("x/a", "1")))
    assert tree(outside) == {}


@pytest.mark.parametrize("is_shut_in", [True, False])
def test_python_loads_nothing_from_the_target(open_folder: Path, is_shut_in: bool) -> None:
    (open_folder / "evil.py").write_text("print('loaded')")
    shut_in = "unpack_program._shut_in(os.open('.', os.O_RDONLY))" if is_shut_in else ""
    code = f"import os\nfrom aenv.isolation.rootfs import unpack_program\n{shut_in}\n"
    code += "try:\n import evil\nexcept ImportError:\n print('not')"
    assert as_ordinary_user(code, open_folder) == ("not\n" if is_shut_in else "loaded\n")


@pytest.mark.parametrize("call", ["os.setgroups([])", "os.chroot('.')", "os.mknod('x', 0o60600, 2048)"])
def test_what_unpacks_has_no_rights_but_over_files(tmp_path: Path, call: str) -> None:
    shut_in = "unpack_program._shut_in(os.open('.', os.O_RDONLY))"
    code = f"import os\nfrom aenv.isolation.rootfs import unpack_program\n{shut_in}\n{call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "PermissionError" in done.stderr


async def test_devices_are_left_out_and_borrowed_rights_too(tmp_path: Path) -> None:
    target = await unpacked(
        tmp_path, layer(device("disk"), file("su", "x", mode=0o6755), folder("d", mode=0o3777))
    )
    assert not (target / "disk").exists()
    assert stat.S_IMODE((target / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o1777


async def test_owners_are_kept_by_root_and_never_beyond_the_ids_of_an_instance(tmp_path: Path) -> None:
    target = await unpacked(tmp_path, layer(file("a", uid=33, gid=44), file("b", uid=70000, gid=2**31)))
    found = [(path.stat().st_uid, path.stat().st_gid) for path in (target / "a", target / "b")]
    own = (os.getuid(), os.getgid())
    assert found == ([(33, 44), (65534, 65534)] if os.geteuid() == 0 else [own, own])


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(UnpackLimits(most_bytes=100_000), "100000 bytes"), (UnpackLimits(most_files=10), "10 files")],
)
async def test_too_much_is_refused_with_the_limit(tmp_path: Path, limits: UnpackLimits, limit: str) -> None:
    content = layer(*(file(f"f{number}", "x" * 20_000) for number in range(12)))
    with pytest.raises(TooLarge, match=f"more than {limit}"):
        await unpacked(tmp_path, gzip.compress(content), limits=limits)


async def test_a_sparse_file_counts_with_its_holes(tmp_path: Path) -> None:
    plain = tmp_path / "sparse"
    with plain.open("wb") as handle:
        handle.truncate(1 << 30)
    tar = tmp_path / "sparse.tar"
    assert os.system(f"tar --sparse -C {tmp_path} -cf {tar} sparse") == 0
    assert tar.stat().st_size < 100_000
    with pytest.raises(TooLarge):
        await unpacked(tmp_path, tar.read_bytes(), limits=UnpackLimits(most_bytes=1 << 20))


async def test_a_header_that_would_take_all_memory_and_time_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("long")
    entry.type, entry.size = tarfile.XHDTYPE, 6 << 30
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb", compresslevel=1) as packed_bomb:
        packed_bomb.write(entry.tobuf())
        packed_bomb.write(b"0" * (1 << 20))
    with pytest.raises(InvalidRequest, match="it is damaged: a header is too long"):
        await unpacked(tmp_path, bomb.getvalue())


@pytest.mark.slow
async def test_folders_that_lie_too_deep_can_be_removed(tmp_path: Path) -> None:
    # Each link shortens the next path: the tree gets deeper than any path may be long.
    steps = [folder("/".join("d" * 200))]
    for number in range(8):
        steps.append(link(f"l{number}", f"l{number - 1}/{'/'.join('d' * 200)}" if number else "/".join("d" * 200)))
        steps.append(folder(f"l{number}/{'/'.join('d' * 200)}"))
    target = await unpacked(tmp_path, layer(*steps))
    folder_cache.remove(target)
    assert not target.exists()
