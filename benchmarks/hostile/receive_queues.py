"""What a peer has sent and the node has not read yet, as the kernel's table of connections tells."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/proc/net/tcp")
_ESTABLISHED: Final = "01"
_ENDED: Final = "08"
"""CLOSE_WAIT: the peer has said that it is done, and what it said before may still be unread."""


def receive_queues(ports: Collection[int], peer: str) -> list[int]:
    """Tell, for each connection from an address to some ports of this machine, how many bytes wait to be read.

    Args:
        ports: where is listened.
        peer: the address of the other side, of IPv4.
    """
    return queues_in(_TABLE.read_text().splitlines(), ports, peer)


def queues_in(table: Iterable[str], ports: Collection[int], peer: str) -> list[int]:
    """The same of the lines of a table such as /proc/net/tcp; see proc(5)."""
    # The kernel writes an address as the number that it is in the memory of this machine, in hexadecimal digits.
    address = ipaddress.IPv4Address(peer).packed[::-1].hex().upper()
    here = {f"{port:04X}" for port in ports}
    found = []
    for line in table:
        words = line.split(maxsplit=5)
        if (
            words[3] in {_ESTABLISHED, _ENDED}
            and words[1].partition(":")[2] in here
            and words[2].partition(":")[0] == address
        ):
            found.append(int(words[4].partition(":")[2], 16))
    return found
