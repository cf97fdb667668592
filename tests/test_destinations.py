"""Where an instance may connect to: what the entries of a policy open, and what no entry does."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.base.errors import Forbidden, InvalidRequest
from aenv.isolation.egress import exchanges
from aenv.isolation.egress.destinations import Destination, EgressPolicy, unmapped

PUBLIC, PRIVATE = "203.0.113.10", "10.9.0.1"


class TestPolicy:
    @pytest.mark.parametrize(
        ("entry", "to", "address"),
        [
            ("x.com", "x.com:443", PUBLIC),
            ("x.com", "X.Com.:80", PUBLIC),
            ("X.COM.", "x.com:80", PUBLIC),
            ("x.com:443", "x.com:443", PUBLIC),
            ("*.x.com", "a.b.x.com:443", PUBLIC),
            ("*.x.com:443", "a.x.com:443", PUBLIC),
            ("*", "any.example:1", PUBLIC),
            ("*", f"{PUBLIC}:1", PUBLIC),
            ("*:443", "any.example:443", PUBLIC),
            ("bücher.example", "xn--bcher-kva.example:443", PUBLIC),
            ("xn--bcher-kva.example", "BÜCHER.example:443", PUBLIC),
            ("db.internal", "db.internal:5432", PRIVATE),
            ("10.0.0.0/8", f"{PRIVATE}:5432", PRIVATE),
            ("10.0.0.0/8:5432", f"{PRIVATE}:5432", PRIVATE),
            (PRIVATE, f"{PRIVATE}:5432", PRIVATE),
            (PRIVATE, f"[::ffff:{PRIVATE}]:5432", PRIVATE),
            ("fd00::/8", "[fd00::1]:80", "fd00::1"),
            ("[fd00::/8]:80", "[fd00::1]:80", "fd00::1"),
            ("2001:db8::1", "[2001:db8::1]:80", "2001:db8::1"),
        ],
    )
    def test_an_entry_opens_what_it_names(self, entry: str, to: str, address: str) -> None:
        assert is_allowed([entry], to, address)

    @pytest.mark.parametrize(
        ("entry", "to", "address"),
        [
            ("x.com:443", "x.com:80", PUBLIC),
            ("x.com", "y.com:443", PUBLIC),
            ("x.com", "evil-x.com:443", PUBLIC),
            ("x.com", "x.com.evil.com:443", PUBLIC),
            ("*.x.com", "x.com:443", PUBLIC),
            ("*.x.com", "evilx.com:443", PUBLIC),
            ("*.x.com", f"{PUBLIC}:443", PUBLIC),
            ("10.0.0.0/8", "11.0.0.1:443", "11.0.0.1"),
            ("10.0.0.0/8:443", "10.0.0.1:80", "10.0.0.1"),
        ],
    )
    def test_an_entry_opens_nothing_else(self, entry: str, to: str, address: str) -> None:
        assert not is_allowed([entry], to, address)

    @pytest.mark.parametrize("address", ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1"])
    def test_a_pattern_opens_no_private_address_but_an_exact_name_does(self, address: str) -> None:
        literal = Destination(ipaddress.ip_address(address), 443)
        assert not is_allowed(["*.corp.example"], "db.corp.example:443", address)
        assert not is_allowed(["*"], "db.corp.example:443", address)
        assert not is_allowed(["*"], str(literal), address)
        assert is_allowed(["db.corp.example"], "db.corp.example:443", address)
        assert is_allowed(["*.corp.example", address], "db.corp.example:443", address)
        assert is_allowed([address], str(literal), address)

    def test_a_network_does_not_let_names_be_looked_up(self) -> None:
        with pytest.raises(Forbidden):
            EgressPolicy.parse(["10.0.0.0/8"]).check(Destination.parse("secret.evil.example:80"))

    @pytest.mark.parametrize(
        "address",
        [
            *("127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "255.255.255.255"),
            *("::", "::1", "::7f00:1", "fe80::1", "fe80::1%2", "ff02::1", "::ffff:127.0.0.1"),
            *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
            *("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
        ],
    )
    def test_some_addresses_are_never_open_even_when_named(self, address: str) -> None:
        known = unmapped(ipaddress.ip_address(address))
        policy = EgressPolicy.parse(["*", "0.0.0.0/0", "::/0", "named.example", str(known).partition("%")[0]])
        with pytest.raises(Forbidden, match="never allowed"):
            policy.check(Destination("named.example", 80), ipaddress.ip_address(address))
        with pytest.raises(Forbidden, match="never allowed"):
            policy.check(Destination(known, 80), known)

    @pytest.mark.parametrize(
        "entry",
        [
            *(
                "",
                " ",
                "https://x.com",
                "x.com/path",
                "x.com:",
                "x.com:0",
                "x.com:65536",
                "x.com:http",
                "user@x.com",
            ),
            *("*.", "*.*.com", "a.*.com", "*x.com", "*.10.0.0.1", "x..com", ".x.com", "x com", "x.com\n", "127.1"),
            *(
                "0x7f.1",
                "2130706433",
                "10.0.0.1/8",
                "10.0.0.0/33",
                "[::1",
                "[::1]:",
                "[x.com]:80",
                "fe80::1%eth0/64",
            ),
            *("::ffff:10.0.0.0/104", "straße.example", "a\u200d.example", "127\u30020\u30020\u30021", "a" * 64),
        ],
    )
    def test_a_bad_entry_is_refused_by_name(self, entry: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            EgressPolicy.parse(["x.com", entry])
        assert f"bad egress entry {entry!r}" in refused.value.message

    def test_without_entries_nothing_is_open(self) -> None:
        assert not is_allowed([], "x.com:443", PUBLIC)
        assert not is_allowed([], f"{PUBLIC}:443", PUBLIC)


def is_allowed(entries: Sequence[str], to: str, address: str) -> bool:
    """Whether the lookup, if one is needed, and then the connection are allowed."""
    policy, destination = EgressPolicy.parse(entries), Destination.parse(to)
    try:
        if isinstance(destination.host, str):
            policy.check(destination)
        policy.check(destination, ipaddress.ip_address(address))
    except Forbidden:
        return False
    return True


@given(st.one_of(st.binary(max_size=200), st.builds(b"".join, st.lists(st.sampled_from(
    [b"GET", b"CONNECT", b" ", b"http://", b"x.com", b":", b"80", b"/", b"@", b"[::1]", b" HTTP/1.1", b"\r\n",
     b"\n", b"\r", b"\0", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Host: y", b"\xff", b"#", b"?"]
)))))  # fmt: skip
def test_any_head_is_understood_or_refused(head: bytes) -> None:
    try:
        request = exchanges.parse_request(head)
    except exchanges.Refusal as refused:
        text = str(refused)
        if not (text.isascii() and text.isprintable()):
            pytest.fail(f"{text!r} does not fit into a status line")
    else:
        forwarded = request.head.split(b"\r\n")
        assert b"\n" not in b"".join(forwarded) and b"\r" not in b"".join(forwarded)
        assert sum(line.lower().startswith(b"host:") for line in forwarded) == bool(request.head)
