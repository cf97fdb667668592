"""A stand-in for gVisor's runsc: checks what it is given strictly, and runs it with plain namespaces and mounts.

It isolates far less than the real one: it is here so that everything up to `runsc` and after it is tested.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from aenv.isolation.sandbox import system

_FLAGS = {
    "root": r"/.+",
    "platform": r"systrap|ptrace|kvm",
    "network": r"sandbox|host|none",
    "host-uds": r"none|open|create|all",
    "overlay2": r"none|(root|all):(memory|self|dir=/.+?)(,size=\d+)?",
    "ignore-cgroups": r"",
}
_OF_COMMANDS = {
    "run": {"bundle": r"/.+", "detach": r"", "pid-file": r"/.+"},
    "exec": {"cwd": r"/.*"},
    "delete": {"force": r""},
}
_MOUNT_OPTIONS = re.compile(r"bind|private|nosuid|nodev|noexec|ro|rw|newinstance|(mode|size|ptmxmode)=\d+")
_KINDS = {"bind", "tmpfs", "proc", "sysfs", "devpts"}
_CAPABILITIES = {"bounding", "effective", "inheritable", "permitted", "ambient"}


def main() -> NoReturn:
    """As `runsc` would be called."""
    flags, rest = _parse(sys.argv[1:], _FLAGS)
    name, *rest = rest
    options, rest = _parse(rest, _OF_COMMANDS[name])
    id, *command = rest
    state = Path(flags["root"]) / f"{id}.json"
    if name == "run":
        assert not command
        _run(flags, options, state)
    elif name == "exec":
        _exec(options, state, command)
    else:
        if state.exists():
            _kill(json.loads(state.read_text())["pid"])
            state.unlink()
        os._exit(0)


def _parse(words: list[str], known: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    found = {}
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        if name not in known or not re.fullmatch(known[name], value):
            _fail(f"flag provided but not defined, or of a bad value: {name}={value}")
        found[name] = value
    return found, words


def _run(flags: dict[str, str], options: dict[str, str], state: Path) -> NoReturn:
    bundle = Path(options["bundle"])
    config = json.loads((bundle / "config.json").read_text())
    try:
        check(config, bundle, flags)
    except AssertionError as error:
        _fail(f"bad config.json: {error}")
    if state.exists():
        _fail(f"container {state.stem} exists")
    state.parent.mkdir(parents=True, exist_ok=True)
    read, write = os.pipe()
    system.unshare("pid")
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # until its pid is written down
        os.close(read)
        try:
            _become(config, bundle, flags)
        except BaseException as error:
            _fail(f"cannot start it: {error!r}")
    state.write_text(json.dumps({"pid": pid, "env": config["process"]["env"]}))
    Path(options["pid-file"]).write_text(str(pid))
    os._exit(0)


def check(config: dict[str, Any], bundle: Path, flags: dict[str, str]) -> None:
    """AssertionError when it is not what the OCI runtime specification asks for, or allows too much."""
    assert set(config) == {"ociVersion", "process", "root", "hostname", "mounts", "linux"}, "fields"
    assert re.fullmatch(r"1\.\d+\.\d+", config["ociVersion"]), "version"
    process = config["process"]
    assert set(process["capabilities"]) == _CAPABILITIES, "capabilities"
    assert not any(process["capabilities"].values()), "capabilities"
    assert process["noNewPrivileges"] is True, "privileges"
    assert process["terminal"] is False, "terminal"
    assert process["user"] == {"uid": 0, "gid": 0}, "user"
    assert all(isinstance(word, str) for word in process["args"]) and process["args"][0].startswith("/"), "args"
    assert all(re.match(r"[^=\0]+=[^\0]*\Z", pair) for pair in process["env"]), "env"
    assert process["cwd"].startswith("/"), "cwd"
    for limit in process["rlimits"]:
        assert set(limit) == {"type", "hard", "soft"} and limit["hard"] >= limit["soft"] > 0, "rlimits"
    assert (bundle / config["root"]["path"]).is_dir(), "root"
    for mount in config["mounts"]:
        _check_mount(mount, bundle)
    kinds = [namespace["type"] for namespace in config["linux"]["namespaces"]]
    assert len(set(kinds)) == len(kinds) and set(kinds) <= {"pid", "ipc", "uts", "mount", "network"}, "namespaces"
    assert ("network" in kinds) == (flags["network"] != "host"), "network"
    limits = config["linux"]["resources"]
    assert limits["memory"]["limit"] > 0 and limits["pids"]["limit"] > 0, "resources"
    assert set(limits) <= {"memory", "pids", "cpu"}, "resources"
    assert flags["host-uds"] == "create" and flags["overlay2"].startswith("root:memory,size="), "flags"


def _check_mount(mount: dict[str, Any], bundle: Path) -> None:
    assert set(mount) == {"destination", "type", "source", "options"}, "mount"
    target, options = mount["destination"], mount["options"]
    assert target.startswith("/") and os.path.normpath(target) == target, target
    assert mount["type"] in _KINDS, target
    assert all(_MOUNT_OPTIONS.fullmatch(option) for option in options) and "nosuid" in options, target
    # Made beforehand: the real one would make it in the root, which is shared with other instances.
    assert os.path.lexists(f"{bundle}/rootfs{target}") or target.startswith("/dev/"), f"no place for {target}"
    if mount["type"] == "bind":
        assert "bind" in options and os.path.exists(mount["source"]) and mount["source"].startswith("/"), target
        writable = "rw" in options
        assert not writable or mount["source"] == str(bundle / "shared") or target == "/storage", target


def _become(config: dict[str, Any], bundle: Path, flags: dict[str, str]) -> NoReturn:
    os.setsid()
    kinds = [namespace["type"] for namespace in config["linux"]["namespaces"]]
    system.unshare(*(kind for kind in kinds if kind != "pid"))
    system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
    socket.sethostname(config["hostname"])
    size = flags["overlay2"].partition("size=")[2]
    system.mount("upper", "/mnt", "tmpfs", 0, f"size={size}")
    for name in ("upper", "work", "root"):
        os.mkdir(f"/mnt/{name}")
    layers = f"lowerdir={bundle / 'rootfs'},upperdir=/mnt/upper,workdir=/mnt/work"
    system.mount("root", "/mnt/root", "overlay", 0, layers)
    for mount in config["mounts"]:
        _mount(mount)
    for name in ("null", "zero", "random", "urandom"):
        Path(f"/mnt/root/dev/{name}").touch()
        system.mount(f"/dev/{name}", f"/mnt/root/dev/{name}", None, system.MS_BIND)
    os.chdir("/mnt/root")
    system.pivot_root(".", ".")
    system.umount(".")
    process = config["process"]
    os.chdir(process["cwd"])
    for limit in process["rlimits"]:
        resource.setrlimit(getattr(resource, limit["type"]), (limit["soft"], limit["hard"]))
    system.drop_bounding_capabilities()
    system.permit_capabilities()
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    variables = dict(pair.split("=", 1) for pair in process["env"])
    os.execve(process["args"][0], process["args"], variables)


def _mount(mount: dict[str, Any]) -> None:
    target = f"/mnt/root{mount['destination']}"
    data = ",".join(option for option in mount["options"] if "=" in option)
    if not os.path.exists(target):  # within a file system that was mounted just now
        os.makedirs(target)
    if mount["type"] != "bind":
        system.mount(mount["source"], target, mount["type"], system.MS_NOSUID, data)
        return
    system.mount(mount["source"], target, None, system.MS_BIND | system.MS_REC)
    if "ro" in mount["options"]:
        flags = system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | system.MS_NOSUID
        system.mount(None, target, None, flags)


def _exec(options: dict[str, str], state: Path, command: list[str]) -> NoReturn:
    if not state.exists():
        _fail("container does not exist")
    known = json.loads(state.read_text())
    variables = dict(pair.split("=", 1) for pair in known["env"])
    entered = ["--mount", "--pid", "--ipc", "--uts", "--net", "--root", f"--wdns={options['cwd']}"]
    os.execve("/usr/bin/nsenter", ["nsenter", f"--target={known['pid']}", *entered, "--", *command], variables)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.stderr.flush()
    os._exit(128)
