"""Destinations: where an instance whose network policy is a list of hosts may connect to.

  * A name may be looked up only when an entry allows it: a lookup is a message to the servers of that domain.
  * The host itself, link-local addresses, multicast and the metadata services of clouds are never open.
  * Private addresses are open to an entry that names the address or its network, and to an entry that is exactly
    the name asked for: who writes 'db.internal' means that service, wherever it lives, and should not have to open
    its network besides. A pattern ('*.domain', '*') leads to public addresses only: an attacker who can put a name
    below the domain into the DNS could otherwise point it at the inner network.
  * A network entry is for addresses; a name that leads there needs an entry of its own.

Pure but for `is_own`, which asks the kernel. Not here: connections (`server.py`).
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base.errors import Forbidden, InvalidRequest

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Destination:
    """Where a program wants to go: a name in its one spelling, or an address; and a port."""

    host: str | IPAddress
    port: int

    @classmethod
    def parse(cls, authority: str, *, default_port: int | None = None) -> Destination:
        """From "host:port" or "[address]:port". ValueError for all else, user names included."""
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            raise ValueError("it is not 'host:port'")
        port = _port(match["port"]) or default_port
        if port is None:
            raise ValueError("it has no port")
        if match["bracketed"]:
            return cls(unmapped(ipaddress.IPv6Address(match["bracketed"])), port)
        return cls(_host(match["host"]), port)

    def __str__(self) -> str:
        return f"{self.authority}:{self.port}"

    @property
    def authority(self) -> str:
        """The host, as it stands before a port."""
        return f"[{self.host}]" if isinstance(self.host, ipaddress.IPv6Address) else str(self.host)

    def never(self) -> Forbidden:
        """The error for what no entry can open."""
        return Forbidden(
            f"egress to '{self}' is never allowed: it leads to the host itself, or to a link-local, "
            "multicast or metadata address"
        )


@dataclass(frozen=True)
class Rule:
    """One entry of a policy: a name ("x.com"), all names below one (".x.com"), all ("*"), or a network."""

    name: str = ""
    network: IPNetwork | None = None
    port: int | None = None

    @classmethod
    def parse(cls, entry: str) -> Rule:
        """ValueError, with the reason, when it is none of the forms."""
        if not isinstance(entry, str):
            raise ValueError("it is not text")
        if entry.count(":") > 1 and not entry.startswith("["):  # an address of IPv6; with a port it has brackets
            return cls(network=_network(entry))
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError("it has no host")
        port, host = _port(match["port"]), match["bracketed"] or match["host"]
        if match["bracketed"] or "/" in host:
            return cls(network=_network(host), port=port)
        if host == "*":
            return cls("*", port=port)
        known = _host(host.removeprefix("*."))
        if isinstance(known, str):
            return cls(f".{known}" if host.startswith("*.") else known, port=port)
        if host.startswith("*."):
            raise ValueError("nothing is below an address")
        return cls(network=ipaddress.ip_network(known), port=port)

    def covers(self, host: str | IPAddress) -> bool:
        """Whether it is a pattern that `host` fits."""
        return self.name == "*" or (isinstance(host, str) and self.name[:1] == "." and host.endswith(self.name))


@dataclass(frozen=True)
class EgressPolicy:
    rules: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, hosts: Sequence[str]) -> EgressPolicy:
        """From "host", "*.domain", "*", "10.0.0.0/8", "::1", each also with a port: "host:443", "[::1]:80"."""
        rules = []
        for entry in hosts:
            try:
                rules.append(Rule.parse(entry))
            except ValueError as error:
                forms = "'host', 'host:443', '*.domain' or '10.0.0.0/8'"
                raise InvalidRequest(f"bad egress entry {entry!r}: {error}; write it as {forms}") from None
        return cls(tuple(rules))

    def check(self, to: Destination, address: IPAddress | None = None) -> None:
        """Forbidden, with the setting that would allow it, unless `to` may be reached at `address`.

        Without an address: unless the name may be looked up.
        """
        rules = [rule for rule in self.rules if rule.port in (None, to.port)]
        exact = any(rule.name == to.host for rule in rules)
        fits = exact or any(rule.covers(to.host) for rule in rules)
        reason = ""
        if address is None:
            is_allowed = fits
        elif _is_within(_NEVER, address):
            raise to.never()
        else:
            is_public = not _is_within(_PRIVATE, address)
            listed = any(rule.network is not None and address in rule.network for rule in rules)
            if isinstance(to.host, str):
                is_allowed = fits and (is_public or exact or listed)
                reason = ", since it leads to a private address, which a pattern does not open" if fits else ""
            else:
                is_allowed = listed or (fits and is_public)
        if not is_allowed:
            add = f'add it to deployConfig.network: {{"egress": ["{to}"]}}'
            raise Forbidden(f"egress to '{to}' is not allowed{reason}; {add}")


def unmapped(address: IPAddress) -> IPAddress:
    """An IPv4 address that is dressed as one of IPv6, without the dress."""
    return getattr(address, "ipv4_mapped", None) or address


def is_own(address: IPAddress) -> bool:
    """Whether the host itself answers at an address: what its routes say of it, whatever interface has it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    attribute = struct.pack("=HH", 4 + len(address.packed), _RTA_DST) + address.packed
    route = struct.pack("=BBBBBBBBI", family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    size = 16 + len(route) + len(attribute)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.sendto(struct.pack("=IHHII", size, _RTM_GETROUTE, _NLM_F_REQUEST, 0, 0) + route + attribute, (0, 0))
        answer = kernel.recv(4096)
    # No route at all is an error message; the connection will fail with the same reason.
    (kind,) = struct.unpack_from("=H", answer, 4)
    return bool(kind != _NLMSG_ERROR and answer[16 + 7] != _RTN_UNICAST)


_RTM_GETROUTE, _NLM_F_REQUEST, _NLMSG_ERROR, _RTA_DST, _RTN_UNICAST = 26, 1, 2, 1, 1

_LABEL = "[a-z0-9_][a-z0-9_-]{0,62}"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_AUTHORITY = re.compile(r"(\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^][:/?#@\\]+))(:(?P<port>[0-9]+))?")
_ENTRY = re.compile(r"(\[(?P<bracketed>[0-9A-Fa-f:./]+)\]|(?P<host>[^][:?#@\\]+))(:(?P<port>[0-9]+))?")


def _host(text: str) -> str | IPAddress:
    """The one spelling of a name, or the address that it spells."""
    if not text.isascii():
        normal = unicodedata.normalize("NFC", text).lower()
        text = normal.encode("idna").decode()
        # Python's IDNA is of 2003: it takes 'ß' for 'ss', which is another domain's name since 2008.
        if text.encode().decode("idna") != normal:
            raise ValueError("it has letters with more than one meaning; write the name in ASCII, as 'xn--…'")
    name = text.lower().removesuffix(".")
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError("it is not a host name")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):  # '127.1' and '0x7f000001' are addresses for resolvers
        return ipaddress.IPv4Address(name)
    return name


