"""Where groups of processes may be made: the cgroup hierarchies of this host, and our place in each.

Not here: the groups themselves (`hierarchy.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .control_files import read, write

WANTED = ("cpu", "memory", "pids")

_UNIT = "run aenv serve as root, or as a unit of its own: systemd-run --user --scope -p Delegate=yes aenv serve"
_MOUNT = "mount one, as root: mount -t cgroup2 none /sys/fs/cgroup"
_PASSES = 20  # over processes that fork while they are moved


@dataclass(frozen=True)
class ParentGroup:
    """A folder of one hierarchy below which groups can be made."""

    version: int
    controllers: tuple[str, ...]
    """What it enforces, of WANTED; none when it only freezes."""
    base: str
    point: str
    """Where the hierarchy is mounted."""
    movable: bool = False
    """Version 2, where a group with limited children may hold no process: those in `base` are ours to move."""

    def parent(self, name: str) -> str:
        return f"{self.base.rstrip('/')}/{name}"

    def leaf(self, name: str) -> str:
        """Where the processes of `base` go, beside the folder of the groups."""
        return f"{self.base.rstrip('/')}/{name}-self"


@dataclass(frozen=True)
class ParentGroups:
    """What may be used, and what not."""

    enforcing: tuple[ParentGroup, ...] = ()
    freezer: ParentGroup | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    """Of WANTED and "freezer" -> why, and what to do about it."""


@dataclass(frozen=True)
class CgroupMount:
    version: int
    options: tuple[str, ...]
    """Of the hierarchy; on version 1 its controllers are among them."""
    root: str
    """The cgroup that is seen at `point`."""
    point: str
    flags: tuple[str, ...]
    """Of this mount of it."""

    @property
    def controllers(self) -> tuple[str, ...]:
        return self.options if self.version == 1 else ()

    def folder(self, path: str) -> str:
        """Where the cgroup `path` is seen; the top where it is out of view."""
        inside = path if self.root == "/" else path.removeprefix(self.root)
        hidden = "/.." in path or (self.root != "/" and path != self.root and not path.startswith(self.root + "/"))
        folder = self.point + ("" if hidden else inside.rstrip("/"))
        return folder if os.path.isdir(folder) else self.point


def look(name: str, *, proc: Path = Path("/proc/self")) -> ParentGroups:
    """Find places, and change nothing: below our own cgroup, or below the nearest that was delegated to us."""
    mounts = read_mounts(proc)
    own = _own(proc)
    enforcing: list[ParentGroup] = []
    missing: dict[str, str] = {}
    second = next((mount for mount in mounts if mount.version == 2), None)
    unified = _unified(second, own.get("", "/"), name) if second else None
    offered = _words(f"{unified.base}/cgroup.controllers") if unified else []
    wanted = []
    for controller in WANTED:
        old = next((mount for mount in mounts if controller in mount.controllers), None)
        if old is not None:
            base = old.folder(own.get(controller, "/"))
            if is_writable(base):
                _join(enforcing, ParentGroup(1, (controller,), base, old.point))
            else:
                missing[controller] = f"the cgroup {base} is not ours to change; run aenv serve as root"
        elif controller in offered:
            wanted.append(controller)
        else:
            missing[controller] = _why_not(controller, second, unified)
    if unified is not None and wanted:
        unified = replace(unified, controllers=tuple(wanted))
        enforcing.append(unified)
    # Not that of version 1: whatever it holds cannot be killed, so that neither a gateway's end nor the end of the
    # container that it runs in could end a frozen instance.
    if unified is None:
        missing["freezer"] = f"no cgroup here can freeze processes; {_UNIT if second else _MOUNT}"
    return ParentGroups(tuple(enforcing), unified, missing)


def thaw_old(name: str, *, proc: Path = Path("/proc/self")) -> None:
    """Let go on what an earlier version froze by version 1, and take its groups there away."""
    old = next((mount for mount in read_mounts(proc) if "freezer" in mount.controllers), None)
    base = old.folder(_own(proc).get("freezer", "/")) if old else ""
    if not base or not os.path.isdir(parent := f"{base.rstrip('/')}/{name}"):
        return
    is_alone = not set(old.controllers) & set(WANTED) if old else False  # or the groups there limit what runs
    for group in [entry.path for entry in os.scandir(parent) if entry.is_dir()]:
        write(f"{group}/freezer.state", "THAWED")
        if is_alone:
            _move_all(group, base)
            os.rmdir(group)
    if is_alone:
        os.rmdir(parent)


def prepare(place: ParentGroup, name: str) -> dict[str, str]:
    """Make the folder of the groups, ready for limits. Returns the controllers that cannot be had -> why."""
    parent = place.parent(name)
    failed: dict[str, str] = {}
    if place.version == 2:
        for controller in place.controllers:
            _enable(place, name, controller, failed)
    try:
        os.mkdir(parent)
    except FileExistsError:
        pass
    except OSError as error:
        why = f"cannot make the cgroup {parent}: {error.strerror}; {_UNIT}"
        return dict.fromkeys(place.controllers or ("freezer",), why)
    if place.version == 2:
        for controller in place.controllers:
            if controller not in failed:
                _allow(parent, controller, failed)
    return failed


def dismantle(place: ParentGroup, name: str) -> None:
    """Undo `prepare` as far as no other process uses it: other groups keep the folder."""
    try:
        os.rmdir(place.parent(name))
        if place.version == 2 and os.path.isdir(leaf := place.leaf(name)):
            # Downwards only: no process may be in a cgroup that limits its children.
            for controller in place.controllers:
                write(f"{place.base}/cgroup.subtree_control", f"-{controller}")
            _move_all(leaf, place.base)
            os.rmdir(leaf)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise


def search(place: ParentGroup, name: str, group: str) -> str | None:
    """The folder of a group that was made when our own cgroup was another one."""
    for folder, children, _ in os.walk(place.point):
        if os.path.basename(folder) == name:
            if group in children:
                return f"{folder}/{group}"
            children.clear()
    return None


def read_mounts(proc: Path = Path("/proc/self")) -> list[CgroupMount]:
    mounts = []
    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            root, point, flags = (_plain(word) for word in before.split(" ")[3:6])
            version = 2 if kind == "cgroup2" else 1
            mounts.append(CgroupMount(version, tuple(options.split(",")), root, point, tuple(flags.split(","))))
    return mounts


def is_writable(folder: str) -> bool:
    """Whether groups can be made here and filled: a delegated folder that hides one of its files is of no use."""
    return os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)


def _unified(mount: CgroupMount, path: str, name: str) -> ParentGroup | None:
    """Our place in the version 2 hierarchy: the first that we may change, the nearest first."""
    for base, movable in _candidates(mount, path, name):
        if is_writable(base) and os.access(f"{base}/cgroup.subtree_control", os.W_OK):
            return ParentGroup(2, (), base, mount.point, movable)
    return None


def _candidates(mount: CgroupMount, path: str, name: str) -> Iterator[tuple[str, bool]]:
    own = mount.folder(path)
    if own.endswith(f"/{name}-self"):
        yield os.path.dirname(own), True  # we moved there before
    above = own[len(mount.point) :].count("/")
    for folder in (own, *map(str, list(Path(own).parents)[:above])):
        if _is_delegated(folder):
            # To delegate it is to say that all in it is ours; of a user's manager it holds no process at all.
            yield folder, True
    is_top = os.path.exists(f"{mount.point}/cgroup.type")  # a container's top; the host's has no such file
    if own == mount.point:
        yield own, is_top
    elif _words(f"{own}/cgroup.procs") == [str(os.getpid())]:
        yield own, True
    if not is_top:
        yield mount.point, False  # the host's top may hold processes and limited children


def _is_delegated(folder: str) -> bool:
    for attribute in ("user.delegate", "trusted.delegate"):  # systemd sets both; only root sees the second
        try:
            if os.getxattr(folder, attribute) == b"1":
                return True
        except OSError:
            continue  # not set, or no such attributes here: not delegated
    return False


def _why_not(controller: str, mount: CgroupMount | None, place: ParentGroup | None) -> str:
    if mount is None:
        return f"no cgroup hierarchy with {controller!r} is mounted; {_MOUNT}"
    if controller not in _words(f"{mount.point}/cgroup.controllers"):
        return f"this kernel offers no cgroup controller {controller!r}; boot it with cgroup_enable={controller}"
    if place is None:
        return f"no cgroup here is ours to change; {_UNIT}"
    unit = next(
        (part for part in reversed(place.base.split("/")) if part.endswith((".service", ".scope"))), "the unit"
    )
    return (
        f"the controller {controller!r} was not delegated to {place.base}; set Delegate=cpu memory pids "
        f"for {unit} (systemctl edit) and start it again"
    )


def _enable(place: ParentGroup, name: str, controller: str, failed: dict[str, str]) -> None:
    """Let groups below `base` use the controller; make a leaf for the processes that stand in the way."""
    try:
        write(f"{place.base}/cgroup.subtree_control", f"+{controller}")
        return
    except OSError as error:
        if error.errno != errno.EBUSY or not place.movable:
            failed[controller] = _refused(place.base, controller, error)
            return
    leaf = place.leaf(name)
    try:
        os.makedirs(leaf, exist_ok=True)
        _move_all(place.base, leaf)
    except OSError as error:
        failed[controller] = f"cannot move what runs in {place.base} to {leaf}: {error.strerror}; {_UNIT}"
        return
    _allow(place.base, controller, failed)


def _allow(folder: str, controller: str, failed: dict[str, str]) -> None:
    try:
        write(f"{folder}/cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        failed[controller] = _refused(folder, controller, error)


def _refused(folder: str, controller: str, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return f"{folder} holds other processes, so its groups cannot have {controller!r}; {_UNIT}"
    return f"cannot use {controller!r} in {folder}: {error.strerror}; {_UNIT}"


def _move_all(source: str, target: str) -> None:
    for _ in range(_PASSES):
        pids = _words(f"{source}/cgroup.procs")
        if not pids:
            return
        for pid in pids:
            try:
                write(f"{target}/cgroup.procs", pid)
            except ProcessLookupError:
                continue  # it ended meanwhile


def _join(places: list[ParentGroup], new: ParentGroup) -> None:
    """One place for controllers that are mounted together, like cpu and cpuacct."""
    for index, place in enumerate(places):
        if place.base == new.base:
            places[index] = replace(place, controllers=place.controllers + new.controllers)
            return
    places.append(new)


def _own(proc: Path) -> dict[str, str]:
    """Controller -> our cgroup; "" for version 2."""
    own: dict[str, str] = {}
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    return own


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []  # no /proc, or a kernel without cgroups


def _words(path: str) -> list[str]:
    try:
        return read(path).split()
    except OSError:
        return []  # not there, or not for us: offers nothing


def _plain(text: str) -> str:
    """A path of mountinfo, where blanks and backslashes are written as \\040."""
    return text.encode().decode("unicode_escape").encode("latin-1").decode() if "\\" in text else text
