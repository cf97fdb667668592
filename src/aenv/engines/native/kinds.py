"""Kinds: what all instances of one zygote have in common, and what its launcher is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...artifacts.pythons.runtimes import Python
from ...base.errors import StartFailed
from ...isolation.sandbox import interpreter
from ...isolation.sandbox.inside_paths import WORKSPACE
from ...isolation.sandbox.orders import Bind, ZygoteOrder, layers_of
from ...isolation.sandbox.rootfs import Rootfs
from ..base import DATA_PLACE, STORAGE_PLACE


@dataclass(frozen=True)
class Kind:
    """What all instances of one zygote have in common."""

    project: Path
    root: Rootfs = field(compare=False)
    layers: tuple[tuple[str, tuple[Path, ...]], ...]
    """Of the root; it can be compared."""
    python: Python | None = None
    """What all of it runs on, from the launcher to the instances; None for our own."""
    requirements: Path | None = None
    preload: tuple[str, ...] = ()
    stamp: str = ""
    """Changes with the project's code, where some of it is loaded ahead."""
    host_network: bool = False
    has_rights: bool = False
    """Whether root inside has what root of a container has, where it is not the only user."""
    data: Path | None = None
    folders: tuple[tuple[str, Path], ...] = ()
    storage: Path | None = None
    storage_place: str = STORAGE_PLACE
    workspace: Path | None = None
    """The volume that its instances work in together, in place of one of its own for each."""
    tenant: str = ""
    """Whose instances they are. No two tenants share a zygote: each has user ids of its own, and what the kernel
    counts for a user; and nothing of one is in the memory that instances of another are forked from."""


def order(kind: Kind) -> ZygoteOrder:
    """What the launcher of a zygote is told first. StartFailed when the storage cannot be where it should."""
    folders = map(str, kind.python.folders) if kind.python else interpreter.folders()
    binds = [Bind(path, path, is_ours=False) for path in folders]
    binds.append(Bind(str(kind.project), "/environment"))
    if kind.requirements:
        binds.append(Bind(str(kind.requirements), str(kind.requirements)))
    if kind.data:
        binds.append(Bind(str(kind.data), DATA_PLACE))
    binds += [Bind(str(folder), folder_place(variable)) for variable, folder in kind.folders]
    if kind.workspace:
        binds.append(Bind(str(kind.workspace), WORKSPACE, is_writable=True, is_kept=True))
    if kind.storage:
        # Neither over what is needed nor within it: code of ours that has rights is loaded from there, and the
        # environment may write to its storage.
        places = [bind.target for bind in binds]
        if overlapping := [place for place in places if _overlap(place, kind.storage_place)]:
            raise StartFailed(
                f"storage cannot be mounted at {kind.storage_place!r}: the instance needs {overlapping[0]!r}"
            )
        binds.append(Bind(str(kind.storage), kind.storage_place, is_writable=True, is_kept=True))
    source = "/environment/src" if (kind.project / "src").is_dir() else "/environment"
    layers, system = layers_of(kind.root)
    return ZygoteOrder(
        layers=layers,
        system=system,
        binds=tuple(binds),
        masked=() if kind.python else (interpreter.built_in_environments(),),
        host_network=kind.host_network,
        requirements=str(kind.requirements) if kind.requirements else "",
        source=source,
        preload=kind.preload,
        has_rights=kind.has_rights,
    )


def _overlap(one: str, other: str) -> bool:
    """Whether a folder is the other one, or either lies in the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def folder_place(variable: str) -> str:
    """Where an instance sees a further folder."""
    return f"/folders/{variable.lower()}"
