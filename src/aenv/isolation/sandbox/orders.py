"""Orders: what the first programs of a sandbox are told when they start, for both ends.

    engine, build run → launcher     ZygoteOrder, BuildOrder
    launcher → its program           StageTask, in a file of which the program has a descriptor
    stager → zygote                  the same, in the same way
    launcher → engine, build run     NotStarted

All of them come from code of ours, and are read by `typed_json.py`, so that an order that does not fit the
program says what is wrong with it.
"""

# No postponed annotations here: `decode` reads the types of the fields.

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from .rootfs import Rootfs
from .typed_json import Broken, decode, encode

MAX_ORDER = 1 << 20
"""Bytes of an order to the launcher."""


@dataclass(frozen=True)
class Bind:
    """A folder or file of the host, to be seen at `target`."""

    source: str
    target: str
    is_ours: bool = True
    """Whether it belongs to who is root inside; else only what every user may read can be read."""
    is_writable: bool = False
    is_kept: bool = False
    """Whether it outlives the instances that write to it, and so has owners of its own on the disk."""
    is_hidden: bool = False
    """Whether it is on the stage alone, and not in the roots that are set up there."""


@dataclass(frozen=True)
class Stage:
    """What there is on a stage: made once, and read by every instance's set-up."""

    layers: tuple[str, ...]
    overlays: Mapping[str, tuple[str, ...]]
    """System folders that are made of several layers."""
    binds: tuple[str, ...]
    """Paths on the stage that are at the same place inside."""
    masked: tuple[str, ...]
    read_only: tuple[str, ...]


@dataclass(frozen=True)
class LaunchOrder:
    """What the launcher makes a stage of, whatever is to run there."""

    program: ClassVar[str]
    """The module to run."""
    goes_inside: ClassVar[bool]
    """Whether the program goes on in the rootfs, and must find its own modules there."""

    layers: tuple[str, ...]
    """Of `/`, the uppermost first."""
    system: Mapping[str, tuple[str, ...]]
    """Folders with layers of their own, as `Rootfs.system`."""
    binds: tuple[Bind, ...]
    masked: tuple[str, ...]
    """Folders that are shown empty."""
    host_network: bool


@dataclass(frozen=True)
class ZygoteOrder(LaunchOrder):
    """Start a stager, and with it the zygote of an environment."""

    program = "aenv.inside.zygote.stager"
    goes_inside = True

    requirements: str
    """The folder of the environment's packages; empty for none."""
    source: str
    """The folder of the author's code."""
    preload: tuple[str, ...]
    """Modules to import before the first fork."""
    has_rights: bool
    """Whether root inside has what root of a container has, where it is not the only user."""
    builds_apart: bool = False
    """Whether other processes build the rooms of instances, as they must on kernels before 6.18."""


@dataclass(frozen=True)
class BuildOrder(LaunchOrder):
    """Run one command in a rootfs, and keep what it writes."""

    program = "aenv.isolation.sandbox.build_step"
    goes_inside = False

    uppers: Mapping[str, tuple[str, str]]
    """The folders on the stage that keep what is written, as `InstanceView.uppers`."""
    command: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str
    user: str
    """As USER of a Dockerfile says it; empty for root."""


Order = TypeVar("Order", ZygoteOrder, BuildOrder)


@dataclass(frozen=True)
class StageTask:
    """What the launcher has made, and for what: its program reads this."""

    stage: Stage
    order: ZygoteOrder | BuildOrder
    owner: int
    """The id on the host of the user who is root inside."""
    nested: int = -1
    """The descriptor on which a stager asks for the ids of its second user namespace."""


@dataclass(frozen=True)
class NotStarted:
    """Launcher, stager → engine: no instance will come from here. There is no isolation, or the order cannot be
    read, or the environment's code cannot be loaded ahead."""

    error: str


def layers_of(root: Rootfs) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The folders of a rootfs, as an order has them: its layers, and its system."""
    system = {target: tuple(map(str, folders)) for target, folders in root.system.items()}
    return tuple(map(str, root.layers)), system


def task_file(task: StageTask) -> int:
    """A file in memory that holds a task, for a program that inherits its descriptor: `task_from`."""
    file = os.memfd_create("task", 0)
    os.write(file, encode(task))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def task_from(file: int, kind: type[Order]) -> tuple[StageTask, Order]:
    """The task in such a file, which is closed, and its order. Broken when that is of another kind."""
    with open(file, "rb") as opened:
        task = decode(opened.read(), StageTask, most_bytes=None)
    if not isinstance(task.order, kind):
        raise Broken(f"a task with a {type(task.order).__name__}, and not a {kind.__name__}")
    return task, task.order
