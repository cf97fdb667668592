"""Landlock: what of the file system this process may reach, whatever else it may see; and whom it may signal.

A second wall behind the mount namespace, which no capability, mount or open descriptor of a folder gets around.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Sequence

from aenv.isolation.sandbox import syscalls, system

# The first kernels with landlock (5.13 to 5.18) refuse every rename from one folder to another, which ordinary
# programs need; there the mount namespace stands alone.
LEAST_ABI = 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
# Which rights there are, by the ABI that brought them: up to moving between folders, truncate, ioctl on devices.
_RIGHTS = {2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

# Reading includes running, and the ioctls of devices that can be opened at all (a terminal's size).
_READABLE = _EXECUTE | _READ_FILE | _READ_DIR | _IOCTL_DEV
_DEVICES = _MAKE_CHAR | _MAKE_BLOCK  # never granted

_SCOPES_SINCE = 6  # the ABI
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
_LOG_SAME_EXEC_OFF, _LOG_SUBDOMAINS_OFF = 1 << 0, 1 << 2
_ASK_VERSION = 1
_PATH_BENEATH = 1
_RULESET = struct.Struct("=3Q")
_RULE = struct.Struct("=QI")


def abi() -> int:
    """The version of landlock that this kernel has; 0 when it has none, or it is not allowed here."""
    try:
        return system.syscall(_NUMBERS["landlock_create_ruleset"], 0, 0, _ASK_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(readable: Sequence[str], writable: Sequence[str], *, scoped: bool = True) -> None:
    """From now on this thread, and whatever it starts, reaches only these folders and files, for good.

    `readable` can be read and run, `writable` also changed in every way but making devices; a path that does not
    exist raises. Where the kernel can (ABI 6), what is `scoped` cannot reach abstract unix sockets and processes
    of others either; nor of those that were confined apart from it, though they share its namespaces.
    Set no_new_privs before, and do it before there are threads. Does nothing below `LEAST_ABI`.
    """
    version = abi()
    if version < LEAST_ABI:
        return
    rights = 0
    for since in _RIGHTS:  # the oldest first
        if version >= since:
            rights = _RIGHTS[since]
    ruleset = system.syscall(_NUMBERS["landlock_create_ruleset"], *_attributes(rights, version, scoped), 0)
    try:
        _allow(ruleset, readable, rights & _READABLE)
        _allow(ruleset, writable, rights & ~_DEVICES)
    except BaseException:
        os.close(ruleset)
        raise
    _apply(ruleset, version)


def has_scopes() -> bool:
    """Whether the kernel can keep abstract unix sockets and processes of others out of reach (ABI 6)."""
    return abi() >= _SCOPES_SINCE


def scope() -> None:
    """From now on this thread, and whatever it starts, reaches no abstract unix socket and no process of others.

    Alone, without a word on files: who has said one cannot open files in another mount namespace that it enters.
    Does nothing where the kernel cannot (before ABI 6).
    """
    version = abi()
    if version >= _SCOPES_SINCE:
        attributes, size = _attributes(0, version, True)
        _apply(system.syscall(_NUMBERS["landlock_create_ruleset"], attributes, size, 0), version)


def _apply(ruleset: int, version: int) -> None:
    try:
        # Refusals here are not logged: otherwise hostile code could fill the host's audit log.
        flags = _LOG_SAME_EXEC_OFF | _LOG_SUBDOMAINS_OFF if version >= 7 else 0
        system.syscall(_NUMBERS["landlock_restrict_self"], ruleset, flags)
    finally:
        os.close(ruleset)


_NUMBERS = syscalls.NUMBERS["x86_64"]  # landlock's are the same on every machine


def _attributes(rights: int, version: int, scoped: bool) -> tuple[bytes, int]:
    """The kernel's `struct landlock_ruleset_attr` and its size. TCP is not restricted here."""
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if scoped and version >= _SCOPES_SINCE else 0
    attributes = _RULESET.pack(rights, 0, scopes)
    return attributes, len(attributes) if version >= _SCOPES_SINCE else 8


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        place, allowed = _open(path, rights)
        try:
            rule = _RULE.pack(allowed, place)
            system.syscall(_NUMBERS["landlock_add_rule"], ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(place)


def _open(path: str, rights: int) -> tuple[int, int]:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY), rights
    except NotADirectoryError:
        return os.open(path, os.O_PATH | os.O_CLOEXEC), rights & _OF_FILES
