"""`python3 -P -m aenv.engines.containers.runtime_copy FOLDER`: what a sidecar needs of this Python and of aenv.

For an engine that cannot show one image's files to a container of another: it runs in the base image and copies
the loader, its libraries, Python and the packages to places that `command` knows. The container that sees the
folder may have an image without any of them.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from ...base.errors import StartFailed
from .sidecar_plan import TREE

MODULE = "aenv.engines.containers.runtime_copy"
_LIBRARIES = ("lib", "usr/lib", "usr/local/lib", "lib64", "lib/*-linux-gnu", "usr/lib/*-linux-gnu")
_UNWANTED = shutil.ignore_patterns("test", "tests", "idlelib", "tkinter", "ensurepip", "config-*", "*-packages")


def command() -> list[str]:
    """Starts the runtime in a container that sees the folder at TREE."""
    loader = [f"{TREE}/ld.so", "--library-path", f"{TREE}/lib", f"{TREE}/bin/python3"]
    return [*loader, "-m", "aenv.main", f"{TREE}/served"]


def copy(target: Path, root: Path = Path("/")) -> None:
    """StartFailed when the image has no loader of glibc."""
    loaders = [*root.glob("lib*/ld-linux*.so.*"), *root.glob(f"lib/{platform.machine()}-*/ld-linux*.so.*")]
    if not loaders:
        raise StartFailed("the base image has no glibc, with which a sidecar starts")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = target / "lib" / version
    (target / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(loaders[0], target / "ld.so")
    shutil.copyfile(Path(sys.executable).resolve(), target / "bin" / "python3")
    for program in ("ld.so", "bin/python3"):
        (target / program).chmod(0o755)
    shutil.copytree(Path(sys.base_prefix) / "lib" / version, library, ignore=_UNWANTED)
    for folder in {Path(entry).resolve() for entry in sys.path if entry.endswith("-packages")}:
        if folder.is_dir():
            shutil.copytree(folder, library / "site-packages", dirs_exist_ok=True)
    (target / "served").symlink_to(f"lib/{version}/site-packages/aenv/inside/sidecar")
    for pattern in _LIBRARIES:
        for file in root.glob(f"{pattern}/*.so*"):
            if file.is_file() and not (target / "lib" / file.name).exists():
                shutil.copyfile(file, target / "lib" / file.name)


if __name__ == "__main__":
    copy(Path(sys.argv[1]))
