"""The last steps before code of somebody else runs: nothing of them can be undone."""

from __future__ import annotations

import resource

from . import landlock, seccomp, system


def confine(program: bytes, *, open_files: int, shares_network: bool = False) -> None:
    """Limit this process and all that it starts. To be called with one thread, in the namespaces it shall have.

    `program` is of `seccomp.compiled`. The bounding set is dropped already.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    # 1, not 0: with that a crash does not start the host's program for core dumps either.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    system.drop_capabilities()
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    # Namespaces keep sockets and processes apart already, but for the network that is the host's own.
    landlock.restrict(["/"], ["/"], scoped=shares_network)
    seccomp.install(program)
