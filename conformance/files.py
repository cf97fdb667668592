"""The files of an instance's workspace."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest, NotFound
from aenv.base.http1 import Pool
from aenv.engines.base import Address, Exec, Files, InstanceSpec

from .able import Able, result, whole
from .engine import call

BAD_PATHS = ("", ".", "..", "../outside", "a/../b", "a//b", "/etc/hostname", "a/", "./a", "a\0b", "a\udc80\ud800")


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def breaking_off(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece
    raise ConnectionResetError("the client has gone")


class FilesConformance(Able):
    """What every engine with `Files` must do."""

    async def test_a_file_that_is_put_can_be_read_inside_and_outside(
        self, files: Files, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        assert await files.put(spec.id, "new/folder/größe.txt", pieces(b"some ", b"text")) == 9
        assert await call(pool, instance, "read", path="new/folder/größe.txt") == ["some text"]
        assert await whole(files.read(spec.id, "new/folder/größe.txt")) == b"some text"
        await call(pool, instance, "write", path="new/folder/größe.txt", text="other")
        assert await whole(files.read(spec.id, "new/folder/größe.txt")) == b"other"

    async def test_a_file_that_is_put_replaces_another(
        self, files: Files, spec: InstanceSpec, instance: Address
    ) -> None:
        big = os.urandom(5_000_000)
        await files.put(spec.id, "file", pieces(b"a long text that was there before"))
        await files.put(spec.id, "file", pieces(big[:1], big[1:4_000_000], b"", big[4_000_000:]))
        assert await whole(files.read(spec.id, "file")) == big
        await files.put(spec.id, "file", pieces())
        assert await whole(files.read(spec.id, "file")) == b""

    async def test_a_file_that_is_not_sent_to_its_end_changes_nothing(
        self, files: Files, spec: InstanceSpec, instance: Address
    ) -> None:
        await files.put(spec.id, "file", pieces(b"before"))
        for path in ("file", "folder/file"):
            with pytest.raises(ConnectionResetError):
                await files.put(spec.id, path, breaking_off(b"half of"))
        assert [entry.path for entry in await files.list(spec.id)] == ["file"]
        assert await whole(files.read(spec.id, "file")) == b"before"

    async def test_folders_are_listed_by_name_and_kind(
        self, files: Files, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        await files.put(spec.id, "b", pieces(b"12345"))
        await files.put(spec.id, "a/inner", pieces(b"1"))
        await call(pool, instance, "link", path="c", target="/etc")
        await call(pool, instance, "pipe", path="d")
        listed = await files.list(spec.id)
        assert [(entry.path, entry.kind) for entry in listed] == [
            ("a", "folder"),
            ("b", "file"),
            ("c", "link"),
            ("d", "other"),
        ]
        assert listed[1].size_bytes == 5
        assert all(entry.modified_at > 1e9 for entry in listed)
        assert [(entry.path, entry.size_bytes) for entry in await files.list(spec.id, "a")] == [("a/inner", 1)]

    async def test_files_and_folders_can_be_removed(
        self, files: Files, spec: InstanceSpec, instance: Address
    ) -> None:
        for path in ("file", "folder/a/b/c", "folder/d", "kept"):
            await files.put(spec.id, path, pieces(b"x"))
        await files.remove(spec.id, "file")
        await files.remove(spec.id, "folder")
        assert [entry.path for entry in await files.list(spec.id)] == ["kept"]

    async def test_a_file_that_is_not_there_is_not_found(
        self, files: Files, spec: InstanceSpec, instance: Address
    ) -> None:
        for path in ("none", "none/none"):
            for ask in (lambda p: whole(files.read(spec.id, p)), lambda p: files.list(spec.id, p)):
                with pytest.raises(NotFound, match="not found"):
                    await ask(path)
            with pytest.raises(NotFound, match="not found"):
                await files.remove(spec.id, path)

    async def test_paths_that_are_none_are_refused(
        self, files: Files, spec: InstanceSpec, instance: Address
    ) -> None:
        for path in BAD_PATHS:
            with pytest.raises(InvalidRequest):
                await files.put(spec.id, path, pieces(b"x"))
            with pytest.raises(InvalidRequest):
                await whole(files.read(spec.id, path))
            with pytest.raises(InvalidRequest):
                await files.remove(spec.id, path)
            if path:
                with pytest.raises(InvalidRequest):
                    await files.list(spec.id, path)
        assert await files.list(spec.id) == []

    async def test_links_lead_nowhere(
        self, files: Files, spec: InstanceSpec, instance: Address, pool: Pool, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_text("not for you")
        await call(pool, instance, "link", path="folder", target=str(outside))
        await call(pool, instance, "link", path="file", target=str(outside / "secret"))
        for path in ("file", "folder", "folder/secret"):
            with pytest.raises(InvalidRequest):
                await whole(files.read(spec.id, path))
        for path in ("folder/secret", "folder/new", "folder/new/new"):
            with pytest.raises(InvalidRequest):
                await files.put(spec.id, path, pieces(b"x"))
        with pytest.raises(InvalidRequest):
            await files.list(spec.id, "folder")
        with pytest.raises(InvalidRequest):
            await files.remove(spec.id, "folder/secret")
        await files.put(spec.id, "file", pieces(b"in place of the link"))
        await files.remove(spec.id, "folder")
        assert [(entry.path, entry.kind) for entry in await files.list(spec.id)] == [("file", "file")]
        assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret", "not for you")]

    async def test_only_regular_files_can_be_read(
        self, files: Files, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        await call(pool, instance, "pipe", path="pipe")
        await files.put(spec.id, "folder/file", pieces(b"x"))
        for path in ("pipe", "folder"):
            with pytest.raises(InvalidRequest, match="not a regular file"):
                await whole(files.read(spec.id, path))
        for path in ("folder/file/deeper", "pipe/deeper"):
            with pytest.raises(InvalidRequest):
                await files.put(spec.id, path, pieces(b"x"))
        with pytest.raises(InvalidRequest):
            await files.put(spec.id, "folder", pieces(b"x"))
        await files.put(spec.id, "pipe", pieces(b"a file now"))
        assert await whole(files.read(spec.id, "pipe")) == b"a file now"

    async def test_a_name_that_is_no_text_does_not_spoil_a_list(
        self, files: Files, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        await result(exec.exec(spec.id, ["sh", "-c", r"touch folder-$(printf '\377')"]))
        (entry,) = await files.list(spec.id)
        entry.path.encode()
