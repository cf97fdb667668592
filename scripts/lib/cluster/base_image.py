"""`base_image.py NAME:TAG ARCHIVE`: an image with this Python, the runtime of this checkout and busybox.

Made of files of this host in seconds, without a registry. An image for users is built by `deploy/`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import image

SOURCE = Path(__file__).parents[3] / "src" / "aenv"
PACKAGES = (
    "pydantic",
    "pydantic_core",
    "httptools",
    "uvloop",
    "annotated_types",
    "typing_extensions.py",
    "typing_inspection",
    "yaml",
)


def main() -> None:
    name, archive = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root)
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
        }
        image.write(root, name, archive, ["python3"], variables)


def make(root: Path) -> None:
    """The file system of the image."""
    python = Path(sys.executable).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in (
        "bin",
        "etc",
        "usr/bin",
        "usr/local/bin",
        "workspace",
        "environment",
        "tmp",
        "proc",
        "sys",
        "dev",
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\naenv:x:10001:10001::/workspace:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\naenv:x:10001:\n")
    shutil.copy2(shutil.which("busybox") or "/bin/busybox", root / "bin/busybox")
    for applet in subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
        (root / "bin" / applet).exists() or (root / "bin" / applet).symlink_to("busybox")
    shutil.copy2(python, root / "usr/local/bin" / version)
    (root / "usr/local/bin/python3").symlink_to(version)
    library = root / "usr/local/lib" / version
    unwanted = (
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "ensurepip",
        "lib2to3",
        "site-packages",
        "config-*",
        "turtledemo",
    )
    shutil.copytree(Path(sys.base_prefix) / "lib" / version, library, ignore=shutil.ignore_patterns(*unwanted))
    packages = library / "site-packages"
    packages.mkdir()
    installed = Path(__import__("pydantic").__file__).parents[1]
    for name in PACKAGES:
        source = installed / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, packages / name)
    unwanted_here = shutil.ignore_patterns("web", "terminalbench")
    shutil.copytree(SOURCE, packages / "aenv", ignore=unwanted_here)
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "-s", root, library], check=False
    )  # some are for tests
    _copy_libraries(root)


def _copy_libraries(root: Path) -> None:
    """Shared libraries that programs and modules there need, at the places where the loader looks."""
    modules = [*root.rglob("*.so"), *(root / "usr/local/bin").glob("python3.*")]
    found = set()
    for module in modules:
        listed = subprocess.run(["ldd", module], capture_output=True, text=True).stdout
        found |= set(re.findall(r"(/[^\s:]+\.so[^\s:]*)", listed))
    for path in map(Path, found):
        # Where every loader looks, wherever this host's Python has its own.
        place = "lib/x86_64-linux-gnu" if "python" in path.name else str(path.parent).lstrip("/")
        if not str(path).startswith(str(root)):
            (root / place).mkdir(parents=True, exist_ok=True)
            shutil.copy2(path.resolve(), root / place / path.name)


if __name__ == "__main__":
    main()
