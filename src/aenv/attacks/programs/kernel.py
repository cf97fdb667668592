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

from attempt import Contained, Given, attack, call, main, reached

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
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _folder(given: Given, name: str) -> bytes:
    path = os.path.join(given["own_folder"], name)
    os.makedirs(path, exist_ok=True)
    return path.encode()


# Mounts and roots


@attack
def mount_a_file_system(given: Given) -> str:
    _checked(_libc.mount(b"none", _folder(given, "mounted"), b"tmpfs", 0, None))
    return "mounted a tmpfs"


@attack
def mount_proc_again(given: Given) -> str:
    """A fresh one would be without its masks."""
    _checked(_libc.mount(b"none", _folder(given, "proc"), b"proc", 0, None))
    return "mounted a /proc"


@attack
def bind_mount(given: Given) -> str:
    _checked(_libc.mount(b"/", _folder(given, "bound"), None, 4096, None))
    return "bound a folder"


@attack
def remount_writable(given: Given) -> str:
    _checked(_libc.mount(None, b"/proc", None, 32 | 4096, None))
    return "remounted /proc"


@attack
def mount_by_new_calls(given: Given) -> str:
    return f"has a file system open: {call(430, b'tmpfs', 0)}"


@attack
def clone_a_mount(given: Given) -> str:
    return f"has a copy of a mount: {call(428, -100, b'/', 1)}"


@attack
def unmount(given: Given) -> str:
    """What covers parts of /proc, or /proc itself."""
    _checked(_libc.umount2(b"/proc", 2))
    return "took /proc away"


@attack
def pivot_the_root(given: Given) -> str:
    return reached({"x86_64": 155, "aarch64": 41}, b"/", b"/", errors=(errno.EINVAL, errno.EBUSY))


@attack
def change_root(given: Given) -> str:
    os.chroot(_folder(given, "chroot"))
    return "has another root"


@attack
def make_device(given: Given) -> str:
    """The memory, and the first disk."""
    place = os.path.join(given["own_folder"], "device")
    for kind, device in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(8, 0))):
        try:
            os.mknod(place, kind | 0o600, device)
        except OSError as error:
            refused = error
        else:
            os.unlink(place)
            return "made a device"
    raise refused


# Namespaces


@attack
def leave_namespaces(given: Given) -> str:
    for name, flag in _NEW.items():
        try:
            call({"x86_64": 272, "aarch64": 97}, flag)
        except OSError:
            continue
        return f"has a {name} namespace of its own"
    raise Contained("no namespace can be left")


@attack
def clone_into_namespaces(given: Given) -> str:
    for name, flag in _NEW.items():
        if name == "time":
            continue  # its bit is part of clone's signal number
        try:
            child = call({"x86_64": 56, "aarch64": 220}, flag | 17, 0, 0, 0, 0)
        except OSError:
            continue
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return f"a child has a {name} namespace of its own"
    raise Contained("no child can have another namespace")


