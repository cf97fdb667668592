"""Attacks by system calls: other views of files, other namespaces, much of the kernel, the host's settings."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import pty
import stat
import struct
import subprocess
import termios

from attempt import Contained, Given, attack, attacks, call, checked, first, libc, main, mount, own, reached, touch

_NEW = {
    "user": 0x10000000,
    "mount": 0x20000,
    "pid": 0x20000000,
    "network": 0x40000000,
    "ipc": 0x8000000,
    "uts": 0x4000000,
    "cgroup": 0x2000000,
    "time": 0x80,
}
_USUAL = (errno.EINVAL, errno.EBUSY)  # for nonsense that the kernel has looked at


def _folder(given: Given, name: str) -> bytes:
    os.makedirs(own(given, name), exist_ok=True)
    return own(given, name).encode()


# Mounts and roots
attacks(
    {
        "mount_a_file_system": (
            "mounted a tmpfs",
            lambda given: mount(b"none", _folder(given, "mounted"), b"tmpfs"),
        ),
        # A fresh one would be without its masks.
        "mount_proc_again": ("mounted a /proc", lambda given: mount(b"none", _folder(given, "proc"), b"proc")),
        "bind_mount": ("bound a folder", lambda given: mount(b"/", _folder(given, "bound"), flags=4096)),
        "remount_writable": ("remounted /proc", lambda _: mount(None, b"/proc", flags=32 | 4096)),
        "mount_by_new_calls": ("has a file system open: {}", lambda _: call(430, b"tmpfs", 0)),
        "clone_a_mount": ("has a copy of a mount: {}", lambda _: call(428, -100, b"/", 1)),
        # What covers parts of /proc, or /proc itself.
        "unmount": ("took /proc away", lambda given: checked(libc.umount2(b"/proc", 2))),
        "pivot_the_root": ("{}", lambda _: reached("pivot_root", b"/", b"/", errors=_USUAL)),
        "change_root": ("has another root", lambda given: os.chroot(_folder(given, "chroot"))),
    }
)


@attack
def make_device(given: Given) -> str:
    """The memory, and the first disk."""
    place = own(given, "device")
    devices = ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(8, 0)))
    first(devices, lambda device: os.mknod(place, device[0] | 0o600, device[1]), "no device can be made")
    os.unlink(place)
    return "made a device"


# Namespaces


@attack
def leave_namespaces(given: Given) -> str:
    name = first(_NEW, lambda name: call("unshare", _NEW[name]), "no namespace can be left")
    return f"has a {name} namespace of its own"


@attack
def clone_into_namespaces(given: Given) -> str:
    def clone(name: str) -> None:
        _wait_for(call("clone", _NEW[name] | 17, 0, 0, 0, 0))

    names = [name for name in _NEW if name != "time"]  # its bit is part of clone's signal number
    return f"a child has a {first(names, clone, 'no child can have another namespace')} namespace of its own"


@attack
def clone3_into_namespaces(given: Given) -> str:
    """Its flags lie in memory, where a filter does not see them."""
    arguments = struct.pack("=11Q", _NEW["user"], 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    _wait_for(call(435, arguments, len(arguments)))
    return "a child has a user namespace of its own"


def _wait_for(child: int) -> None:
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


# Large parts of the kernel
_ARRAY = struct.pack("=5I", 2, 4, 8, 1, 0).ljust(72, b"\0")  # of one element
_CLOCK = struct.pack("=2I2Q", 1, 112, 0, 0).ljust(112, b"\0")  # the software clock, of the whole machine
_HOST = os.uname().nodename.encode()
attacks(
    {
        "use_bpf": ("has a map: {}", lambda _: call("bpf", 0, _ARRAY, len(_ARRAY))),
        "use_io_uring": ("{}", lambda _: reached(425, 1, ctypes.create_string_buffer(120), errors=())),
        "use_userfaultfd": ("{}", lambda _: reached("userfaultfd", os.O_CLOEXEC, errors=())),
        "use_keys": ("has a key: {}", lambda _: call("add_key", b"user", b"attack", b"x", 1, -2)),
        "use_perf": ("counts: {}", lambda _: call("perf_event_open", _CLOCK, -1, 0, -1, 0)),
        "load_module": ("{}", lambda _: reached("finit_module", -1, b"", 0, errors=(errno.EBADF, errno.ENOEXEC))),
        "load_kernel": ("{}", lambda _: reached("kexec_load", 0, 99, 0, 0, errors=_USUAL)),
        "restart_host": ("{}", lambda _: reached("reboot", 0, 0, 0, 0, errors=_USUAL)),
        "set_clock": ("{}", lambda _: reached("clock_settime", 0, struct.pack("=2q", 0, -1), errors=_USUAL)),
        "use_swap": ("{}", lambda _: reached("swapon", b"/does/not/exist", 0, errors=(errno.ENOENT,))),
        "read_kernel_log": ("the log has {} bytes", lambda _: call("syslog", 10, 0, 0)),
        "rename_host": ("set: {}", lambda _: call("sethostname", _HOST, len(_HOST))),
        # READ_IMPLIES_EXEC: all memory becomes executable.
        "change_personality": ("was {}", lambda _: call("personality", 0x0400000)),
        "become_another_user": ("is another user", lambda given: os.setresuid(1000, 1000, 1000)),
        "open_terminal_of_host": (
            "has the terminal of who started it",
            lambda given: touch("/dev/tty", os.O_RDWR | os.O_NOCTTY),
        ),
    }
)


# The host's settings


@attack
def write_settings(given: Given) -> str:
    names = ("kernel/core_pattern", "kernel/hostname", "vm/drop_caches", "kernel/modprobe", "net/ipv4/ip_forward")
    paths = (f"/proc/sys/{name}" for name in names)
    found = first(paths, lambda path: touch(path, os.O_WRONLY), "no setting can be opened for writing")
    return f"could set {found}"


@attack
def open_kernel_files(given: Given) -> str:
    """Those that show or change the kernel's inside; something else may cover them."""
    proc = os.stat("/proc").st_dev
    for name in ("sysrq-trigger", "kcore", "kallsyms", "kmsg", "keys", "timer_list"):
        flags = os.O_WRONLY if name == "sysrq-trigger" else os.O_RDONLY
        try:
            descriptor = os.open(f"/proc/{name}", flags | os.O_NONBLOCK)
        except OSError:
            continue
        if os.fstat(descriptor).st_dev == proc and (name != "kallsyms" or _shows_addresses(descriptor)):
            return f"opened /proc/{name}"
    raise Contained("none can be opened, or it is covered")


