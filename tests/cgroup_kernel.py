"""A kernel's cgroups, played in plain folders: for hosts that are not like this one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

FILES = {
    "cpu": ("cpu.weight", "cpu.max"),
    "memory": ("memory.max", "memory.swap.max", "memory.oom.group", "memory.current", "memory.events"),
    "pids": ("pids.max",),
}
OLD_FILES = {
    "cpu": ("cpu.shares", "cpu.cfs_quota_us"),
    "memory": ("memory.limit_in_bytes",),
    "pids": ("pids.max",),
}


class Kernel:
    """Plain folders with the rules of cgroups that matter for where groups can be."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "cgroup"
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.top.mkdir()
        (self.proc / "mountinfo").write_text("20 1 0:19 / /proc rw - proc proc rw\n")
        (self.proc / "cgroup").write_text("")
        self.old: dict[Path, tuple[str, ...]] = {}
        self.delegated: set[Path] = set()
        self.closed: set[Path] = set()

    def mount_old(self, controllers: str, own: str = "/", root: str = "/") -> Path:
        point = self.top / controllers
        self.old[point] = tuple(controllers.split(","))
        self.list_mount(point, "cgroup", controllers, own, root)
        self.mkdir(point)
        return point

    def mount_new(
        self, controllers: str, own: str = "/", name: str = "unified", *, is_container: bool = False
    ) -> Path:
        point = self.top / name
        self.list_mount(point, "cgroup2", "", own, "/")
        self._real_mkdir(point)
        self._fill(point, controllers.split())
        if not is_container:
            (point / "cgroup.type").unlink()
        folder = point
        for part in filter(None, own.split("/")):
            self.write(f"{folder}/cgroup.subtree_control", " ".join(f"+{word}" for word in controllers.split()))
            folder = folder / part
            self.mkdir(folder)
        (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
        return folder

    def mkdir(self, path: str | Path, mode: int = 0o777) -> None:
        path = Path(path)
        self._real_mkdir(path)
        old = next((words for point, words in self.old.items() if point in (path, *path.parents)), None)
        if old is not None:
            names = [file for word in old for file in OLD_FILES.get(word, ("freezer.state",))]
            for name in ("cgroup.procs", *names):
                (path / name).write_text("")
        else:
            self._fill(path, (path.parent / "cgroup.subtree_control").read_text().split())

    def rmdir(self, path: str | Path) -> None:
        path = Path(path)
        if (path / "cgroup.procs").read_text().split() or any(entry.is_dir() for entry in path.iterdir()):
            raise OSError(errno.EBUSY, "busy", str(path))
        for entry in path.iterdir():
            entry.unlink()
        self._real_rmdir(path)

    def write(self, path: str, value: str) -> None:
        file = Path(path)
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if file.name == "cgroup.procs":
            for other in self.top.rglob("cgroup.procs"):
                if self._hierarchy(other) == self._hierarchy(file):
                    words = [word for word in other.read_text().split() if word != value]
                    other.write_text("\n".join(words))
            file.write_text(f"{file.read_text()}\n{value}\n")
        elif file.name == "cgroup.subtree_control":
            self._control(file, value.split())
        else:
            file.write_text(value)

    def getxattr(self, path: str, name: str) -> bytes:
        if Path(path) in self.delegated and name == "user.delegate":
            return b"1"
        raise OSError(errno.ENODATA, "no such attribute", path)

    def access(self, path: str, mode: int) -> bool:
        folder = Path(path) if os.path.isdir(path) else Path(path).parent
        return folder not in self.closed and os.path.exists(path)

    def _control(self, file: Path, changes: list[str]) -> None:
        folder = file.parent
        enabled = set(file.read_text().split())
        for change in changes:
            if change[1:] not in (folder / "cgroup.controllers").read_text().split():
                raise FileNotFoundError(errno.ENOENT, "no such controller", str(file))
            if (
                change[0] == "+"
                and (folder / "cgroup.type").exists()
                and (folder / "cgroup.procs").read_text().split()
            ):
                raise OSError(errno.EBUSY, "device or resource busy", str(file))
            enabled = enabled | {change[1:]} if change[0] == "+" else enabled - {change[1:]}
        file.write_text(" ".join(sorted(enabled)))

    def _hierarchy(self, file: Path) -> str:
        return file.relative_to(self.top).parts[0]

    def list_mount(self, point: Path, kind: str, options: str, own: str, root: str) -> None:
        with (self.proc / "mountinfo").open("a") as file:
            escaped = str(point).replace(" ", "\\040")
            file.write(f"31 23 0:28 {root} {escaped} rw,nosuid - {kind} {kind} rw,{options}\n")
        with (self.proc / "cgroup").open("a") as file:
            file.write(f"{len(self.old)}:{options}:{own}\n")

    def _fill(self, folder: Path, controllers: list[str]) -> None:
        names = [
            "cgroup.procs",
            "cgroup.subtree_control",
            "cgroup.freeze",
            "cgroup.events",
            "cpu.stat",
            "cgroup.type",
        ]
        for name in (*names, *(file for word in controllers for file in FILES.get(word, ()))):
            (folder / name).write_text("")
        (folder / "cgroup.events").write_text("populated 1\nfrozen 1\n")
        (folder / "cgroup.controllers").write_text(" ".join(controllers))

    _real_mkdir = staticmethod(os.mkdir)
    _real_rmdir = staticmethod(os.rmdir)
