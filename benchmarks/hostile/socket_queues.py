"""What waits in the kernel on connections of this machine: to be read by one side, or by the other."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

_TABLE: Final = Path("/proc/net/tcp")
_ESTABLISHED: Final = "01"
_ENDED: Final = "08"
"""CLOSE_WAIT: the peer has said that it is done, and what it said before may still be unread."""


UNDER_WAY: Final = 16 * 1024
"""Bytes that may be without an acknowledgement though the peer reads: it may take 40 ms to acknowledge a short answer.
One that does not read leaves more than that in the smallest send buffer."""


class Queues(NamedTuple):
    """Of one connection, as the side sees it that listens.

    Attributes:
        unread: bytes that the peer has sent and this side has not read.
        unsent: bytes that this side has written and the peer has not acknowledged; many, if it does not read.
    """

    unread: int
    unsent: int

    @property
    def keeps_busy(self) -> bool:
        """Whether this side could go on reading, and does not have to wait for the peer to read first."""
        return self.unread > 0 and self.unsent <= UNDER_WAY


def socket_queues(ports: Collection[int], peers: Collection[str]) -> list[Queues]:
    """Tell what waits on each connection from some addresses to some ports of this machine.

    Args:
        ports: where is listened.
        peers: the addresses of the other side, of IPv4.
    """
    return queues_in(_TABLE.read_text().splitlines(), ports, peers)


def queues_in(table: Iterable[str], ports: Collection[int], peers: Collection[str]) -> list[Queues]:
    """The same of the lines of a table such as /proc/net/tcp; see proc(5)."""
    # The kernel writes an address as the number that it is in the memory of this machine, in hexadecimal digits.
    addresses = {ipaddress.IPv4Address(peer).packed[::-1].hex().upper() for peer in peers}
    here = {f"{port:04X}" for port in ports}
    found = []
    for line in table:
        words = line.split(maxsplit=5)
        if (
            words[3] in {_ESTABLISHED, _ENDED}
            and words[1].partition(":")[2] in here
            and words[2].partition(":")[0] in addresses
        ):
            unsent, _, unread = words[4].partition(":")
            found.append(Queues(int(unread, 16), int(unsent, 16)))
    return found
