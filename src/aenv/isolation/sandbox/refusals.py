"""Why a step of isolation is refused here, and the one line that allows it.

The kernel tells of all these with the same few errors; the settings that can be behind them tell them apart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from .system import NAMESPACE_FILES, NEW_NAMESPACES

_NAMES = {
    **{kind: f"{kind} namespaces" for kind in NEW_NAMESPACES},
    "tmpfs": "tmpfs in a user namespace",
    "xattr": "user attributes on tmpfs",
    "overlay": "overlay in a user namespace",
    "proc": "new mounts of /proc",
    "idmapped": "idmapped mounts",
}
_OUTER = "start the outer container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
_REFUSED = (errno.EPERM, errno.EACCES)


def spell(step: str) -> str:
    return _NAMES[step]


def explain(step: str, error: int, *, proc: Path = Path("/proc")) -> tuple[str, str]:
    """What is the matter, and the fix."""
    if step in ("xattr", "overlay", "idmapped"):
        return _of_file_systems(step, error, proc)
    if step == "proc" and error in _REFUSED and (hidden := _hidden_in_proc(proc)):
        return (
            f"parts of /proc are covered ({', '.join(hidden[:3])}), so no new /proc may be mounted",
            "start the outer container with --security-opt systempaths=unconfined, or procMount: Unmasked",
        )
    if step in NEW_NAMESPACES:
        limit = f"user.max_{NAMESPACE_FILES[step]}_namespaces"
        if error in (errno.ENOSPC, errno.EUSERS):
            value = _setting(proc, limit)
            return f"{limit} is {value or 'used up'}", f"as root: sysctl -w {limit}=15000"
        if error in (errno.EINVAL, errno.ENOSYS):
            return (
                f"this kernel was built without {_NAMES[step]}",
                "use a kernel that has them, as every distribution's",
            )
    if error in _REFUSED:
        return _refused(step, proc)
    return f"refused: {os.strerror(error).lower()}", "see the kernel's log: dmesg | tail"


def _refused(step: str, proc: Path) -> tuple[str, str]:
    for name, forbids, allows in (
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ):
        if _setting(proc, name) == forbids and _status(proc, "Uid") != "0":
            return f"{name} is {forbids}", f"as root: sysctl -w {name}={allows}"
    if _status(proc, "Seccomp") == "2":
        return "a seccomp filter around this process forbids it, as those of containers do", _OUTER
    if _setting(proc, "user.max_user_namespaces") == "0":
        return "user.max_user_namespaces is 0", "as root: sysctl -w user.max_user_namespaces=15000"
    # A process whose root is not a mount point was put there by chroot.
    if step == "user" and "/" not in dict(_mounts(proc)):
        return "this process is in a chroot, where none can be made", "use pivot_root or a container in its place"
    return (
        "the kernel refuses it: a security module, or an outer container",
        f"see dmesg | tail; in a container, {_OUTER}",
    )


def _of_file_systems(step: str, error: int, proc: Path) -> tuple[str, str]:
    if error in _REFUSED and step == "overlay" and release() >= (5, 11):
        return _refused(step, proc)
    if step == "xattr":
        return "a folder that is deleted inside and made again cannot be hidden", "use Linux 6.6 or newer"
    if step == "overlay":
        if error == errno.ENODEV:
            return "this kernel has no overlay file system", "as root: modprobe overlay"
        return f"refused: {os.strerror(error).lower()}", "use Linux 5.11 or newer"
    if error in (errno.ENOSYS, errno.EINVAL) and release() >= (5, 12):
        kind = dict(_mounts(proc)).get("/", "unknown")
        return f"the file system of / ({kind}) cannot show other owners", "keep / on ext4, xfs or btrfs"
    if error in _REFUSED:
        return (
            "not allowed in this container, though we are root in it",
            "start the outer container with --privileged",
        )
    return f"refused: {os.strerror(error).lower()}", "use Linux 5.12 or newer"


def _hidden_in_proc(proc: Path) -> Sequence[str]:
    # Over an automount point is usual, and hides nothing.
    points = (point for point, _ in _mounts(proc))
    return [point for point in points if point.startswith("/proc/") and not point.startswith("/proc/sys/fs/")]


def _mounts(proc: Path) -> list[tuple[str, str]]:
    """Where something is mounted, and which kind of file system; the uppermost last."""
    lines = (line.partition(" - ") for line in _text(proc / "self/mountinfo").splitlines())
    return [(before.split(" ")[4], after.split(" ")[0]) for before, _, after in lines]


def _setting(proc: Path, name: str) -> str:
    return _text(proc / "sys" / name.replace(".", "/", 1)).strip()


def _status(proc: Path, name: str) -> str:
    for line in _text(proc / "self/status").splitlines():
        if line.startswith(f"{name}:"):
            return line.split()[1]
    return ""


def release() -> tuple[int, ...]:
    """The first two numbers of this kernel's version."""
    words = os.uname().release.replace("-", ".").split(".")
    return tuple(int(word) for word in words[:2] if word.isdecimal())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # not on this kernel, or not for us: then it is not the reason
