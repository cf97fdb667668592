"""The list of attacks: what each tries, and by what it is contained. docs/isolation.md shows this table.

An attack with a program is run inside, as a tool and as a command, and by the author's code when it is loaded; one
of the family "author" by that alone. The others are watched from outside (`watched.py`), or are told by tests of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """One line of the table."""

    family: str
    name: str
    tries: str
    contained_by: str
    has_program: bool = True
    """Whether the family's program has a function of this name."""
    for_user: bool = True
    """Whether it is contained for an ordinary user without control groups too; else that is said, and where."""


# Each row: its name, what it tries, what contains it. A line that is indented twice goes on with the one before.
_WITH_PROGRAM = """
files
    read_shadow | read the host's password hashes | mount namespace: the host's /etc is not there
    read_home_folder | read a file of a home folder | mount namespace
    read_gateway_store | read the gateway's home: store, tokens, other instances' state | mount namespace
    read_other_instance | find another instance's file or variable in any /proc/*/ | pid and mount namespaces
    climb_out_by_proc | leave by /proc/*/root and /proc/*/cwd | pid namespace, landlock
    climb_out_by_dots | leave by many `..` | pivot_root: above `/` is nothing
    read_private_system_files | read a file of /usr that only root may read | system folders are nobody's inside
    change_system_files | write to a file of /usr | read-only binds
    change_environment | write to the environment's code, which others run | read-only bind
    change_interpreter | write to the interpreter's library | read-only bind
    change_interpreter_by_proc | change the interpreter through /proc/self/exe | it runs from a read-only mount
    lease_files | make the host wait by a lease on a file | seccomp: no F_SETLEASE
    mark_as_overlay | redirect a folder by overlay attributes | no capabilities
    open_by_handle | open files by handle, past every path | seccomp
processes
    see_host_processes | find a process of the host | pid namespace
    signal_host_process | signal a process of the host by its number | pid namespace
    stop_host_process_by_number | signal 600 numbers around it | pid namespace
    trace_a_process | ptrace | seccomp
    read_memory | process_vm_readv | seccomp
    write_memory | process_vm_writev | seccomp
    open_memory_of_others | /proc/*/mem of the runtime, or of a command | landlock domains, dumpable
    raise_own_priority | real-time scheduling | no capabilities
    enter_namespaces_of_others | setns | seccomp
kernel
    mount_a_file_system | mount | seccomp, no capabilities
    mount_proc_again | mount a /proc without masks | seccomp, no capabilities
    bind_mount | bind mount | seccomp, no capabilities
    remount_writable | remount | seccomp, no capabilities
    mount_by_new_calls | fsopen | seccomp, no capabilities
    clone_a_mount | open_tree | seccomp, no capabilities
    unmount | umount what covers parts of /proc | seccomp, no capabilities
    pivot_the_root | pivot_root | seccomp, no capabilities
    change_root | chroot | seccomp, no capabilities
    make_device | mknod of the memory and a disk | seccomp, landlock, nodev
    leave_namespaces | unshare, every kind | seccomp
    clone_into_namespaces | clone with namespace flags | seccomp looks at the flags
    clone3_into_namespaces | clone3, whose flags no filter sees | seccomp: it does not exist
    use_bpf | bpf | seccomp
    use_io_uring | io_uring | seccomp
    use_userfaultfd | userfaultfd | seccomp
    use_keys | add_key | seccomp
    use_perf | perf_event_open | seccomp
    load_module | finit_module | seccomp, no capabilities
    load_kernel | kexec_load | seccomp, no capabilities
    restart_host | reboot | seccomp, no capabilities
    set_clock | clock_settime | seccomp, no capabilities
    use_swap | swapon | seccomp, no capabilities
    read_kernel_log | syslog | seccomp
    rename_host | sethostname | seccomp, uts namespace
    change_personality | personality: all memory executable | seccomp looks at the argument
    write_settings | write core_pattern, modprobe and others in /proc/sys | read-only /proc/sys
    open_kernel_files | sysrq-trigger, kcore, kmsg, addresses in kallsyms | covered in /proc, user namespace
    write_cgroups | move to a control group without limits | no cgroup file system in view
    regain_capabilities | capset | no capabilities, no_new_privs
    use_setuid_program | run a setuid program of the image | nosuid mounts, no_new_privs
    make_setuid_program | make a program with capabilities | no capabilities
    become_another_user | setresuid | no capabilities
    type_into_terminal | TIOCSTI | seccomp looks at the argument
    open_terminal_of_host | /dev/tty of who started the gateway | a session of its own
network
    reach_host_loopback | a server on the host's 127.0.0.1 and ::1 | network namespace
    reach_host_addresses | the host by its other addresses, metadata services | network namespace
    reach_abstract_socket | an abstract unix socket of the host | network namespace; landlock with `full`
    reach_unix_socket | a unix socket of the host by its path | mount namespace
    reuse_inherited_sockets | connect(AF_UNSPEC), then connect, on every open socket | no TCP socket is passed in
    make_raw_socket | raw socket | seccomp, no capabilities
    make_packet_socket | packet socket | seccomp, no capabilities
    make_other_sockets | netfilter, uevent, AF_ALG, AF_VSOCK, CAN, SCTP, MPTCP | seccomp looks at the arguments
    change_interfaces | set up an interface | no capabilities
    reach_host_by_egress | the host through the way out to listed hosts | the proxy never dials the host
descriptors
    use_open_files | files and folders that were left open | none is left open
    use_peer_process | signal, enter or rob the gateway by SO_PEERPIDFD | seccomp, pid namespace, landlock
author
    capabilities | have rights that an instance has not | the zygote uses none
    get_all_rights | enter or make a user namespace, with all its rights |
        seccomp; two capabilities are the most that it can use
    change_our_code | make read-only folders writable, and rewrite what the gateway starts for the next command |
        no capabilities; mounts are locked by a second user namespace
    hold_a_socket_that_others_read | speak to the gateway in the place of our own processes |
        its one socket leads to the stager, which checks what it says
    hold_a_listener | keep a listener that the gateway accepts from | the stager makes it, and hands it on
    end_the_stager | stop or kill the process that the gateway believes | it is the first of its pid namespace
    look_into_the_stager | read its memory, descriptors and namespaces |
        it was started in another one, and is not dumpable
    mount_with_all_rights | mount with the rights that a fork needs to enter its room |
        seccomp: no mount, whatever the rights
resources
    fork_bomb | more processes than allowed | pids group
    memory_bomb | more memory than allowed | memory group
    disk_fill | more bytes on disk than allowed | size-limited tmpfs
    disk_fill_in_shared_memory | the same in /dev/shm | size-limited tmpfs
    inode_fill | more files than allowed | limited inodes of the tmpfs
    take_all_terminals | all pseudo-terminals of the host | limit of the instance's devpts
    open_files_without_end | more open files than allowed | RLIMIT_NOFILE
"""
_WATCHED = """
files
    links_in_the_workspace | links, also at the wrong moment, against read, put, list and remove |
        no step of a path follows a link
    log_tricks | a log that is a link, a fifo, a folder, or very long | only regular files, without waiting
    mounts_over_files | a file of the host laid over the log, or over a folder of the workspace, by a mount |
        no step of a path crosses a mount
    variables_tricks | the same with the file of the variables that commands get | read as confined as the command
processes
    kill_everything | kill(-1) | pid namespace
    kill_own_runtime | an instance that kills its runtime | it ends, with a reason; nothing is left
    stop_itself | an instance that stops itself, or ignores everything | killed from outside
    dump_core | a crash that writes a core | RLIMIT_CORE
kernel
    rights_left_by_run | leave a file with capabilities or setuid bits on the host by a `RUN` |
        both are taken away when the command has ended
    setuid_in_storage | leave a setuid program in the storage of a service |
        kept files have ids of their own on the disk; nosuid mounts
network
    abstract_socket_with_full_network | abstract sockets when the network is shared | landlock
descriptors
    leaked_descriptors | anything open but what is meant, as a tool and by exec |
        closed before the environment's code runs
resources
    log_fill | endless printing | the log is on the instance's own tmpfs
    cpu_spin | take the neighbours' CPU | cpu group
    take_all_watches | all inotify instances of the gateway's user | limit of the user namespace
    descriptors_in_flight | fill what descriptors in flight are counted by |
        gateway and zygotes have room above the instances' limit
    kernel_memory | memory in buffers of TCP, UDP and unix sockets, and of pipes |
        memory group, a limit for sockets
    lower_oom_score | be ended later than others when memory is short | read-only /proc
    fill_storage | more in the storage of a service than its size | a file system of that size
gateway
    use_token_for_another | reach another instance with this one's token | tokens name one instance
    endless_response | an answer without end, or with a huge head | streamed, bounded, closed
    slow_response | an answer that never comes; a client that never reads | others are not held up
    open_by_seen_id | call an instance by an id that was seen on the host |
        the data path demands the token of an account's instance
    find_ids_on_host | find ids and tokens in /proc, in the gateway's folders and logs |
        folders of mode 0700, no argument has them, logs cut ids
    act_as_viewer | change something, or call a tool, with a viewer's token |
        roles; no token and no id that opens is given to viewers
    take_built_in_name | push another environment under a built-in one's name | such names are the administrators'
    name_folder_of_host | have a folder of the host shown to a pushed environment |
        only listed folders, never by a variable of the gateway
    call_from_web_page | create and call instances from a page of another port or site |
        Origin and Sec-Fetch-Site; forms are refused
    nonsense_when_it_starts | a ready line that cannot be recorded or shown | one instance fails alone
    pass_a_slow_descriptor | a descriptor that takes long to close, on the connection to the gateway |
        SO_PASSRIGHTS, and seccomp ignores SO_LINGER
    smuggle_replies | two replies in one, two lengths, cookies and tokens for the gateway's origin |
        one reply, its own headers only
    flood_the_gateway | a history of 56 MB, 40,000 labels, bodies and replies that take long to read |
        bounds, read off the event loop
    fill_the_lookups | names whose server never answers, until all threads wait for them |
        each lookup has a thread of its own, and an instance two at a time
    take_all_epoll_watches | all epoll watches of the gateway's user |
        root: users of their own; else a loop that waits with poll for what epoll refuses, and instances that
        refuse a connection rather than end
"""

# Contained only by what an ordinary user has not.
_BY_GROUPS = ("fork_bomb", "memory_bomb", "cpu_spin", "kernel_memory", "fill_storage")


def _read(text: str, *, has_program: bool) -> Iterator[Attack]:
    family = ""
    for line in text.replace("\n        ", " ").strip().splitlines():
        if not line.startswith(" "):
            family = line
            continue
        name, tries, contained_by = line.strip().split(" | ")
        yield Attack(family, name, tries, contained_by, has_program, name not in _BY_GROUPS)


ATTACKS = (*_read(_WITH_PROGRAM, has_program=True), *_read(_WATCHED, has_program=False))


def names(family: str) -> list[str]:
    """The attacks of a family that have a program."""
    return [attack.name for attack in ATTACKS if attack.family == family and attack.has_program]
