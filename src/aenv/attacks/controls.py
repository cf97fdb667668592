"""Controls: the same attack without the sandbox, where it should succeed, so that a held attack means something.

Only those are made that touch nothing of the host beside the temporary folder: with the rights of the user, or
with all rights over namespaces that end with the attack.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .projects import PROGRAMS

_PLAIN = {
    *("read_home_folder", "read_gateway_store", "climb_out_by_proc", "climb_out_by_dots"),
    *("read_private_system_files", "change_system_files", "change_environment", "lease_files"),
    *("see_host_processes", "signal_host_process", "trace_a_process", "read_memory", "write_memory"),
    *("reach_host_loopback", "reach_host_addresses", "reach_abstract_socket", "reach_unix_socket"),
    *("type_into_terminal", "use_open_files", "use_peer_process", "change_personality", "use_keys"),
}
_IN_NAMESPACES = {
    *("mount_a_file_system", "mount_proc_again", "bind_mount", "remount_writable", "mount_by_new_calls"),
    *("clone_a_mount", "unmount", "pivot_the_root", "change_root", "leave_namespaces", "clone_into_namespaces"),
    *("clone3_into_namespaces", "use_io_uring", "use_userfaultfd", "rename_host", "become_another_user"),
    *("regain_capabilities", "make_setuid_program", "mark_as_overlay", "enter_namespaces_of_others"),
    *("make_raw_socket", "make_packet_socket", "make_other_sockets", "change_interfaces"),
    *("make_device", "raise_own_priority", "open_by_handle", "reuse_inherited_sockets"),
}
_NAMESPACES = ("--mount", "--propagation", "private", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc")
_TIMEOUT = 20.0


def control(family: str, name: str, given: dict[str, Any], folder: Path) -> str:
    """What the attack does outside, in words: "succeeds", "refused: why" or "not made". Below `folder` only."""
    if name not in _PLAIN | _IN_NAMESPACES:
        return "not made"
    wrapper: list[str] = []
    if name in _IN_NAMESPACES:
        if not shutil.which("unshare"):
            return "not made: no program 'unshare' here"
        wrapper = ["unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), *_NAMESPACES]
    orders = json.dumps({**given, **_own_files(folder), "attacks": [name]})
    with _left_open(name, given) as descriptors:
        try:
            done = subprocess.run(
                [*wrapper, sys.executable, str(PROGRAMS / f"{family}.py"), orders],
                capture_output=True,
                text=True,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                timeout=_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return f"refused: no end within {_TIMEOUT:g} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return f"refused: {done.stderr.strip()[-200:]}"
    verdict = json.loads(lines[0])
    return "succeeds" if verdict["succeeded"] else f"refused: {verdict['said']}"


def _own_files(folder: Path) -> dict[str, str]:
    """In the place of the files of the system and of the environment, and the folder in which attacks write."""
    own, file = folder / "own", folder / "file"
    own.mkdir(exist_ok=True)
    file.touch()
    return {"own_folder": str(own), "system_file": str(file), "project_file": str(file)}


@contextlib.contextmanager
def _left_open(name: str, given: dict[str, Any]) -> Iterator[list[int]]:
    """What an instance must never find open, for the attacks that look for it."""
    with contextlib.ExitStack() as stack:
        if name == "use_open_files":
            yield [stack.enter_context(open(given["secret"])).fileno()]
        elif name == "use_peer_process":
            ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
            yield [theirs.fileno()] if ours else []
        elif name == "reuse_inherited_sockets":
            yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))).fileno()]
        else:
            yield []
