"""The images of the chart, made of files of this machine: the gateway by `deploy/base-image`, and Redis."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.system import require

ROOT = Path(__file__).parents[2]
GATEWAY = "aenv.test/gateway:1"
REDIS = "aenv.test/redis:1"


def gateway(folder: Path) -> Path:
    """The archive of the gateway's image."""
    packed, root = folder / "gateway.tar", folder / "gateway"
    command = [sys.executable, ROOT / "deploy" / "base-image", "--host", "--gateway", "--output", packed]
    subprocess.run(command, check=True)
    with tarfile.open(packed) as archive:
        archive.extractall(root, filter="tar")
    packed.unlink()
    return _archive(root, GATEWAY, folder)


def redis(folder: Path) -> Path:
    """The archive of an image with redis-server, redis-cli and a shell."""
    root = folder / "redis"
    for place in ("bin", "usr/bin", "data", "tmp", "proc", "sys", "dev", "etc"):
        (root / place).mkdir(parents=True)
    shutil.copy2(require("busybox", "busybox-static"), root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")
    for name in ("redis-server", "redis-cli"):
        program = Path(require(name, "redis-server")).resolve()
        shutil.copy2(program, root / "usr" / "bin" / name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+\.so\S*) \(0x", listed):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(library).resolve(), place)
    return _archive(root, REDIS, folder)


def _archive(root: Path, name: str, folder: Path) -> Path:
    made = folder / f"{root.name}-image.tar"
    script = ROOT / "scripts" / "lib" / "cluster" / "image.py"
    subprocess.run([sys.executable, script, root, name, made, "sh"], check=True)
    shutil.rmtree(root)
    return made
