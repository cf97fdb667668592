"""Mounts: the stage on which instances are set up, and the root file system of each.

The stage is a small root of its own that holds all that its instances will see, read-only and with the right
owners. It is made once; then each instance needs a few dozen system calls. Nothing else of the host is reachable
from it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import lasting_folders, system
from .namespaces import UserNamespace
from .orders import Bind, LaunchOrder, Stage

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
    "shm": "/run/shm",
}
# What /proc tells about the host, or could change on it, to who is root of a user namespace. The rest is the
# instance's own, or of the host's root alone.
_MASKED_FILES = ("kcore", "keys", "key-users", "sysrq-trigger")
_READ_ONLY_FOLDERS = ("sys",)
OWN = "/own"
"""A folder on the stage, and at the same place in a zygote, which can lay down files there for its instances."""
COMPILED = f"{OWN}/compiled"
"""There: the compiled form of the environment's code."""
_OWN_SIZE = "size=64m,nr_inodes=16k,mode=755"
# Where the programs of the host are, and their libraries; on most hosts all but the first are links into it.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SAFE = system.MS_NOSUID | system.MS_NODEV
_READ_ONLY = system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | _SAFE | system.MS_NOEXEC
_TERMINALS = "newinstance,ptmxmode=0666,max=64"  # the host has some thousands, for all instances
_OVERLAYS = "/overlays"
_NEW = "/new"
_ROOT = f"{_NEW}/root"


