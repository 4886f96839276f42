"""Where a client comes from, seen through proxies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

_REMEMBERED: Final = 4096
"""Addresses of which is remembered what they are: reading one takes as long as the rest of an upgrade's headers, and
in a storm the same few proxies and offices come again and again."""

IPV6_PREFIX: Final = 64
"""Leading bits of an IPv6 address that count as one, as for limits: nobody is given fewer addresses (RFC 6177)."""

_LONGEST: Final = 64
"""Characters of an address with blanks around it: more than any has. What clients make up must not be remembered."""


@lru_cache(_REMEMBERED)
def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    # How a listener for both families sees a client of the older one.
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


@lru_cache(_REMEMBERED)
def _network(address: str) -> str:
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed), IPV6_PREFIX), strict=False))
    return str(parsed or address)


def network_of(address: str) -> str:
    """Tell as whose a connection counts: of IPv6 the network that one subscriber has, else the address."""
    return _network(address) if ":" in address else address


class ClientAddresses:
    """Tells the addresses of clients.

    Args:
        trusted: proxies that are believed.

    Attributes:
        is_trusted: tells of an address whether it is one of them.
    """

    def __init__(self, trusted: Sequence[Network]) -> None:
        networks = tuple(trusted)

        def is_trusted(text: str) -> bool:
            address = _parse(text)
            return address is not None and any(address in network for network in networks)

        self.is_trusted = lru_cache(_REMEMBERED)(is_trusted)

    def client(self, peer: tuple[object, ...] | str | None, forwarded_for: bytes | None) -> str:
        """Tell the client's address.

        Each proxy appends the address it was called from, so the list is read from its end for as long as the one who
        appended is trusted; what comes before could have been written by anybody.

        Args:
            peer: the other end of the connection, as a socket tells it.
            forwarded_for: the ``X-Forwarded-For`` headers in order, each with one or more addresses, joined by commas.

        Returns:
            An address; that of *peer* if it is not a trusted proxy, or if nothing it says can be read.
        """
        current = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if forwarded_for is None:
            return current
        for hop in reversed(forwarded_for.decode("latin-1").split(",")):
            if not self.is_trusted(current):
                return current
            # A zone means something only on the machine that wrote it, and may hold any text.
            appended = _parse(hop) if len(hop) <= _LONGEST and "%" not in hop else None
            if appended is None:
                return current
            current = str(appended)
        return current
