"""Attacks on files: the host's, the gateway's, other instances', and those that instances share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator

from attempt import Contained, Given, attack, main, reached


@attack
def read_shadow(given: Given) -> str:
    with open("/etc/shadow") as file:
        return f"{len(file.readlines())} lines of /etc/shadow"


@attack
def read_home_folder(given: Given) -> str:
    return _read(given["secret"], given)


@attack
def read_gateway_store(given: Given) -> str:
    found = os.listdir(given["gateway_home"])
    return f"the gateway's home has {found}"


@attack
def read_other_instance(given: Given) -> str:
    """Another instance holds the token in its workspace and its variables; look everywhere that processes show."""
    token = given["token"].encode()
    for number in _numbers():
        for path in ("environ", "root/workspace/token", "cwd/token", "root/run/variables.json"):
            try:
                with open(f"/proc/{number}/{path}", "rb") as file:
                    if token in file.read(1 << 16):
                        return f"the token of another instance is in /proc/{number}/{path}"
            except OSError:
                continue
    raise Contained("no process shows the token")


@attack
def climb_out_by_proc(given: Given) -> str:
    for number in ("self", *_numbers()):
        for name in ("root", "cwd"):
            try:
                return _read(f"/proc/{number}/{name}{'/..' * 16}{given['secret']}", given)
            except OSError:
                continue
    raise Contained("no process has another root")


@attack
def climb_out_by_dots(given: Given) -> str:
    os.chdir("/" + "../" * 64)
    return _read("../" * 64 + given["secret"].lstrip("/"), given)


@attack
def read_private_system_files(given: Given) -> str:
    """A file of the system's folders that only the host's root may read."""
    os.close(os.open(given["private"], os.O_RDONLY))
    return f"could open {given['private']}"


@attack
def change_system_files(given: Given) -> str:
    os.close(os.open(given["system_file"], os.O_WRONLY))
    return "could write to a system file"


@attack
def change_environment(given: Given) -> str:
    """The code of the environment, which all its instances run."""
    os.close(os.open(given["project_file"], os.O_WRONLY))
    return "could write to the environment's code"


@attack
def change_interpreter(given: Given) -> str:
    os.close(os.open(os.__file__, os.O_WRONLY))
    return f"could write to {os.__file__}"


@attack
def change_interpreter_by_proc(given: Given) -> str:
    """/proc/self/exe leads to the program as it was started, by whatever mount that was."""
    mode = os.stat("/proc/self/exe").st_mode & 0o7777
    ways: tuple[tuple[str, Callable[[], object]], ...] = (
        ("chmod", lambda: os.chmod("/proc/self/exe", mode)),
        ("utime", lambda: os.utime("/proc/self/exe", (0, 0))),
        ("setxattr", lambda: os.setxattr("/proc/self/exe", "user.attack", b"1")),
        ("write", lambda: os.close(os.open("/proc/self/exe", os.O_WRONLY))),
    )
    for what, change in ways:
        try:
            change()
        except OSError:
            continue
        return f"could {what} the program {os.readlink('/proc/self/exe')!r}"
    raise Contained("the program cannot be changed")


@attack
def lease_files(given: Given) -> str:
    """Whoever opens a file under a lease waits for its holder, up to 45 s: also the host, and the gateway."""
    place = os.path.join(given["own_folder"], "leased")
    with open(place, "w") as file:
        file.write("x")
    for path in (place, given["system_file"], given["project_file"]):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            continue
        finally:
            os.close(descriptor)
        return f"has a lease on {path}"
    raise Contained("no lease was given")


@attack
def mark_as_overlay(given: Given) -> str:
    """The attributes by which overlay file systems redirect a folder to another."""
    place = os.path.join(given["own_folder"], "marked")
    os.makedirs(place, exist_ok=True)
    os.setxattr(place, "trusted.overlay.redirect", b"/etc")
    return "could redirect a folder"


@attack
def open_by_handle(given: Given) -> str:
    """Files by number, past every path and mount."""
    return reached({"x86_64": 304, "aarch64": 265}, -1, b"\0" * 64, 0, errors=(9, 22, 116))


def _read(path: str, given: Given) -> str:
    with open(path) as file:
        if given["token"] not in file.read():
            raise Contained(f"{path} is another file")
    return f"read {path}"


def _numbers() -> Iterator[str]:
    return (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


if __name__ == "__main__":
    main()
