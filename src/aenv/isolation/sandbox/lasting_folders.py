"""Folders that outlive the instances which write to them: on the disk no user owns their files, least of all root.

Each user namespace has ids of its own, but what is kept must mean the same to the next. So the files have fixed
ids on the disk, which no account has, and each instance is shown them as its own. A setuid program that code in an
instance leaves there makes no user root.
"""

from __future__ import annotations

import os
import stat

from . import namespaces, system, volumes
from .namespaces import ID_COUNT, KEPT


def opened(source: str, owner: int) -> int:
    """A mount of a folder, or of a volume, whose files are shown as the range of ids that begins with `owner`.

    For root. OSError where the file system cannot show other owners than it has.
    """
    if os.path.isdir(source):
        give(source)
        tree = system.open_tree(source, recursive=True)
    else:
        tree = volumes.opened(source)
    shown = namespaces.shown_as(owner)
    try:
        system.mount_setattr(tree, 0, user_namespace=shown, recursive=True)
    except OSError as error:
        os.close(tree)
        raise OSError(error.errno, f"{source}: its file system cannot show other owners; move the home") from None
    finally:
        os.close(shown)
    return tree


def give(source: str) -> None:
    """Make a folder and all that is in it the kept ids', unless it is so: those before were root's.

    The folder itself comes last, so that who was interrupted begins again. Nothing else changes it meanwhile.
    """
    found = os.lstat(source)
    if _is_kept(found.st_uid) and _is_kept(found.st_gid):
        return
    top = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    above, waiting = [top], [_given(top)]
    try:
        while above:
            if waiting[-1]:
                # A descriptor for each level: the path of a deep folder can be too long to be opened.
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                above.append(os.open(waiting[-1].pop(), flags, dir_fd=above[-1]))
                waiting.append(_given(above[-1]))
            elif len(above) > 1:
                os.close(above.pop())
                waiting.pop()
            else:
                os.fchown(top, _id(found.st_uid), _id(found.st_gid))
                return
    finally:
        for descriptor in above:
            os.close(descriptor)


def _given(folder: int) -> list[str]:
    """Give what is in a folder; the names of the folders there."""
    folders = []
    for name in os.listdir(folder):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        # The kernel takes setuid bits and capabilities away with that.
        os.chown(name, _id(found.st_uid), _id(found.st_gid), dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            folders.append(name)
    return folders


def _id(before: int) -> int:
    """What stood for an id inside stands for the same one."""
    if _is_kept(before):
        return before
    return KEPT + before if before < ID_COUNT else KEPT


def _is_kept(id: int) -> bool:
    return KEPT <= id < KEPT + ID_COUNT
