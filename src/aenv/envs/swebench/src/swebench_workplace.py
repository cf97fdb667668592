"""Where the agent works: the tree in the sidecar, brought there, looked at, and compared with its base.

The sidecar is the agent's: what it answers is what an agent may have made of it. It is asked for files and for
nothing else, and what it says is a patch at most.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import shlex
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import swebench_patches as patches

from aenv import Sidecar, ToolError

TREE = "/testbed"
VENV = "/opt/swebench"
PYTHON = "/opt/swebench-python"
_PIECE_BYTES = 8 << 20
_MOST_CHANGED = 2000
_MOST_FILE_BYTES = 4 << 20
_LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.hypothesis|\.git)(/|$)|\.py[co]$"
)
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *]\./(?P<path>.+)")
# One commit, so that `git diff` shows what was done, and no history that would tell what comes next.
_REPOSITORY = f"""
cd {TREE} && rm -rf .git && command -v git >/dev/null || exit 0
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
git init -q . && git add -A && git -c user.name=base -c user.email=base@localhost commit -q -m base
"""
_LISTING = f"""
cd {TREE} && find . -name .git -prune -o -type f -exec sha256sum {{}} + &&
echo executable && find . -name .git -prune -o -type f -perm -100 -print
"""


async def send(sidecar: Sidecar, source: Path, target: str, *, leave_out: str = "") -> None:
    """Copy a folder into the sidecar; `leave_out` names what of its top stays behind."""
    packed = await asyncio.to_thread(_packed, source, leave_out)
    await run(sidecar, f"rm -rf {target} && mkdir -p {target}")
    archive = f"{target}.tar.gz"
    for number, at in enumerate(range(0, len(packed), _PIECE_BYTES)):
        await sidecar.write_file(f"{archive}.{number:06}", packed[at : at + _PIECE_BYTES])
    await run(sidecar, f"cat {archive}.* | tar -xzf - -C {target} && rm -f {archive}.*")


async def fetch(sidecar: Sidecar, source: str, target: Path) -> None:
    """Copy a folder out of a sidecar in which nobody has worked yet."""
    there = f"/tmp/swebench-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    name, parent = PurePosixPath(source).name, PurePosixPath(source).parent
    await run(sidecar, f"test -d {shlex.quote(source)} || {{ echo the image has no folder {source}; exit 1; }}")
    tar = f"tar -C {shlex.quote(str(parent))} -cf - {shlex.quote(name)} | gzip -1 > {there}"
    size = int((await run(sidecar, f"{tar} && wc -c < {there}")).strip() or "0")
    archive = target.with_name(f"{target.name}.tar.gz")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.open("wb") as out:
        for number in range(-(-size // _PIECE_BYTES)):  # the last one is not full
            await run(
                sidecar, f"dd if={there} of={there}.piece bs={_PIECE_BYTES} skip={number} count=1 2>/dev/null"
            )
            size -= out.write(await sidecar.read_file(f"{there}.piece"))
    if size:
        raise ToolError(f"{source!r} could not be copied out of the image: {size} bytes are missing")
    await run(sidecar, f"rm -f {there} {there}.piece")
    await asyncio.to_thread(_unpack, archive, target)


async def begin(sidecar: Sidecar) -> None:
    """Make the tree a repository of one commit, where there is git."""
    await run(sidecar, _REPOSITORY)


async def run(sidecar: Sidecar, command: str) -> str:
    """What a command of our own prints; ToolError when it fails."""
    done = await sidecar.exec(command, timeout=600, folder="/")
    if done.exit_code:
        raise ToolError(f"the sidecar could not be prepared: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def digests(base: Path) -> dict[str, tuple[str, bool]]:
    """The files of a tree: what each has in it, and whether it can be executed."""
    found = {}
    for folder, folders, names in os.walk(base):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink():
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                found[str(file.relative_to(base))] = digest, bool(file.stat().st_mode & 0o100)
    return found


async def changes(sidecar: Sidecar, base: Path, known: dict[str, tuple[str, bool]]) -> tuple[str, list[str]]:
    """What was done to the tree, as a patch, and what of it could not be taken."""
    done = await sidecar.exec(_LISTING, timeout=600, folder="/")
    if done.truncated:
        raise ToolError(f"{TREE} has too many files to be compared; remove what does not belong to the solution")
    if "executable\n" not in done.stdout:
        raise ToolError(f"{TREE} cannot be read: {(done.stderr or done.stdout).strip()[-300:]}")
    now = _listed(done.stdout)
    changed = sorted(path for path in {*known, *now} if known.get(path) != now.get(path))
    changed = [path for path in changed if path in known or not _LEFT_OUT.search(path)]
    if len(changed) > _MOST_CHANGED:
        raise ToolError(f"{len(changed)} files differ from the base; a solution may change {_MOST_CHANGED}")
    pieces: list[str] = []
    notes: list[str] = []
    async for path, after in _contents(sidecar, changed, now, notes):
        before = (base / path).read_bytes() if path in known else None
        try:
            was, is_now = known.get(path, ("", False))[1], now.get(path, ("", False))[1]
            pieces.append(patches.diff(path, before, after, was, is_now))
        except patches.PatchError as error:
            notes.append(f"left out: {error}")
    return "".join(pieces), notes


async def _contents(
    sidecar: Sidecar, changed: list[str], now: dict[str, tuple[str, bool]], notes: list[str]
) -> AsyncIterator[tuple[str, bytes | None]]:
    """The files that changed, with what they hold now; None for one that is gone."""
    for path in changed:
        if path not in now:
            yield path, None
            continue
        size = await sidecar.exec(["wc", "-c", f"{TREE}/{path}"], timeout=60)
        count = size.stdout.split()[:1]
        if not count or not count[0].isdecimal() or int(count[0]) > _MOST_FILE_BYTES:
            notes.append(f"left out: {path!r} is larger than {_MOST_FILE_BYTES >> 20} MiB, or cannot be read")
            continue
        yield path, await sidecar.read_file(f"{TREE}/{path}")


def _listed(text: str) -> dict[str, tuple[str, bool]]:
    files, _, executable = text.rpartition("executable\n")
    can_run = {line.removeprefix("./") for line in executable.splitlines()}
    found = {}
    for line in files.split("\n"):
        if match := _LINE.fullmatch(line):
            found[match["path"]] = match["digest"], match["path"] in can_run
    return found


def _packed(folder: Path, leave_out: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=1) as tar:
        for path in sorted(folder.iterdir()):
            if path.name != leave_out:
                tar.add(path, path.name, filter=_without_owner)
    return held.getvalue()


def _unpack(archive: Path, target: Path) -> None:
    """Unpack what is one folder, as the folder `target`; then the archive is gone."""
    with tarfile.open(archive) as packed:
        # Links may lead anywhere, as conda's do: it is the image's own content, from before the agent's time.
        packed.extraction_filter = lambda member, path: member
        for member in packed:
            member.name = str(PurePosixPath(target.name, *PurePosixPath(member.name).parts[1:]))
            if member.islnk():
                member.linkname = str(PurePosixPath(target.name, *PurePosixPath(member.linkname).parts[1:]))
            if not member.isdev():
                packed.extract(member, target.parent, set_attrs=not member.issym())
    archive.unlink()


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