@dataclass(frozen=True)
class InstanceView:
    """How one instance's root differs from another's on the same stage."""

    storage_bytes: int
    inodes: int
    folders: tuple[str, ...] = ()
    """Folders that are to exist, and be writable."""
    uppers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What keeps that which is written below "/" or a system folder, instead of the storage: a folder on the
    stage, and an empty one beside it that the kernel needs."""
    original: str = ""
    """Where the root is to be seen once more, as it was before anything was written; read-only."""
    own: bool = False
    """Whether it has the folder OWN of the stage."""


def make_stage(order: LaunchOrder, binds: Sequence[Bind], *, shown_to: UserNamespace | None) -> Stage:
    """Make the stage, and make it this process's root. To be called in a mount namespace of its own.

    The owners of what is on it are shown as the user namespace maps them: for root, before it enters that.
    """
    system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
    trees = {bind.target: _open(bind, shown_to) for bind in _plan(order, binds)}
    proc = system.open_tree("/proc", recursive=True)
    devices = {name: system.open_tree(f"/dev/{name}") for name in _DEVICES if os.path.exists(f"/dev/{name}")}
    system.mount("stage", "/mnt", "tmpfs", _SAFE, "mode=755")
    os.chdir("/mnt")
    for name in ("proc", "dev", "new", "old", "glue", "layers", "overlays", "own"):
        os.mkdir(name, 0o755)
    system.mount("own", "own", "tmpfs", _SAFE, _OWN_SIZE)
    if shown_to:
        os.chown("own", shown_to.owner, shown_to.owner)
    for target, tree in trees.items():
        _attach(tree, f"/mnt{target}")
    for path in order.masked:
        if os.path.isdir(f"/mnt{path}"):
            system.mount("masked", f"/mnt{path}", "tmpfs", _SAFE | system.MS_RDONLY, "size=4k")
    _attach(proc, "/mnt/proc")
    _make_devices(devices)
    shown = [bind.target for bind in binds if not bind.is_hidden]
    for target in shown:
        _make_place(f"/mnt/glue{target}", is_folder=os.path.isdir(f"/mnt{target}"))
    for target in (*order.system, "/proc", "/dev", "/sys"):
        _make_place(f"/mnt/glue{target}", is_folder=True)
    layers = [f"/layers/{number}" for number in range(len(order.layers))]
    _dress_glue(layers, shown_to)
    _link_like_host()
    system.pivot_root(".", "old")
    system.umount("/old")
    os.chdir("/")
    overlays = {
        target: tuple(f"{_OVERLAYS}{target}/{number}" for number in range(len(folders)))
        for target, folders in order.system.items()
        if len(folders) > 1
    }
    plain = [target for target in order.system if target not in overlays]
    return Stage(
        # Over all others: what is mounted on is then a folder of ours, and no link that an image has there.
        ("/glue", *layers),
        overlays,
        (*plain, *shown),
        tuple(f"proc/{name}" for name in _MASKED_FILES if os.path.exists(f"/proc/{name}")),
        tuple(f"proc/{name}" for name in _READ_ONLY_FOLDERS if os.path.isdir(f"/proc/{name}")),
    )


def system_folders() -> list[str]:
    """Where the programs of this host are, and their libraries."""
    return [path for path in _SYSTEM if os.path.isdir(path) and not os.path.islink(path)]


def set_up_root(stage: Stage, view: InstanceView, processes: str = "") -> None:
    """Make an instance's root and change to it; nothing of the stage stays in reach.

    To be called in a mount namespace of its own. Its /proc shows the pid namespace of the caller, or the one whose
    file is `processes`, where the kernel can do that.
    """
    _build_root(stage, view)
    os.chdir(_ROOT)
    _mount_proc(stage, processes)
    # The old root comes to lie over the new one, and is taken away with all that was below it.
    system.pivot_root(".", ".")
    system.umount(".")
    os.chdir("/")
    for path in view.folders:  # not before: links of an image would have led to the stage
        _make_folder(path)


def _build_root(stage: Stage, view: InstanceView) -> None:
    system.mount("storage", _NEW, "tmpfs", _SAFE, f"mode=755,size={view.storage_bytes},nr_inodes={view.inodes}")
    os.mkdir(_ROOT)
    _mount_overlay("/", stage.layers, _ROOT, view)
    for target, layers in stage.overlays.items():
        _mount_overlay(target, layers, _ROOT + target, view)
    for path in stage.binds:
        if path in view.uppers:
            _mount_overlay(path, (path,), _ROOT + path, view)
        else:
            system.mount(path, _ROOT + path, None, system.MS_BIND | system.MS_REC)
    if view.own:
        os.mkdir(_ROOT + OWN)
        system.mount(OWN, _ROOT + OWN, None, system.MS_BIND)
    if view.original:
        _show_original(stage, _ROOT + view.original)
    system.mount("/dev", f"{_ROOT}/dev", None, system.MS_BIND | system.MS_REC)
    system.mount("devpts", f"{_ROOT}/dev/pts", "devpts", system.MS_NOSUID | system.MS_NOEXEC, _TERMINALS)


def _make_folder(path: str) -> None:
    """See to it that a folder is there and is ours, whatever an image has there."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            if found.st_uid != 0 or found.st_mode & 0o700 != 0o700:
                os.chown(path, 0, 0)
                os.chmod(path, stat.S_IMODE(found.st_mode) | 0o700)
            return
    _make_folder(os.path.dirname(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a file, or a link to nowhere
    os.mkdir(path)


def _mount_overlay(target: str, layers: tuple[str, ...], on: str, view: InstanceView) -> None:
    upper_and_work = view.uppers.get(target)
    if upper_and_work is None:
        place = f"{_NEW}/{target.replace('/', '_')}"
        upper_and_work = f"{place}/upper", f"{place}/work"
        os.mkdir(place)
        os.mkdir(upper_and_work[0])
        os.mkdir(upper_and_work[1])
    options = f"userxattr,upperdir={upper_and_work[0]},workdir={upper_and_work[1]},lowerdir={':'.join(layers)}"
    system.mount("overlay", on, "overlay", _SAFE, options)


def _show_original(stage: Stage, on: str) -> None:
    """Mount the layers without one to write to. What is bound read-only never changes, and is not shown again."""
    os.mkdir(on, 0o755)
    for target, layers in {"": stage.layers, **stage.overlays}.items():
        options = f"userxattr,lowerdir={':'.join(layers)}"
        system.mount("overlay", on + target, "overlay", _SAFE | system.MS_RDONLY, options)


def _mount_proc(stage: Stage, processes: str) -> None:
    options = f"pidns={processes}" if processes else ""
    system.mount("proc", "proc", "proc", _SAFE | system.MS_NOEXEC, options)
    for path in stage.masked:
        system.mount("/dev/null", path, None, system.MS_BIND)
    for path in stage.read_only:
        system.mount(path, path, None, system.MS_BIND)
        system.mount(None, path, None, _READ_ONLY)
    # All of it: a process could write to its files that it is less worth ending than others when memory is short.
    system.mount(None, "proc", None, _READ_ONLY)


# The stage


def _plan(order: LaunchOrder, binds: Sequence[Bind]) -> list[Bind]:
    """Where on the stage which folder of the host goes."""
    plan = [Bind(folder, f"/layers/{number}") for number, folder in enumerate(order.layers)]
    for target, folders in order.system.items():
        if len(folders) == 1:
            plan.append(_host_folder(folders[0], target))
        else:
            for number, folder in enumerate(folders):
                place = f"{_OVERLAYS}{target}/{number}"
                is_last = number == len(folders) - 1  # the host's own; over it lies what a Dockerfile has made
                plan.append(_host_folder(folder, place) if is_last else Bind(folder, place))
    # Whatever the root has, the interpreter that works on the stage needs the host's.
    there = {bind.target for bind in plan}
    plan += [_host_folder(path, path) for path in system_folders() if path not in there]
    # Shorter ones first: one may lie within another.
    return plan + sorted(binds, key=lambda bind: len(bind.target))


def _host_folder(source: str, target: str) -> Bind:
    """The host's own files stay the host's: who is root inside must not read what only root may read."""
    return Bind(source, target, is_ours=False)


def _open(bind: Bind, shown_to: UserNamespace | None) -> int:
    if shown_to and bind.is_kept:
        tree = lasting_folders.opened(bind.source, shown_to.owner)
    else:
        tree = system.open_tree(bind.source, recursive=True)
    attributes = system.MOUNT_ATTR_NOSUID | system.MOUNT_ATTR_NODEV
    if not bind.is_writable:
        attributes |= system.MOUNT_ATTR_RDONLY
    if shown_to and bind.is_ours and not bind.is_kept:
        # Where the file system cannot do that, its files have no owner inside: readable by all, or not at all.
        with contextlib.suppress(OSError):
            system.mount_setattr(tree, 0, user_namespace=shown_to.descriptor, recursive=True)
    system.mount_setattr(tree, attributes, recursive=True)
    return tree


def _attach(tree: int, place: str) -> None:
    _make_place(place, is_folder=os.path.isdir(f"/proc/self/fd/{tree}"))
    system.move_mount(tree, place)
    os.close(tree)


def _make_place(place: str, *, is_folder: bool) -> None:
    if is_folder:
        os.makedirs(place, exist_ok=True)
    elif not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))


