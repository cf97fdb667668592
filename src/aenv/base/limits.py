"""Limits that both ends of a connection agree on."""

from __future__ import annotations

MAX_BODY_BYTES = 64 << 20


def allow_many_open_files() -> None:
    """Let this process have as many open files as it may: the usual limit is for programs that use few.

    What is on its way over unix sockets counts too, and for a user as a whole: who may have few may send none.
    """
    import resource  # not everywhere where this module is

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def spell_bytes(size: int) -> str:
    """A size as people read it: "64 MiB", "512 KiB", "100 bytes"."""
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= length and size % length == 0:
            return f"{size // length} {unit}"
    return f"{size} bytes"


def shortage(code: int | None) -> str | None:
    """What the host has no more of, where an errno says that; None for every other errno."""
    import errno

    return {
        errno.EAGAIN: "processes",
        errno.ENOMEM: "memory",
        errno.EMFILE: "open files in the gateway",
        errno.ENFILE: "open files",
        errno.ENOSPC: "space or kernel objects",
        errno.EDQUOT: "disk quota",
    }.get(code or 0)
