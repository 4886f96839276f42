"""As what an address counts, and the accounts of those that are counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from gateway.core.pacing.accounts import Account, AccountLimits, Accounts

IPV6_PREFIX: Final = 64
"""Leading bits of an IPv6 address that count as one: a subscriber is given at least so many addresses (RFC 6177), so
whoever counted single ones would count nothing."""

_REMEMBERED: Final = 4096
"""Addresses of which is remembered what they count as; in a storm the same ones come again and again."""


def account_key(address: str) -> str:
    """Tell as what an address counts: IPv6 by its network, anything that is no address by itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed), IPV6_PREFIX), strict=False))
    return address


class AddressKeys:
    """Tells as what addresses count; it is asked for each connection.

    Args:
        exempt: networks that are not counted.
    """

    def __init__(self, exempt: Sequence[IPv4Network | IPv6Network]) -> None:
        self._exempt = exempt
        self._find = lru_cache(_REMEMBERED)(self._look_up)

    def of(self, address: str) -> str | None:
        """Tell as what an address counts; None if it is exempt."""
        return self._find(address)

    def _look_up(self, address: str) -> str | None:
        try:
            parsed = ip_address(address)
        except ValueError:
            return account_key(address)
        exempt = any(parsed in network for network in self._exempt)
        return None if exempt else account_key(address)


class Addresses:
    """The accounts of addresses.

    Args:
        limits: of each.
        keys: tells as what they count.
        most: accounts that are remembered besides those with an open connection.
    """

    def __init__(self, limits: AccountLimits, keys: AddressKeys, most: int) -> None:
        self._accounts = Accounts[str](limits, most)
        self._keys = keys

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, address: str, now: float) -> Account | None:
        """Find the account of an address, or make it.

        Args:
            address: as it came.
            now: seconds.

        Returns:
            The account; None if the address is exempt.
        """
        key = self._keys.of(address)
        return None if key is None else self._accounts.of(key, now)


class AddressConnection:
    """A connection that is counted for its address and for the node; a ``CountedConnection``."""

    __slots__ = ("_accounts",)

    def __init__(self, accounts: tuple[Account, ...]) -> None:
        self._accounts = accounts

    def leave(self) -> None:
        """See ``CountedConnection``."""
        for account in self._accounts:
            account.connections -= 1
        self._accounts = ()
