"""The system calls that code inside may make: an allow-list, and its compiled form for the kernel.

What ordinary programs need is allowed; what reaches other processes, the host's settings or much of the kernel
gives EPERM. Everything that neither list names does not exist (ENOSYS), so that programs which try the newest call
first fall back to an older one. clone3 is one of these on purpose: its flags lie in memory, which a filter cannot
read, while the libraries fall back to clone, whose flags are an argument. A call in the convention of another
machine (32-bit code on a 64-bit kernel) ends the process, since its numbers mean other calls; the x32 numbers of
x86_64 do not exist.

    allowed      ALLOWED, and CHECKED when the arguments are harmless (SO_LINGER succeeds, and is ignored)
    EPERM        REFUSED, and CHECKED otherwise
    ENOSYS       all else
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aenv.isolation.sandbox import syscalls, system

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
ABSENT = 0x00050000 | errno.ENOSYS
IGNORE = 0x00050000  # no error, and nothing is done
KILL = 0x80000000

# What the kernel calls the machine whose convention a call uses.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@dataclass(frozen=True, eq=False)
class Switch:
    """Decide by the lower 32 bits of one argument, under a mask.

    The upper half is not looked at, because the kernel does not either: each argument below is an int or shorter
    there (clone's flags are cut to 32 bits explicitly). To compare it would refuse what a program left in the
    register by chance, and catch nothing. An argument that the kernel takes whole needs more than this.
    """

    argument: int
    cases: Mapping[int, int | Switch]
    otherwise: int
    mask: int = 0xFFFFFFFF


def _names(text: str) -> frozenset[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return frozenset(" ".join(lines).split())


ALLOWED = _names("""
    # files that are open
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
    flock fsync fdatasync sync_file_range ftruncate fallocate fadvise64 readahead sendfile splice tee
    copy_file_range pipe pipe2 memfd_create
    # folders and names
    open openat openat2 creat stat lstat fstat newfstatat statx statfs fstatfs access faccessat faccessat2
    getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir rename renameat renameat2 link linkat unlink
    unlinkat symlink symlinkat readlink readlinkat truncate umask chmod fchmod fchmodat fchmodat2 chown fchown
    lchown fchownat utime utimes futimesat utimensat inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr
    lremovexattr fremovexattr setxattrat getxattrat listxattrat removexattrat
    # memory
    mmap mprotect munmap mremap msync mincore madvise brk mlock mlock2 munlock mlockall munlockall mseal
    pkey_mprotect pkey_alloc pkey_free map_shadow_stack membarrier mbind get_mempolicy set_mempolicy
    set_mempolicy_home_node
    # processes and threads; a pid namespace is the limit of whom they reach
    fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill pidfd_open pidfd_send_signal getpid
    getppid gettid getpgid setpgid getpgrp getsid setsid set_tid_address futex futex_waitv futex_wake futex_wait
    futex_requeue set_robust_list get_robust_list rseq arch_prctl restart_syscall getcpu
    # without these two a program that the host's administrator traces would crash; they do nothing else
    uretprobe uprobe rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
    rt_sigsuspend rt_tgsigqueueinfo sigaltstack pause alarm signalfd signalfd4 sched_yield sched_setparam
    sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval sched_setaffinity sched_getaffinity sched_setattr sched_getattr getpriority setpriority
    ioprio_set ioprio_get getrlimit setrlimit getrusage times
    # who one is; without capabilities there is no other user to become
    getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid setregid setresuid
    setresgid setfsuid setfsgid setgroups capget capset
    # to shut oneself in further
    seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
    # waiting and time
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd
    eventfd2 timerfd_create timerfd_settime timerfd_gettime timer_create timer_settime timer_gettime
    timer_getoverrun timer_delete getitimer setitimer nanosleep clock_nanosleep clock_gettime clock_getres
    gettimeofday time uname sysinfo getrandom
    # sockets that exist, and what is shared within an IPC namespace
    connect accept accept4 bind listen shutdown getsockname getpeername getsockopt sendto recvfrom
    sendmsg recvmsg sendmmsg recvmmsg shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd
    msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
""")

REFUSED = _names("""
    # another view of the file system, or files by handle, past every path
    mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsmount fsconfig fspick
    mount_setattr name_to_handle_at open_by_handle_at
    # other namespaces, and other processes' memory and files
    unshare setns ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
    migrate_pages move_pages
    # large parts of the kernel that ordinary programs do without; io_uring also makes calls that no filter sees
    bpf perf_event_open io_uring_setup io_uring_enter io_uring_register userfaultfd keyctl add_key request_key
    fanotify_init fanotify_mark modify_ldt remap_file_pages vmsplice memfd_secret
    # one pool of these (fs.aio-max-nr) serves the whole host
    io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel
    # they write back the files of all users; fsync does one's own
    sync syncfs
    # the host itself
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl
    quotactl_fd syslog settimeofday clock_settime adjtimex clock_adjtime iopl ioperm sethostname setdomainname
    vhangup sysfs ustat
""")

_KINDS_OF_FILE = {0: ALLOW, 0o100000: ALLOW, 0o010000: ALLOW, 0o140000: ALLOW}  # regular (twice), fifo, socket
# TCP and UDP by type, and no other protocol by number: SCTP, L2TP, MPTCP and the like are reached that way, and
# raw and packet sockets by type.
_PROTOCOL = Switch(2, {0: ALLOW, 6: ALLOW, 17: ALLOW}, REFUSE)
_INET = Switch(1, {1: _PROTOCOL, 2: _PROTOCOL}, REFUSE, mask=0xF)
_UNIX = Switch(1, {1: ALLOW, 2: ALLOW, 5: ALLOW}, REFUSE, mask=0xF)
_NETLINK = Switch(2, {0: ALLOW}, REFUSE)  # route: to list interfaces, which looking up a host's name does
_SOCKET = Switch(0, {1: _UNIX, 2: _INET, 10: _INET, 16: _NETLINK}, REFUSE)

_NEW = sum(system.NEW_NAMESPACES.values())
NO_NAMESPACES_BUT_PIDS = Switch(0, {0: ALLOW, system.NEW_NAMESPACES["pid"]: ALLOW}, REFUSE, mask=_NEW)
"""For who forks instances: each is the first process of a pid namespace."""
INTO_ROOMS = Switch(1, {system.NEW_NAMESPACES[kind]: ALLOW for kind in system.ROOM_NAMESPACES}, REFUSE)
"""And for `setns`: a kind of namespace that is named, and never a user namespace, with all its rights."""

CHECKED = {
    # no new namespaces; the flags come first on both machines
    "clone": Switch(0, {0: ALLOW}, REFUSE, mask=_NEW),
    "socket": _SOCKET,
    "socketpair": _SOCKET,
    # SO_LINGER succeeds and does nothing: closing a socket that lingers takes time, also of who was only passed it
    "setsockopt": Switch(1, {1: Switch(2, {13: IGNORE}, ALLOW)}, ALLOW),
    # TIOCSTI and TIOCLINUX type into a terminal, TIOCCONS takes the console, TIOCSETD loads a line discipline
    "ioctl": Switch(1, {0x5412: REFUSE, 0x541C: REFUSE, 0x541D: REFUSE, 0x5423: REFUSE}, ALLOW),
    # F_SETLEASE, F_NOTIFY, F_SETDELEG: a process that opens such a file waits for us, on the host too
    "fcntl": Switch(1, {1024: REFUSE, 1026: REFUSE, 1040: REFUSE}, ALLOW),
    # no devices, not even overlayfs's whiteouts. The mode is 16 bits wide in the kernel; the mask is within them.
    "mknod": Switch(1, _KINDS_OF_FILE, REFUSE, mask=0o170000),
    "mknodat": Switch(2, _KINDS_OF_FILE, REFUSE, mask=0o170000),
    # Linux, Linux as a 32-bit machine calls itself, without random addresses (debuggers), and the question
    "personality": Switch(0, {0: ALLOW, 8: ALLOW, 0x40000: ALLOW, 0xFFFFFFFF: ALLOW}, REFUSE),
    # one's own alone: a limit of its time ends also the first process of a namespace, which no signal ends
    "prlimit64": Switch(0, {0: ALLOW}, REFUSE),
    # PR_SET_MM, PR_SET_IO_FLUSHER, PR_SCHED_CORE: what a process looks like, and what neighbours may run beside it
    "prctl": Switch(0, {35: REFUSE, 57: REFUSE, 62: REFUSE}, ALLOW),
}


# What root needs besides, where it has capabilities. Package managers run their scripts in chroot("/"). Programs
# that make accounts stop when they may not speak to the audit, but not when the kernel has none (EPROTONOSUPPORT).
_NO_AUDIT = Switch(2, {0: ALLOW, 9: 0x00050000 | errno.EPROTONOSUPPORT}, REFUSE)
FOR_ROOT: Mapping[str, int | Switch] = {
    "chroot": ALLOW,
    "socket": Switch(0, {1: _UNIX, 2: _INET, 10: _INET, 16: _NO_AUDIT}, REFUSE),
}
# Where there is one id alone, all files have it and keep it: giving them away succeeds, and does nothing.
FOR_ROOT_ALONE = {**FOR_ROOT, **dict.fromkeys(("chown", "lchown", "fchown", "fchownat"), IGNORE)}


def compiled(machine: str | None = None, changes: Mapping[str, int | Switch] = MappingProxyType({})) -> bytes:
    """The filter for `machine`, or this one, as the kernel wants it. The same for every instance: make it once."""
    machine = machine or platform.machine()
    numbers = syscalls.numbers(machine)
    profile = _profile(numbers) | {numbers[name]: outcome for name, outcome in changes.items() if name in numbers}
    return _program(machine, _runs(profile, ABSENT))


def taking_back(changes: Iterable[str]) -> bytes:
    """The filter for a process that has that of `compiled` with changes for these names: both are the profile.

    The kernel takes the stricter of the two answers. It translates a filter for each process that installs it, and
    walks it once for each call there is: for the whole profile that was a tenth of the start of an instance.
    """
    numbers = syscalls.numbers()
    profile = _profile(numbers)
    taken = {numbers[name]: profile[numbers[name]] for name in changes if name in numbers}
    return _program(platform.machine(), _runs(taken, ALLOW))


def _program(machine: str, runs: list[tuple[int, int | Switch]]) -> bytes:
    code = _Code()
    code.search(runs)
    code.add(_LOAD, _NUMBER)
    code.jump(_EQUAL, ARCHITECTURES[machine], code.label, code.outcome(KILL))
    code.add(_LOAD, _ARCHITECTURE)
    return code.bytes()


def install(program: bytes) -> None:
    """Filter this process, all its threads, and whatever it starts, for good. Set no_new_privs before."""
    words = _Program(len(program) // 8, program)
    refuser = system.syscall(_SECCOMP, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(words))
    if refuser:  # with "all threads", the kernel names the one that has a filter of its own
        raise OSError(
            errno.EBUSY, f"{os.strerror(errno.EBUSY).lower()}: thread {refuser} has another seccomp filter"
        )


# Looked up here, in the zygote: what is touched first after a fork costs page faults.
_SECCOMP = syscalls.NUMBERS.get(platform.machine(), {}).get("seccomp", -1)
_SET_MODE_FILTER = 1
_ALL_THREADS = 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _profile(numbers: Mapping[str, int]) -> dict[int, int | Switch]:
    """What happens to each call, by number."""
    by_number: dict[int, int | Switch] = {number: CHECKED.get(name, ABSENT) for name, number in numbers.items()}
    by_number |= {number: ALLOW for name, number in numbers.items() if name in ALLOWED}
    by_number |= {number: REFUSE for name, number in numbers.items() if name in REFUSED}
    return by_number


def _runs(by_number: Mapping[int, int | Switch], otherwise: int) -> list[tuple[int, int | Switch]]:
    """Where each run of numbers with the same outcome begins, in order, from 0; the last goes on for ever."""
    runs: list[tuple[int, int | Switch]] = []
    for number in range(max(by_number) + 2):
        outcome = by_number.get(number, otherwise)
        if not runs or runs[-1][1] != outcome:
            runs.append((number, outcome))
    return runs


# Classic BPF: operations, and where the words that they load lie in the kernel's `struct seccomp_data`.
_LOAD, _AND, _GO, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


class _Code:
    """A program, written from its end to its start, because jumps only lead forward.

    A label is the number of instructions from there to the end. A jump spans at most 255; where that is not
    enough, the target is repeated (an outcome) or a plain jump, which spans any distance, is put in between.
    """

    def __init__(self) -> None:
        self._instructions: list[bytes] = []
        self._labels: dict[int | Switch, int] = {}

    def bytes(self) -> bytes:
        return b"".join(reversed(self._instructions))

    @property
    def label(self) -> int:
        return len(self._instructions)

    def add(self, operation: int, value: int, yes: int = 0, no: int = 0) -> int:
        self._instructions.append(struct.pack("=HBBI", operation, yes, no, value))
        return self.label

    def jump(self, operation: int, value: int, yes: int, no: int) -> int:
        yes, no = self._near(yes), self._near(no)
        return self.add(operation, value, self.label - yes, self.label - no)

    def outcome(self, wanted: int | Switch) -> int:
        """Where this is returned or decided: a place near enough that exists already, or a new one."""
        if wanted not in self._labels or not self._is_near(self._labels[wanted]):
            self._labels[wanted] = self.add(_RETURN, wanted) if isinstance(wanted, int) else self._switch(wanted)
        return self._labels[wanted]

    def search(self, runs: list[tuple[int, int | Switch]]) -> int:
        """A binary search. The kernel also walks it once for each number, to remember what is always allowed."""
        if len(runs) == 1:
            return self.outcome(runs[0][1])
        middle = len(runs) // 2
        above = self.search(runs[middle:])
        below = self.search(runs[:middle])
        return self.jump(_AT_LEAST, runs[middle][0], above, below)

    def _switch(self, switch: Switch) -> int:
        rest = self.outcome(switch.otherwise)
        for value, case in switch.cases.items():
            rest = self.jump(_EQUAL, value, self.outcome(case), rest)
        if switch.mask != 0xFFFFFFFF:
            self.add(_AND, switch.mask)
        return self.add(_LOAD, _ARGUMENTS + 8 * switch.argument)  # the lower half: both machines are little-endian

    def _near(self, label: int) -> int:
        return label if self._is_near(label) else self.add(_GO, self.label - label)

    def _is_near(self, label: int) -> bool:
        return self.label - label < 250  # not 255: a jump has two targets, and each may add an instruction
