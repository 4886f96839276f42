"""What attackers and witnesses are told of the stack that they talk to; a file of JSON, as each is a process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from pydantic import TypeAdapter

BALANCER: Final = "127.0.0.1"
"""Where HAProxy and its health checks come from: the one address to which the limits of an address do not apply."""

ATTACKER: Final = "127.0.0.2"
"""Where attackers come from: one address, to which every default applies as it does to a client elsewhere."""

WITNESS: Final = "127.0.0.3"
"""Where witnesses come from, so that they share no budget of an address with the attacker."""

OTHER_ATTACKERS: Final = tuple(f"127.0.0.{last}" for last in range(4, 10))
"""Further addresses of attackers who have several."""

WITNESS_PRINCIPAL: Final = "witness"
"""The account of the witnesses."""

PATH: Final = "/v1/connect"
"""Where a WebSocket is opened."""

HOST: Final = "127.0.0.1"
"""Where nodes listen."""


class Entry(StrEnum):
    """Where a WebSocket can be opened that ends at the attacked node."""

    CLIENTS = "clients"
    """The node's port for clients."""
    BALANCER = "balancer"
    """HAProxy's; it speaks no TLS here."""
    CONSOLE = "console"
    """The admin port, where the console opens one."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The attacked node.

    Attributes:
        port: for clients.
        admin: port for health, metrics and administration.
        agent: port of HAProxy's agent check.
        balancer: port for clients at HAProxy; the path names the attacked node.
        path: for clients at that port.
        viewer: token of the admin API that may look at everything and change nothing.
        tls: whether the client port speaks TLS.
        secrets: of the principals ``mallory`` (the attacker's account) and ``witness``; empty where nobody is asked for
            one.
        scale: by how much everything that is counted in connections or sessions is smaller; 1 in a full run.
    """

    port: int
    admin: int
    agent: int = 0
    balancer: int = 0
    path: str = ""
    viewer: str = ""
    tls: bool = False
    secrets: dict[str, str]
    scale: float = 1.0

    def port_of(self, entry: Entry) -> int:
        """Tell the port of an entry."""
        return {Entry.CLIENTS: self.port, Entry.BALANCER: self.balancer, Entry.CONSOLE: self.admin}[entry]

    def path_of(self, entry: Entry) -> str:
        """Tell the path that opens a WebSocket there."""
        return self.path if entry is Entry.BALANCER else PATH

    def speaks_tls(self, entry: Entry) -> bool:
        """Tell whether TLS is spoken there."""
        return self.tls and entry is Entry.CLIENTS

    def scaled(self, number: int) -> int:
        """Tell how many of *number* connections or sessions a run of this size has."""
        return max(1, int(number * self.scale))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what ``write`` wrote.

        Raises:
            OSError: it cannot be read.
        """
        return TypeAdapter(cls).validate_json(file.read_bytes())

    def write(self, file: Path) -> None:
        """Write it for the processes that need it; its secrets are made for one run."""
        file.touch(mode=0o600)
        file.write_bytes(TypeAdapter(dict).dump_json(asdict(self)))