def _network(text: str) -> IPNetwork:
    network = ipaddress.ip_network(text)
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("it is a network of IPv4")
    return network


def _port(digits: str | None) -> int | None:
    if digits is None:
        return None
    if len(digits) > 5 or not 0 < int(digits) < 1 << 16:
        raise ValueError("its port is not one of 1 to 65535")
    return int(digits)


def _is_within(networks: Sequence[IPNetwork], address: IPAddress) -> bool:
    return any(form in network for form in _forms(address) for network in networks)


def _forms(address: IPAddress) -> Iterator[IPAddress]:
    """An address, and those of IPv4 that a translator on the way would make of it."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            yield address.ipv4_mapped
        if address.sixtofour:
            yield address.sixtofour
        if address.teredo:
            yield from address.teredo
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


METADATA = (
    *("169.254.0.0/16", "fe80::/10"),
    # Those that are not link-local.
    *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128"),
)
"""Where clouds have metadata services, which give the machine's own credentials to every caller."""
# Written out: what `ipaddress` calls private changed between versions of Python.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER: tuple[IPNetwork, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/96", "ff00::/8"),  # ::/96 has ::, ::1 and an old dress for IPv4
        *METADATA,
    )
)
_PRIVATE: tuple[IPNetwork, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15"),
        *("fc00::/7", "fec0::/10", "64:ff9b:1::/48"),
    )
)
