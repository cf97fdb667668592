"""What the commands of a Dockerfile leave on the host: files of root's there, and none that lends rights."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.build_run import run
from tests.ordinary import OrdinaryUser

# Every capability, effective: without and with the id for whose root it holds.
LEAVE = """
import os, shutil, struct, sys
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
os.chmod(folder, 0o2777)
plain = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
owned = struct.pack("<6I", 0x03000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0, 0)

def leave(name, mode, capability=None):
    path = f"{folder}/{name}"
    shutil.copy("/usr/bin/true", path)
    os.chmod(path, 0o755)
    if capability:
        try:
            os.setxattr(path, "security.capability", capability)
        except PermissionError as error:  # an ordinary user's, who has no such right
            print(name, error)
    os.chmod(path, mode)

leave("setuid", 0o6755)
leave("capability", 0o755, plain)
leave("both", 0o6755, plain)
leave("owned", 0o4755, owned)
os.link(f"{folder}/both", f"{folder}/linked")
os.symlink("both", f"{folder}/link")
os.chmod(f"{folder}/both", 0)
os.chmod(f"{folder}/linked", 0o4001)
print("left", os.stat(f"{folder}/setuid").st_mode & 0o6000 == 0o6000, flush=True)
"""


async def left(root: Path, upper: Path, *command: str) -> list[str]:
    lines: list[str] = []
    told: dict[str, Any] = {"variables": {"PATH": os.defpath}, "folder": "/", "network": False}
    upper.mkdir(exist_ok=True)
    assert await run(host_root(root), command, upper=upper, on_line=lines.append, **told) == 0, lines
    return lines


def lending(folder: Path) -> list[str]:
    """The files below a folder that lend rights."""
    found = []
    for path in folder.rglob("*"):
        if path.is_symlink():
            continue
        if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            found.append(f"{path.name}: mode")
        if "security.capability" in os.listxattr(path, follow_symlinks=False):
            found.append(f"{path.name}: capability")
    return found


async def test_nothing_that_a_command_leaves_lends_rights(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("what an ordinary user leaves is theirs")
    upper = tmp_path / "upper"
    lines = await left(tmp_path, upper, "python3", "-c", LEAVE, "/usr/left/deep")
    assert lines == ["left True"]
    files = {path.name for path in (upper / "usr" / "left" / "deep").iterdir()}
    assert files == {"setuid", "capability", "both", "owned", "linked", "link"}
    assert lending(upper) == []


def test_outside_the_same_files_lend_rights(tmp_path: Path) -> None:
    subprocess.run(["python3", "-c", LEAVE, str(tmp_path / "left")], check=True, capture_output=True)
    assert {"both: capability", "linked: mode", "setuid: mode", "owned: capability"} <= {*lending(tmp_path)}


def test_an_ordinary_users_command_leaves_no_mode_that_lends_their_rights(user: OrdinaryUser) -> None:
    folder = user.make_folder("rights")
    driver = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom aenv.isolation.rootfs.host_rootfs import host_root\n"
        "from aenv.isolation.sandbox.build_run import run\nhome = Path(sys.argv[1])\n"
        "upper = home / 'upper'\nupper.mkdir()\n"
        "asyncio.run(run(host_root(home), ['python3', '-c', sys.argv[2], '/usr/left'], upper=upper,\n"
        "    variables={'PATH': '/usr/bin:/bin'}, folder='/', network=False, on_line=print))"
    )
    command = user.command(str(user.python), "-c", driver, str(folder), LEAVE)
    done = subprocess.run(command, capture_output=True, text=True)
    assert "left True" in done.stdout, done.stdout + done.stderr
    assert [each for each in lending(folder) if each.endswith("mode")] == []


async def test_a_folder_too_deep_to_look_into_is_refused(tmp_path: Path) -> None:
    deep = "import os\nfor _ in range(2500):\n    os.mkdir('a')\n    os.chdir('a')"
    try:
        with pytest.raises(InvalidRequest, match="cannot be kept"):
            await left(tmp_path, tmp_path / "upper", "python3", "-c", f"import os; os.chdir('/usr')\n{deep}")
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "upper")], check=True)
