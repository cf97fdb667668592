"""OCI bundles: what `runsc` is told about an instance, by the specification of config.json. Starts nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...artifacts.pythons.runtimes import Python
from ...isolation.sandbox import interpreter
from ...isolation.sandbox.inside_paths import LOG, WORKSPACE
from ...isolation.sandbox.orders import ZygoteOrder
from ...isolation.sandbox.overlay_run import OverlayPlan
from ...isolation.sandbox.standalone_options import StandaloneOptions
from ...isolation.sandbox.typed_json import encode
from ..base import InstanceSpec, ResourceLimits
from .kinds import order
from .spares import Recipe

_SHARED = "/run/aenv"  # inside; outside it is the folder "shared" of the bundle
_CPU_PERIOD = 100_000
_FOLDERS = ("/proc", "/dev", "/sys", "/tmp", "/var/log", WORKSPACE, _SHARED)
_NAMESPACES = ("pid", "ipc", "uts", "mount")


def runtime(python: Python | None) -> list[str]:
    """The command that runs in the sandbox: an interpreter, which finds its packages where they are here.

    Arguments of `inside/zygote/standalone.py` follow.
    """
    # No variable: what it starts is not to see it.
    path = [str(python.packages)] if python else interpreter.package_folders()
    start = f"import sys; sys.path[:0] = {path!r}; from aenv.inside.zygote import standalone; standalone.main()"
    return [str(python.executable) if python else sys.executable, "-P", "-c", start]


def any_version(runtime: Sequence[str]) -> list[str]:
    """The same for a sandbox of this or an earlier build: its code may have been replaced since it started."""
    *python, start = runtime
    path = start.rpartition("; from ")[0]
    return [*python, f"{path}\n{_EITHER}"]


_EITHER = """try:
    from aenv.inside.zygote.standalone import main
except ImportError:
    from aenv.boot.apart import main
main()"""


def write(spec: InstanceSpec, recipe: Recipe, bundle: Path, variables: Mapping[str, str]) -> None:
    """Make the folder that runsc is given: config.json, and the places for what is mounted before it starts."""
    told = order(recipe.kind)
    kept = {str(bundle / "kept"): bind.source for bind in told.binds if bind.is_kept}
    config, overlays = _config(spec, recipe, bundle, told, variables)
    for place in kept:
        Path(place).mkdir(parents=True)
    for name in ("rootfs", "glue", "shared"):
        (bundle / name).mkdir(parents=True)
    for place in overlays:
        Path(place).mkdir(parents=True, exist_ok=True)
    targets = [*_FOLDERS, *told.system, *(bind.target for bind in told.binds), *told.masked]
    sources = {bind.target: bind.source for bind in told.binds}
    kept_targets = {bind.target for bind in told.binds if bind.is_kept}  # also when it is a volume
    for target in targets:  # so that nothing has to be made in a root that is not ours to write to
        mounted_on = bundle / "glue" / target.lstrip("/")
        if os.path.isdir(sources.get(target, "/")) or target in kept_targets:
            mounted_on.mkdir(parents=True, exist_ok=True)
        else:
            mounted_on.parent.mkdir(parents=True, exist_ok=True)
            mounted_on.touch()
    (bundle / "config.json").write_text(json.dumps(config))
    (bundle / "overlays.json").write_bytes(encode(OverlayPlan(overlays, kept)))


def _config(
    spec: InstanceSpec, recipe: Recipe, bundle: Path, told: ZygoteOrder, variables: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """What config.json says; and which folders are laid over each other before, and where."""
    limits = recipe.limits
    overlays = {str(bundle / "rootfs"): (*told.layers, str(bundle / "glue"))}
    mounts = [
        _mount("/proc", "proc", "proc"),
        _mount("/dev", "tmpfs", "tmpfs", "mode=755"),
        _mount("/dev/pts", "devpts", "devpts", "newinstance", "ptmxmode=0666"),
        _mount("/dev/shm", "tmpfs", "tmpfs", "nodev", "noexec", f"size={limits.storage_bytes}"),
        _mount("/sys", "sysfs", "sysfs", "nodev", "noexec", "ro"),
        *(_mount(path, "tmpfs", "tmpfs", "nodev", f"size={limits.storage_bytes}") for path in ("/tmp", WORKSPACE)),
        _mount("/var/log", "tmpfs", "tmpfs", "nodev", f"size={limits.storage_bytes}"),
        _mount(_SHARED, "bind", str(bundle / "shared"), "nodev", "rw"),
    ]
    for number, (target, layers) in enumerate(told.system.items()):
        source = layers[0]
        if len(layers) > 1:
            source = str(bundle / f"system{number}")
            overlays[source] = layers
        mounts.append(_mount(target, "bind", source, "nodev", "ro"))
    # Shorter ones first: one may lie within another.
    for bind in sorted(told.binds, key=lambda bind: len(bind.target)):
        source = str(bundle / "kept") if bind.is_kept else bind.source
        mounts.append(_mount(bind.target, "bind", source, "nodev", "rw" if bind.is_writable else "ro"))
    mounts += [_mount(path, "tmpfs", "tmpfs", "nodev", "ro", "size=4096") for path in told.masked]
    options = StandaloneOptions(
        path="/environment",
        log=LOG,
        socket=f"{_SHARED}/socket",
        requirements=told.requirements,
        keep_history=spec.keep_history,
        arguments=spec.arguments,
    )
    namespaces = [*_NAMESPACES, *([] if spec.network.kind == "full" else ["network"])]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [*runtime(spec.python), encode(options).decode()],
            "env": [f"{name}={value}" for name, value in variables.items()],
            "cwd": WORKSPACE,
            "capabilities": {
                name: [] for name in ("bounding", "effective", "inheritable", "permitted", "ambient")
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": limits.open_files, "soft": limits.open_files}],
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": False},  # what is written stays in gVisor's own overlay
        "hostname": "instance",
        "mounts": mounts,
        "linux": {"namespaces": [{"type": name} for name in namespaces], "resources": _resources(limits)},
    }
    return config, overlays


def _resources(limits: ResourceLimits) -> dict[str, Any]:
    """Enforced by our own group; from here runsc knows how many processors and how much memory to show inside."""
    found: dict[str, Any] = {"memory": {"limit": limits.memory_bytes}, "pids": {"limit": limits.pids}}
    if limits.cpus:
        found["cpu"] = {"quota": round(limits.cpus * _CPU_PERIOD), "period": _CPU_PERIOD}
    return found


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    bound = ("bind", "private") if kind == "bind" else ()
    return {"destination": destination, "type": kind, "source": source, "options": [*bound, "nosuid", *options]}
