"""Files of an instance that the gateway reads, with a file of the host laid over them by a mount.

Code with rights over the mounts of an instance, as an environment's author may get them by a bug, can put a mount
where the gateway reads. It must never show what lies there: the gateway of root's may read anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.engines import files_below
from tests.attacks.engines import AttackedEngine, Refused

SECRET = "a secret of the host's root"

# `open_tree` takes the file from the host, and `move_mount` lays it over a file in the instance.
LAY_OVER = """
import os, sys
from aenv.isolation.sandbox import system
source, pid, *places = sys.argv[1:]
trees = [system.open_tree(source) for _ in places]
system.setns(os.pidfd_open(int(pid)), "mount")
for tree, place in zip(trees, places, strict=True):
    system.move_mount(tree, place)
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o644)
    return path


@pytest.fixture
def attacked(engine: AttackedEngine) -> Iterator[tuple[str, int]]:
    """An instance, and its leading process."""
    made = engine.ask("create")
    yield made["id"], made["pid"]
    engine.ask("destroy", id=made["id"])


def lay_over(pid: int, source: Path, *places: str) -> None:
    subprocess.run([sys.executable, "-c", LAY_OVER, str(source), str(pid), *places], check=True)


def test_a_file_laid_over_the_log_is_not_shown(
    engine: AttackedEngine, attacked: tuple[str, int], secret: Path
) -> None:
    id, pid = attacked
    lay_over(pid, secret, "/var/log/instance.log")
    assert Path(f"/proc/{pid}/root/var/log/instance.log").read_text() == SECRET, "the attack itself does not work"
    for way in ("log_text", "followed"):
        with pytest.raises(Refused, match="not found"):
            engine.ask(way, id=id)


def test_a_folder_laid_over_a_folder_of_the_workspace_is_neither_shown_nor_changed(
    engine: AttackedEngine, attacked: tuple[str, int], secret: Path
) -> None:
    id, pid = attacked
    engine.evaluate(id, "import os; os.mkdir('/workspace/folder'); open('/workspace/file', 'w').close()")
    lay_over(pid, secret.parent, "/workspace/folder")
    lay_over(pid, secret, "/workspace/file")
    secret.parent.chmod(0o777)
    assert Path(f"/proc/{pid}/root/workspace/folder/secret").read_text() == SECRET
    for do, arguments in (
        ("list", {"path": "folder"}),
        ("read", {"path": "folder/secret"}),
        ("read", {"path": "file"}),
        ("put", {"path": "folder/secret", "text": "changed"}),
        ("put", {"path": "folder/more/secret", "text": "new"}),
        ("remove", {"path": "folder/secret"}),
    ):
        with pytest.raises(Refused, match=r"mount|not a regular file"):
            engine.ask(do, id=id, **arguments)
    with pytest.raises(Refused):
        engine.ask("remove", id=id, path="folder")
    assert secret.read_text() == SECRET
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]


IN_A_NAMESPACE_OF_ITS_OWN = """
import asyncio, os, stat, sys
from aenv.engines import files_below, logfile
from aenv.base.errors import AEnvError
from aenv.isolation.sandbox import system
how, root, secret = sys.argv[1:]
if how == "mount ids":
    files_below._has_openat2 = lambda: False
system.unshare("mount")
system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
for name in ("log", "folder/log"):
    system.mount(secret, f"{root}/{name}", None, system.MS_BIND)
system.mount(os.path.dirname(secret), f"{root}/over", None, system.MS_BIND)

def tried(*parts):
    *above, name = parts
    async def text():
        log = logfile.LogLocation(root, tuple(above), name)
        return b"".join([piece async for piece in logfile.read(log, "x")])
    try:
        return asyncio.run(text()).decode()
    except AEnvError as error:
        return type(error).__name__

def removed(name):
    try:
        with files_below.folder(root, ()) as top:
            files_below.remove(top, name)
    except OSError:
        return "refused"
    return "removed"

print(open(f"{root}/log").read())
print(tried("log"), tried("folder", "log"), tried("over", "secret"), tried("link"), tried("linked", "own"))
print(tried("folder", "own"), removed("over"), removed("linked"), removed("folder"), os.path.exists(secret))
"""


@pytest.mark.parametrize("how", ["openat2", "mount ids"])
def test_neither_way_to_open_a_file_crosses_a_mount_or_a_link(how: str, tmp_path: Path, secret: Path) -> None:
    root = tmp_path / "root"
    for folder in ("folder", "over"):
        (root / folder).mkdir(parents=True)
    for file in ("log", "folder/log"):
        (root / file).touch()
    (root / "folder" / "own").write_text("own")
    (root / "link").symlink_to(secret)
    (root / "linked").symlink_to(root / "folder")
    said = subprocess.run(
        [sys.executable, "-c", IN_A_NAMESPACE_OF_ITS_OWN, how, str(root), str(secret)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said == [SECRET, "NotFound NotFound NotFound NotFound NotFound", "own refused removed refused True"]
    assert (root / "log").read_text() == ""


def test_a_step_of_a_path_is_one_name(tmp_path: Path) -> None:
    with files_below.folder(tmp_path, ()) as top:
        for name in ("..", ".", "", "a/b", "/etc"):
            with pytest.raises(Exception, match="bad name"):
                files_below.step(top, name, os.O_PATH)
