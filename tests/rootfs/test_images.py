"""Images: saved ones are unpacked once, whoever made them, and nothing in them reaches beyond their folder."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import hashlib
import json
import lzma
import os
import shutil
import stat
import tarfile
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest, NotFound, StartFailed, Unsupported
from aenv.isolation.rootfs.images import Images
from aenv.isolation.rootfs.references import canonical
from tests.rootfs.unpacking import tree, unpacked
from tests.saved_images import (
    as_ordinary_user,
    debian,
    device,
    docker_archive,
    file,
    folder,
    hard_link,
    layer,
    link,
    oci_layout,
    packed,
)

# Saved images


async def test_an_archive_of_docker_save_is_found_by_its_tag(images: Images, tmp_path: Path) -> None:
    said = {"Env": ["A=1", "B=x=y"], "WorkingDir": "/srv", "User": "app", "Entrypoint": ["run"], "Cmd": ["it"]}
    path = docker_archive(tmp_path / "x.tar", layer(file("etc/name", "tiny")), names=["tiny:1"], **said)
    loaded = await images.load(path)
    found = images.find("docker.io/library/tiny:1")
    assert found == loaded and found is not None
    assert tree(found.place / "root") == {"etc": None, "etc/name": "tiny"}
    assert (found.variables, found.folder, found.user) == ({"A": "1", "B": "x=y"}, "/srv", "app")
    assert found.command == ("run", "it")
    assert found.root("tiny:1").layers == (found.place / "root",)


async def test_an_archive_may_be_compressed_and_get_another_name(images: Images, tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "x.tar", layer(file("a")), names=())
    path.write_bytes(gzip.compress(path.read_bytes()))
    loaded = await images.load(path, "mine/it")
    assert images.names() == {"mine/it:latest": loaded.digest}


async def test_old_archives_whose_equal_layers_are_links_are_read(images: Images, tmp_path: Path) -> None:
    content = layer(file("a", "1"))
    source = tmp_path / "source"
    source.mkdir()
    shutil.unpack_archive(docker_archive(tmp_path / "x.tar", content), source)
    manifest = json.loads((source / "manifest.json").read_text())
    place = source / manifest[0]["Layers"][0]
    (source / "other").mkdir()
    place.rename(source / "other" / "layer.tar")
    place.symlink_to("../other/layer.tar")
    image = await images.load(packed(source, tmp_path / "y.tar"))
    assert tree(image.place / "root") == {"a": "1"}


@pytest.mark.parametrize("is_nested", [False, True])
async def test_an_oci_layout_is_read_as_a_folder_and_as_a_tar(
    images: Images, tmp_path: Path, is_nested: bool
) -> None:
    layout = oci_layout(tmp_path / "layout", layer(file("a", "1")), name="tiny:2", is_nested=is_nested)
    from_folder = await images.load(layout)
    from_tar = await Images(tmp_path / "other").load(packed(layout, tmp_path / "layout.tar"))
    assert from_folder.digest == from_tar.digest
    assert tree(from_tar.place / "root") == {"a": "1"}
    assert images.names() == {"tiny:2": from_folder.digest}


async def test_of_several_images_one_is_chosen_by_its_name(images: Images, tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.mkdir()
    manifests = []
    for name in ("one:1", "two:2"):
        path = docker_archive(tmp_path / "x.tar", layer(file(name)), names=[name])
        shutil.unpack_archive(path, both)
        manifests += json.loads((both / "manifest.json").read_text())
    (both / "manifest.json").write_text(json.dumps(manifests))
    with pytest.raises(InvalidRequest, match="choose one by its name: one:1, two:2"):
        await images.load(both)
    assert list(tree((await images.load(both, "two:2")).place / "root")) == ["two:2"]


async def test_what_is_unpacked_is_not_unpacked_again(images: Images, tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "x.tar", layer(file("a")))
    first = await images.load(path, "one")
    before = (first.place / "root").stat().st_ino
    both = await asyncio.gather(images.load(path, "two"), images.load(path, "three"))
    assert {image.digest for image in both} == {first.digest}
    assert (first.place / "root").stat().st_ino == before
    assert set(images.names()) == {"one:latest", "two:latest", "three:latest"}


async def test_an_image_goes_with_its_last_name(images: Images, tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "x.tar", layer(file("a")), names=["tiny:1", "<none>:<none>"])
    image = await images.load(path)
    await images.load(path, "other")
    assert set(images.names()) == {"tiny:1", "other:latest"}
    await images.remove("tiny:1")
    assert images.find("other") is not None
    await images.remove("other")
    assert not image.place.exists() and images.names() == {}
    with pytest.raises(NotFound, match="no image 'other'; there are none"):
        await images.remove("other")


@pytest.mark.slow
async def test_unused_images_are_collected_with_their_names(images: Images, tmp_path: Path) -> None:
    old = await images.load(docker_archive(tmp_path / "x.tar", layer(file("a"))), "old")
    kept = await images.load(docker_archive(tmp_path / "y.tar", layer(file("b")), names=()), "kept")
    for image in (old, kept):
        os.utime(image.place.parent / f".{image.digest}.used", (1, 1))
    assert await images.collect({kept.digest}, 60) == [old.digest]
    assert set(images.names()) == {"kept:latest"} and kept.place.exists() and not old.place.exists()


# What must be refused


async def test_a_layer_with_another_digest_is_refused_and_leaves_nothing(images: Images, tmp_path: Path) -> None:
    layout = oci_layout(tmp_path / "layout", layer(file("a", "1")), name="tiny")
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.read_bytes().startswith(b"\x1f\x8b"):
            blob.write_bytes(gzip.compress(layer(file("a", "2"))))
    with pytest.raises(InvalidRequest, match=r"its digest is sha256:.* and should be sha256:"):
        await images.load(layout)
    assert images.names() == {}
    assert [path.name for path in (tmp_path / "home/roots/images").iterdir()] == [".locks"]


async def test_a_layer_with_something_behind_its_end_is_refused(images: Images, tmp_path: Path) -> None:
    content = layer(file("a", "1"))
    layout = oci_layout(tmp_path / "layout", content)
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.read_bytes().startswith(b"\x1f\x8b"):
            blob.write_bytes(gzip.compress(content + b"\0" * 512))
    with pytest.raises(InvalidRequest, match="its digest is"):
        await images.load(layout)


@pytest.mark.parametrize("marker", [b'"diff_ids"', b'"layers"'], ids=["configuration", "manifest"])
async def test_a_changed_description_is_refused(images: Images, tmp_path: Path, marker: bytes) -> None:
    layout = oci_layout(tmp_path / "layout", layer(file("a")))
    for blob in (layout / "blobs" / "sha256").iterdir():
        if marker in blob.read_bytes():
            blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(InvalidRequest, match="digest"):
        await images.load(layout)


async def test_an_image_for_another_machine_is_refused(images: Images, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the image is for s390x, and this machine is"):
        await images.load(docker_archive(tmp_path / "x.tar", layer(file("a")), architecture="s390x"))


async def test_what_is_no_image_is_refused_with_the_fix(images: Images, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(layer(file("a")))
    with pytest.raises(InvalidRequest, match=r"neither manifest.json nor index.json; use 'docker save'"):
        await images.load(path)
    path.write_bytes(b"no tar at all, but long enough to be asked" * 100)
    with pytest.raises(InvalidRequest, match="it is damaged"):
        await images.load(path)


@pytest.mark.parametrize("path", ["/etc/hostname", "../../../../../etc/hostname", "away"])
async def test_a_description_cannot_name_files_of_the_host(images: Images, tmp_path: Path, path: str) -> None:
    config = json.dumps({"rootfs": {"diff_ids": [f"sha256:{'0' * 64}"]}})
    manifest = json.dumps([{"Config": "c", "RepoTags": None, "Layers": [path]}])
    saved = tmp_path / "x.tar"
    saved.write_bytes(layer(file("c", config), file("manifest.json", manifest), link("away", "/etc/hostname")))
    with pytest.raises(InvalidRequest, match="is missing"):
        await images.load(saved)


# Layers


async def test_later_layers_replace_and_remove(tmp_path: Path) -> None:
    below = layer(
        *(
            folder("gone"),
            file("gone/a"),
            file("also"),
            folder("opaque"),
            file("opaque/old"),
            file("opaque/both", "1"),
        ),
        *(
            folder("was-folder"),
            file("was-folder/x"),
            file("was-file"),
            link("was-link", "also"),
            file("same", "1"),
        ),
    )
    above = layer(
        *(
            file(".wh.gone"),
            file(".wh.also"),
            file("opaque/both", "2"),
            file("opaque/.wh..wh..opq"),
            file("opaque/new"),
        ),
        *(
            file("was-folder", "file"),
            folder("was-file"),
            file("was-file/x"),
            file("was-link", "own"),
            file("same", "2"),
        ),
        *(file(".wh.never-there"), file(".wh..wh.plnk"), file(".wh..")),
    )
    assert tree(await unpacked(tmp_path, below, above)) == {
        "opaque": None,
        "opaque/both": "2",
        "opaque/new": "",
        "same": "2",
        "was-file": None,
        "was-file/x": "",
        "was-folder": "file",
        "was-link": "own",
    }


async def test_a_whiteout_does_not_remove_what_its_own_layer_brings(tmp_path: Path) -> None:
    below = layer(folder("d"), file("d/old"))
    above = layer(folder("d"), file("d/new"), file(".wh.d"))
    assert tree(await unpacked(tmp_path, below, above)) == {"d": None, "d/new": ""}


async def test_a_whiteout_never_reaches_above_the_root(tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("kept")
    below = layer(link("up", "../.."), file("a"))
    await unpacked(tmp_path, below, layer(file("up/.wh.beside"), file("../.wh.beside"), file("up/.wh...")))
    assert (tmp_path / "beside").read_text() == "kept"


async def test_hard_links_long_names_and_times_are_kept(tmp_path: Path) -> None:
    long = "/".join(("n" * 200, "m" * 200, "ü"))
    entries = (file(long, "long", mtime=1_000_000), hard_link("again", long))
    for number, format in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        (tmp_path / str(number)).mkdir()
        target = await unpacked(tmp_path / str(number), layer(*entries, format=format))
        assert (target / long).read_text() == (target / "again").read_text() == "long"
        assert (target / long).stat().st_nlink == 2 and (target / long).stat().st_mtime == 1_000_000


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
async def test_compressed_layers_are_unpacked(tmp_path: Path, compress) -> None:
    assert tree(await unpacked(tmp_path, compress(layer(file("a", "1"))))) == {"a": "1"}


async def test_zstd_is_unpacked_or_refused_with_the_fix(tmp_path: Path) -> None:
    try:
        from compression import zstd
    except ImportError:
        with pytest.raises(InvalidRequest, match=r"zstd, which needs Python 3.14; compress it with gzip"):
            await unpacked(tmp_path, b"\x28\xb5\x2f\xfd" + b"\0" * 100)
    else:
        assert tree(await unpacked(tmp_path, zstd.compress(layer(file("a", "1"))))) == {"a": "1"}


@pytest.mark.slow
def test_an_ordinary_user_loads_images_too(open_folder: Path) -> None:
    docker_archive(open_folder / "x.tar", layer(file("a", "1", uid=33), folder("locked", mode=0), device("disk")))
    said = as_ordinary_user(
        "import asyncio, pathlib\n"
        "from aenv.isolation.rootfs.images import Images\n"
        "images = Images(pathlib.Path('home'))\n"
        "image = asyncio.run(images.load(pathlib.Path('x.tar')))\n"
        "print((image.place / 'root/a').read_text(), sorted(p.name for p in (image.place / 'root').iterdir()))\n"
        "asyncio.run(images.remove('tiny:1'))\n"
        "print(image.place.exists())\n",
        open_folder,
    )
    assert said.splitlines() == ["1 ['a', 'locked']", "False"]


# Names and fetching


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("debian", "debian:latest"),
        ("docker.io/library/debian:12", "debian:12"),
        ("index.docker.io/a/b:1", "a/b:1"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        (f"a@sha256:{'0' * 64}", f"a@sha256:{'0' * 64}"),
    ],
)
def test_a_name_has_one_short_form(spelled: str, name: str) -> None:
    assert canonical(spelled) == name


@pytest.mark.parametrize("name", ["", "--help", "a b", "a;b", "../x", "a\nb", "Ü", "x" * 600])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not the name of an image"):
        canonical(name)


def fake_program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_skopeo_fetches_when_the_operator_chose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = oci_layout(tmp_path / "layout", layer(file("a", "1")), name="debian:12")
    script = f'echo "$@" > {tmp_path}/said; t=${{3#oci:}}; cp -r {layout} "${{t%:latest}}"; echo copied >&2'
    fake_program(tmp_path / "bin", "skopeo", script, monkeypatch)
    lines: list[str] = []
    image = await Images(tmp_path / "home", pull="skopeo").pull("docker.io/a/b:1", lines.append)
    assert (tmp_path / "said").read_text().startswith("copy docker://a/b:1 oci:/")
    assert lines == ["copied"] and tree(image.place / "root") == {"a": "1"}
    assert Images(tmp_path / "home").find("a/b:1") == image
    assert set(Images(tmp_path / "home").names()) == {"a/b:1"}


async def test_podman_fetches_when_the_operator_chose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = docker_archive(tmp_path / "x.tar", layer(file("a", "1")), names=["whatever:1"])
    script = f'echo "$1" >> {tmp_path}/said; [ "$1" = pull ] || cp {saved} "$5"'
    fake_program(tmp_path / "bin", "podman", script, monkeypatch)
    image = await Images(tmp_path / "home", pull="podman").pull("a/b")
    assert (tmp_path / "said").read_text().split() == ["pull", "save"]
    assert tree(image.place / "root") == {"a": "1"}


async def test_fetching_that_fails_says_what_the_program_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(tmp_path / "bin", "skopeo", "echo no such image >&2; exit 1", monkeypatch)
    with pytest.raises(StartFailed, match="skopeo copy failed; it said:\nno such image"):
        await Images(tmp_path / "home", pull="skopeo").pull("a")


async def test_without_a_program_the_error_says_how_to_load(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="then: aenv image load FILE --name a:1"):
        await images.pull("a:1")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unsupported, match="skopeo is not installed"):
        await Images(tmp_path, pull="skopeo").pull("a:1")


@pytest.mark.long  # debootstrap fetches and installs a small Debian
@pytest.mark.timeout(300)
async def test_a_whole_debian_is_unpacked_as_it_was(images: Images, tmp_path: Path) -> None:
    source = debian(tmp_path / "debian")
    content = packed(source, tmp_path / "layer.tar").read_bytes()
    image = await images.load(docker_archive(tmp_path / "x.tar", content, names=["debian:12"]))
    root = image.place / "root"

    def facts(top: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in top.rglob("*"):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                mode = status.st_mode & 0o1777
                found[str(path.relative_to(top))] = (mode, status.st_uid, status.st_gid, digest)
            elif stat.S_ISLNK(status.st_mode):
                found[str(path.relative_to(top))] = os.readlink(path)
        return found

    assert facts(root) == facts(source)
