"""Attacks by network: to reach the host, its sockets, and the wire."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from attempt import Contained, Given, attack, attacks, checked, first, libc, main

_TIMEOUT = 2.0


@attack
def reach_host_loopback(given: Given) -> str:
    return _reach(given, "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "localhost")


@attack
def reach_host_addresses(given: Given) -> str:
    """Those of its interfaces, and where a container would find its host."""
    return _reach(given, *given["addresses"], "10.0.2.2", "172.17.0.1", "169.254.169.254")


def _reach(given: Given, *hosts: str) -> str:
    def connect(host: str) -> None:
        with socket.create_connection((host, given["port"]), timeout=_TIMEOUT) as sock:
            _greeted(sock, given, host)

    return f"reached the host by {first(hosts, connect, 'no address of the host answers')}"


def _connect_to(path: str, given: Given) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_TIMEOUT)
        sock.connect(path)
        return _greeted(sock, given, repr(path))


@attack
def reuse_inherited_sockets(given: Given) -> str:
    """A socket keeps the network it was made in: dissolve what it is connected to, and connect it anew."""
    for number in os.listdir("/proc/self/fd"):
        try:
            inherited = socket.socket(fileno=os.dup(int(number)))
        except OSError:
            continue
        with inherited:
            for dissolve in (True, False):
                try:
                    inherited.settimeout(_TIMEOUT)
                    if dissolve:
                        _dissolve(inherited)
                    inherited.connect(("127.0.0.1", given["port"]))
                    return _greeted(inherited, given, f"descriptor {number}")
                except (OSError, TypeError):  # a unix socket's address is text
                    continue
    raise Contained("no inherited socket leads out")


attacks(
    {
        "reach_abstract_socket": ("{}", lambda given: _connect_to(f"\0{given['abstract']}", given)),
        "reach_unix_socket": ("{}", lambda given: _connect_to(given["unix"], given)),
        "make_raw_socket": (
            "has a raw socket",
            lambda given: _make((socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
        ),
        "make_packet_socket": (
            "has a packet socket",
            lambda given: _make((socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))),
        ),
    }
)


@attack
def make_other_sockets(given: Given) -> str:
    """Families and protocols that ordinary programs do without: netfilter, uevents, ciphers, VMs, …"""
    kinds = (
        (socket.AF_NETLINK, socket.SOCK_RAW, 12),
        (socket.AF_NETLINK, socket.SOCK_RAW, 15),
        (38, socket.SOCK_SEQPACKET, 0),
        (40, socket.SOCK_STREAM, 0),
        (29, socket.SOCK_RAW, 1),
        (socket.AF_INET, socket.SOCK_STREAM, 132),
        (socket.AF_INET, socket.SOCK_STREAM, 262),
    )
    family, _, protocol = first(kinds, _make, "none of these exists")
    return f"has a socket of family {family}, protocol {protocol}"


def _make(kind: tuple[int, int, int]) -> None:
    socket.socket(*kind).close()


@attack
def change_interfaces(given: Given) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 1 | 64))  # SIOCSIFFLAGS: up
    return "set up an interface"


@attack
def reach_host_by_egress(given: Given) -> str:
    """Through the way out that an instance with a list of hosts has."""
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "127.1"):
        with socket.create_connection(("127.0.0.1", given["proxy"]), timeout=_TIMEOUT) as sock:
            sock.sendall(f"CONNECT {host}:{given['port']} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            if sock.recv(4096).split(b" ")[1:2] == [b"200"]:
                return f"the proxy connects to {host}"
    raise Contained("the proxy refuses every name of the host")


def _greeted(sock: socket.socket, given: Given, where: str) -> str:
    """The host's server says the token: a server of our own on the same port does not."""
    if given["token"].encode() not in sock.recv(4096):
        raise OSError("another server answers")
    return f"reached the host by {where}"


def _dissolve(sock: socket.socket) -> None:
    address = struct.pack("=H14x", socket.AF_UNSPEC)
    checked(libc.connect(sock.fileno(), address, len(address)))


if __name__ == "__main__":
    main()
