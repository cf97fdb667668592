"""Attacks by network: to reach the host, its sockets, and the wire."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

from attempt import Contained, Given, attack, main

_TIMEOUT = 2.0


@attack
def reach_host_loopback(given: Given) -> str:
    for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "localhost"):
        try:
            with socket.create_connection((host, given["port"]), timeout=_TIMEOUT) as sock:
                return _greeted(sock, given, host)
        except OSError:
            continue
    raise Contained("no address of the host's loopback answers")


@attack
def reach_host_addresses(given: Given) -> str:
    """Those of its interfaces, and where a container would find its host."""
    for host in (*given["addresses"], "10.0.2.2", "172.17.0.1", "169.254.169.254"):
        try:
            with socket.create_connection((host, given["port"]), timeout=_TIMEOUT) as sock:
                return _greeted(sock, given, host)
        except OSError:
            continue
    raise Contained("no address of the host answers")


@attack
def reach_abstract_socket(given: Given) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_TIMEOUT)
        sock.connect(f"\0{given['abstract']}")
        return _greeted(sock, given, "the abstract socket")


@attack
def reach_unix_socket(given: Given) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_TIMEOUT)
        sock.connect(given["unix"])
        return _greeted(sock, given, "the socket of the host")


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


@attack
def make_raw_socket(given: Given) -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "has a raw socket"


@attack
def make_packet_socket(given: Given) -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
    return "has a packet socket"


@attack
def make_other_sockets(given: Given) -> str:
    """Families and protocols that ordinary programs do without: netfilter, uevents, ciphers, VMs, …"""
    for family, kind, protocol in (
        (socket.AF_NETLINK, socket.SOCK_RAW, 12),
        (socket.AF_NETLINK, socket.SOCK_RAW, 15),
        (38, socket.SOCK_SEQPACKET, 0),
        (40, socket.SOCK_STREAM, 0),
        (29, socket.SOCK_RAW, 1),
        (socket.AF_INET, socket.SOCK_STREAM, 132),
        (socket.AF_INET, socket.SOCK_STREAM, 262),
    ):
        try:
            socket.socket(family, kind, protocol).close()
        except OSError:
            continue
        return f"has a socket of family {family}, protocol {protocol}"
    raise Contained("none of these exists")


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
    if ctypes.CDLL(None, use_errno=True).connect(sock.fileno(), address, len(address)) < 0:
        raise OSError(ctypes.get_errno(), "cannot dissolve it")


if __name__ == "__main__":
    main()