def _make_devices(devices: Mapping[str, int]) -> None:
    system.mount("dev", "/mnt/dev", "tmpfs", system.MS_NOSUID | system.MS_NOEXEC, "mode=755,size=64k")
    for name, tree in devices.items():
        _attach(tree, f"/mnt/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/mnt/dev/{name}")
    os.mkdir("/mnt/dev/pts")
    system.mount(None, "/mnt/dev", None, system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | system.MS_NOSUID)


def _dress_glue(layers: Sequence[str], shown_to: UserNamespace | None) -> None:
    """Give the folders of the glue the owners and modes that those below them have."""
    waiting = [("", [f"/mnt{layer}" for layer in layers])]
    while waiting:
        path, places = waiting.pop()
        # Down from the top and through folders only: where a layer has a link instead, it has nothing to say.
        found = [place for place in places if os.path.lexists(place) and stat.S_ISDIR(os.lstat(place).st_mode)]
        glue = f"/mnt/glue{path}"
        if found:
            os.chmod(glue, stat.S_IMODE(os.lstat(found[0]).st_mode))
        if shown_to:  # else there is no other user
            like = os.lstat(found[0]) if found else None
            os.chown(glue, like.st_uid if like else shown_to.owner, like.st_gid if like else shown_to.owner)
        for name in os.listdir(glue) if os.path.isdir(glue) else ():
            waiting.append((f"{path}/{name}", [f"{place}/{name}" for place in found]))


def _link_like_host() -> None:
    """The interpreter that runs here finds its libraries where they are on the host."""
    for path in _SYSTEM:
        if os.path.islink(path) and not os.path.lexists(f"/mnt{path}"):
            os.symlink(os.readlink(path), f"/mnt{path}")
