"""A host with something to find: a secret file, a process, and servers. All of it is thrown away.

Everything belongs to the user that runs the attacks, so that isolation alone is in the way.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Programs of most systems that are root's and setuid; the first that is there serves.
_SETUID = ("su", "passwd", "chsh", "newgrp", "mount", "umount", "gpasswd", "sudo")
_SYSTEM_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/lib", "/usr/share", "/usr/local")
_MOST_ENTRIES = 100_000


@contextlib.contextmanager
def ground(folder: Path, token: str) -> Iterator[dict[str, Any]]:
    """What the attack programs are told of the host. `folder` must be one that only this user may enter."""
    secret = folder / "secret"
    secret.write_text(token)
    secret.chmod(0o600)
    name = f"victim-{token[-8:]}"
    with victim(name) as process, servers(token, folder / "unix") as ports:
        yield {
            "token": token,
            "secret": str(secret),
            "victim": process.pid,
            "victim_name": name,
            "proxy": 3128,
            "open_files": 4097,
            "system_file": "/usr/lib/os-release",
            "private": closed_file(),
            "setuid": setuid_program(),
            **ports,
        }


@contextlib.contextmanager
def victim(name: str, become: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A process with this name among its arguments; `become` runs it as another user."""
    with subprocess.Popen(
        [*become, "sh", "-c", "echo up; read line", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def servers(token: str, path: Path) -> Iterator[dict[str, Any]]:
    """Servers that greet their clients with the token: on every address, by an abstract name, and by a path."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(_tcp_server())
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{token}")
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(path))
        path.chmod(0o777)
        stack.callback(path.unlink)
        for server in (tcp, abstract, unix):
            server.listen()
            thread = threading.Thread(target=_greet, args=(server, token.encode()), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown, socket.SHUT_RDWR)
        addresses = [found[4][0] for found in _own_addresses()]
        yield {
            "port": tcp.getsockname()[1],
            "abstract": token,
            "unix": str(path),
            "addresses": sorted({*addresses, "127.0.0.1"}),
        }


def closed_file() -> str | None:
    """A file of the system that only root may read, if there is one."""
    seen = 0
    for top in _SYSTEM_FOLDERS:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):  # it is gone since
                    found = os.lstat(path)
                    if stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o044:
                        return path
            if (seen := seen + len(names)) > _MOST_ENTRIES:
                return None
    return None


def setuid_program() -> str | None:
    """A program of the system that runs with root's rights, if there is one."""
    for name in _SETUID:
        with contextlib.suppress(OSError):
            found = os.stat(f"/usr/bin/{name}")
            if found.st_mode & stat.S_ISUID and found.st_uid == 0:
                return f"/usr/bin/{name}"
    return None


def _tcp_server() -> socket.socket:
    try:
        return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError:  # a host without IPv6
        return socket.create_server(("0.0.0.0", 0))


def _own_addresses() -> list[Any]:
    with contextlib.suppress(OSError):  # a host whose name leads nowhere
        return socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    return []


def _greet(server: socket.socket, token: bytes) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            connection, peer = server.accept()
            with connection, contextlib.suppress(OSError):
                # Clients of this host alone: the word is for attacks, and not for the network.
                if server.family == socket.AF_UNIX or peer[0] == connection.getsockname()[0]:
                    connection.sendall(token)
