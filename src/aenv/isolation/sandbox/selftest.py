"""Trying what isolation needs, for real, in a process that ends at once.

Started as `python -m aenv.isolation.sandbox.selftest`.

Each line says a step and the error that it met, or 0; the namespaces and mounts go with the process. What an error
means is told in `probe.py`.
"""

from __future__ import annotations

import os

from . import namespaces, system

TYPE_CHECKING = False  # as in `typing`; this starts as a program of its own, and every import counts
if TYPE_CHECKING:
    from collections.abc import Callable

_TOP = "/tmp"  # covered in our own mount namespace only


def main() -> None:
    for step, error in attempted():
        print(step, error, flush=True)


def attempted() -> list[tuple[str, int]]:
    """The steps in order, as far as they make sense: without a user namespace there is nothing to try."""
    results: list[tuple[str, int]] = []

    def attempt(step: str, trial: Callable[[], object]) -> bool:
        try:
            trial()
        except OSError as error:
            results.append((step, error.errno or 1))
            return False
        results.append((step, 0))
        return True

    if os.geteuid() == 0:
        attempt("idmapped", _idmap)
    if not attempt("user", lambda: namespaces.enter(namespaces.user_namespace().descriptor)):
        return results
    made = {
        kind: attempt(kind, lambda kind=kind: system.unshare(kind))  # type: ignore[misc]
        for kind in ("mount", "pid", "network", "ipc", "uts", "cgroup")
    }
    if not made["mount"]:
        return results
    if attempt("tmpfs", _tmpfs):
        attempt("xattr", lambda: os.setxattr(f"{_TOP}/upper", "user.overlay.attempt", b"y"))
        layers = f"lowerdir={_TOP}/lower,upperdir={_TOP}/upper,workdir={_TOP}/work,userxattr"
        attempt("overlay", lambda: system.mount("overlay", f"{_TOP}/over", "overlay", 0, layers))
        if made["pid"]:
            attempt("proc", _proc)
    return results


def _tmpfs() -> None:
    system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
    system.mount("tmpfs", _TOP, "tmpfs", system.MS_NOSUID | system.MS_NODEV, "size=64k,mode=755")
    for name in ("lower", "upper", "work", "over", "proc"):
        os.mkdir(f"{_TOP}/{name}")


def _proc() -> None:
    """Only the first process of the new pid namespace can mount its /proc."""
    first = os.fork()
    if first == 0:
        code = 255
        try:
            system.mount("proc", f"{_TOP}/proc", "proc", system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC)
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    if code:
        raise OSError(code, os.strerror(code).lower())


def _idmap() -> None:
    """Show the host's root with other owners, attached nowhere."""
    tree = system.open_tree("/")
    try:
        owners = namespaces.user_namespace().descriptor
        try:
            system.mount_setattr(tree, system.MOUNT_ATTR_RDONLY, user_namespace=owners)
        finally:
            os.close(owners)
    finally:
        os.close(tree)


if __name__ == "__main__":
    main()
