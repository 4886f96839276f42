"""Whom to believe about where a client comes from."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.adapters.websocket.addresses import ClientAddresses

TRUSTED = ClientAddresses([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", b"203.0.113.9", "192.0.2.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", b"203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", b"1.2.3.4, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", b"203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", b"10.0.0.3 ,10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", b"203.0.113.9, nonsense", "10.0.0.1"),
        ("10.0.0.1", b"203.0.113.9, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", b"\xff", "10.0.0.1"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("fd00::1", b"2001:DB8::1", "2001:db8::1"),
        ("fd00::1", b"203.0.113.9, fe80::1%eth0", "fd00::1"),
        ("fd00::1%eth0", b"203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", b"203.0.113.9:4711", "10.0.0.1"),
        ("10.0.0.1", b"[2001:db8::1]", "10.0.0.1"),
        ("10.0.0.1", b"203.0.113.9,", "10.0.0.1"),
        ("10.0.0.1", b"192.0.2.7, ::ffff:10.0.0.2", "192.0.2.7"),
        ("::ffff:10.0.0.1", b"192.0.2.7", "192.0.2.7"),
        ("192.0.2.1", b"10.0.0.2, 10.0.0.3", "192.0.2.1"),
    ],
)
def test_the_list_is_read_from_its_end_for_as_long_as_proxies_are_trusted(
    peer: str, forwarded: bytes | None, address: str
) -> None:
    assert TRUSTED.client((peer, 4711), forwarded) == address


@pytest.mark.parametrize("peer", [None, "", ()])
def test_a_connection_without_an_address_has_none(peer: tuple[object, ...] | str | None) -> None:
    assert TRUSTED.client(peer, b"203.0.113.9") == ""