@attack
def clone3_into_namespaces(given: Given) -> str:
    """Its flags lie in memory, where a filter does not see them."""
    arguments = struct.pack("=11Q", _NEW["user"], 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    child = call(435, arguments, len(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "a child has a user namespace of its own"


# Large parts of the kernel


@attack
def use_bpf(given: Given) -> str:
    attributes = struct.pack("=5I", 2, 4, 8, 1, 0).ljust(72, b"\0")  # an array of one element
    return f"has a map: {call({'x86_64': 321, 'aarch64': 280}, 0, attributes, len(attributes))}"


@attack
def use_io_uring(given: Given) -> str:
    return reached(425, 1, ctypes.create_string_buffer(120), errors=())


@attack
def use_userfaultfd(given: Given) -> str:
    return reached({"x86_64": 323, "aarch64": 282}, os.O_CLOEXEC, errors=())


@attack
def use_keys(given: Given) -> str:
    return f"has a key: {call({'x86_64': 248, 'aarch64': 217}, b'user', b'attack', b'x', 1, -2)}"


@attack
def use_perf(given: Given) -> str:
    attributes = struct.pack("=2I2Q", 1, 112, 0, 0).ljust(112, b"\0")  # the software clock, of the whole machine
    return f"counts: {call({'x86_64': 298, 'aarch64': 241}, attributes, -1, 0, -1, 0)}"


@attack
def load_module(given: Given) -> str:
    return reached({"x86_64": 313, "aarch64": 273}, -1, b"", 0, errors=(errno.EBADF, errno.ENOEXEC))


@attack
def load_kernel(given: Given) -> str:
    return reached({"x86_64": 246, "aarch64": 104}, 0, 99, 0, 0, errors=(errno.EINVAL, errno.EBUSY))


@attack
def restart_host(given: Given) -> str:
    return reached({"x86_64": 169, "aarch64": 142}, 0, 0, 0, 0, errors=(errno.EINVAL,))


@attack
def set_clock(given: Given) -> str:
    nonsense = struct.pack("=2q", 0, -1)
    return reached({"x86_64": 227, "aarch64": 112}, 0, nonsense, errors=(errno.EINVAL,))


@attack
def use_swap(given: Given) -> str:
    return reached({"x86_64": 167, "aarch64": 224}, b"/does/not/exist", 0, errors=(errno.ENOENT,))


@attack
def read_kernel_log(given: Given) -> str:
    return f"the log has {call({'x86_64': 103, 'aarch64': 116}, 10, 0, 0)} bytes"


@attack
def rename_host(given: Given) -> str:
    name = os.uname().nodename.encode()
    return f"set: {call({'x86_64': 170, 'aarch64': 161}, name, len(name))}"


@attack
def change_personality(given: Given) -> str:
    """READ_IMPLIES_EXEC: all memory becomes executable."""
    return f"was {call({'x86_64': 135, 'aarch64': 92}, 0x0400000)}"


# The host's settings


@attack
def write_settings(given: Given) -> str:
    for name in (
        "kernel/core_pattern",
        "kernel/hostname",
        "vm/drop_caches",
        "kernel/modprobe",
        "net/ipv4/ip_forward",
    ):
        try:
            os.close(os.open(f"/proc/sys/{name}", os.O_WRONLY))
        except OSError:
            continue
        return f"could set {name}"
    raise Contained("no setting can be opened for writing")


@attack
def open_kernel_files(given: Given) -> str:
    """Those that show or change the kernel's inside; something else may cover them."""
    proc = os.stat("/proc").st_dev
    for name, flags in (
        ("sysrq-trigger", os.O_WRONLY),
        ("kcore", os.O_RDONLY),
        ("kallsyms", os.O_RDONLY),
        ("kmsg", os.O_RDONLY),
        ("keys", os.O_RDONLY),
        ("timer_list", os.O_RDONLY),
    ):
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
    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"):
        try:
            os.close(os.open(f"{folder}/cgroup.procs", os.O_WRONLY))
        except OSError:
            continue
        return f"could move itself to {folder}"
    raise Contained("no control groups are in view")


# Rights


@attack
def regain_capabilities(given: Given) -> str:
    wanted = struct.pack("=6I", 1 << 21, 1 << 21, 0, 0, 0, 0)  # CAP_SYS_ADMIN
    call({"x86_64": 126, "aarch64": 91}, struct.pack("=Ii", 0x20080522, 0), wanted)
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
    place = os.path.join(given["own_folder"], "capable")
    with open(place, "w") as file:
        file.write("#!/bin/sh\n")
    os.setxattr(place, "security.capability", struct.pack("=5I", 0x02000001, 1 << 21, 1 << 21, 0, 0))
    return "made a program with capabilities"


@attack
def become_another_user(given: Given) -> str:
    os.setresuid(1000, 1000, 1000)
    return "is another user"


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


@attack
def open_terminal_of_host(given: Given) -> str:
    os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    return "has the terminal of who started it"


if __name__ == "__main__":
    main()