def _shows_addresses(descriptor: int) -> bool:
    return any(int(line.split()[0], 16) for line in os.read(descriptor, 1 << 12).splitlines()[:-1])


@attack
def write_cgroups(given: Given) -> str:
    """To lift one's own limits."""
    paths = (f"/sys/fs/cgroup{name}/cgroup.procs" for name in ("", "/pids", "/memory"))
    found = first(paths, lambda path: touch(path, os.O_WRONLY), "no control groups are in view")
    return f"could move itself by {found}"


# Rights


@attack
def regain_capabilities(given: Given) -> str:
    wanted = struct.pack("=6I", 1 << 21, 1 << 21, 0, 0, 0, 0)  # CAP_SYS_ADMIN
    call("capset", struct.pack("=Ii", 0x20080522, 0), wanted)
    return "has CAP_SYS_ADMIN"


@attack
def use_setuid_program(given: Given) -> str:
    """A program of the image that is root's and setuid. What has ended still tells which rights it had."""
    none = subprocess.DEVNULL
    with subprocess.Popen([given["setuid"], "--help"], stdin=none, stdout=none, stderr=none) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{process.pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    if int(fields["CapEff"], 16) == 0:
        raise Contained("it has no capabilities")
    return f"it has the capabilities {fields['CapEff'].strip()}"


@attack
def make_setuid_program(given: Given) -> str:
    """One's own, with capabilities in its attributes."""
    place = own(given, "capable")
    with open(place, "w") as file:
        file.write("#!/bin/sh\n")
    os.setxattr(place, "security.capability", struct.pack("=5I", 0x02000001, 1 << 21, 1 << 21, 0, 0))
    return "made a program with capabilities"


@attack
def type_into_terminal(given: Given) -> str:
    """TIOCSTI, into a terminal of one's own."""
    child, descriptor = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSTI, b"x")
            os._exit(0)
        except OSError:
            os._exit(1)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    os.close(descriptor)
    if status:
        raise Contained("the terminal refuses it")
    return "typed"


if __name__ == "__main__":
    main()
