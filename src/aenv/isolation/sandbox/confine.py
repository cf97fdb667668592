"""The last steps before code runs that is not ours: nothing of them can be undone."""

from __future__ import annotations

import resource
from collections.abc import Sequence

from . import landlock, seccomp, system

# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap: of the
# capabilities of a container's root in Docker those that reach no further than the files, processes and ports of
# its own user namespace. Without net_raw, mknod and audit_write.
CONTAINER_RIGHTS = (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31)


def confine(
    program: bytes,
    rights: Sequence[int] = (),
    *,
    open_files: int,
    shares_network: bool = False,
    is_scoped: bool = False,
) -> None:
    """Limit this process and all that it starts. To be called with one thread, in the namespaces it shall have.

    `program` is of `seccomp.compiled`. The bounding set is dropped already, but for `rights`: capabilities that
    this process keeps, and what it starts as id 0. `is_scoped` after `landlock.scope`.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    # 1, not 0: with that a crash does not start the host's program for core dumps either.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    system.permit_capabilities(*rights, in_use=True)
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    # Namespaces keep sockets and processes apart already, but for the network that is the host's own.
    # Rules on files above a scope that has none would make the kernel refuse every move between folders (EXDEV):
    # such a process has the scope alone, and the mount namespace.
    if not (is_scoped and landlock.has_scopes()):
        landlock.restrict([], ["/"], scoped=shares_network)  # what can be changed can be read
    seccomp.install(program)
