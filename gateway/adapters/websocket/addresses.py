"""Where a client comes from, seen through proxies."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.strip())
    except ValueError:
        return None


def client_address(peer: str, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> str:
    """Tell the client's address.

    Each proxy appends the address it was called from, so the list is read from its end for as long as the one who
    appended is trusted; what comes before could have been written by anybody.

    Args:
        peer: address of the other end of the connection.
        forwarded_for: the ``X-Forwarded-For`` headers in order, each with one or more addresses.
        trusted: proxies that are believed.

    Returns:
        An address; *peer* if it is not a trusted proxy, or if nothing it says can be read.
    """
    current = peer
    hops = [hop for header in forwarded_for for hop in header.split(",")]
    for hop in reversed(hops):
        address = _parse(current)
        if address is None or not any(address in network for network in trusted):
            return current
        appended = _parse(hop)
        if appended is None:
            return current
        current = str(appended)
    return current
