"""Which port of the loopback each part of a local stack gets.

All ports of one stack lie in one block, so that two stacks run side by side if their bases are a block apart:

```text
base + 0    HAProxy: what clients connect to
base + 1    HAProxy: its metrics
base + 2    Redis
base + 3    Prometheus, where one is asked for
base + 4    the demo page, where it is asked for
base + 10n  node n: +1 clients, +2 admin, +3 agent check, +4 links, +5 zone links      (n = 1, 2, …)
```
"""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

LOOPBACK: Final = "127.0.0.1"
"""Nothing here listens anywhere else."""
DEFAULT_BASE: Final = 18_000
"""Far from the well-known ports of the parts, so that a Redis or HAProxy of the machine is not in the way."""
BLOCK: Final = 100
"""Ports that a stack may use from its base on; also bounds the number of its nodes."""
MAXIMUM_NODES: Final = BLOCK // 10 - 1
_FREE_BASES: Final = range(20_000, 32_000, BLOCK)
_FREE_PORTS: Final = range(20_000, 32_000)
"""Where free ports are looked for: below the ports that systems give to outgoing connections, because a client that
dials a dead port of that range again and again may end up connected to itself and occupy it."""
LAST_PORT: Final = 65_535
_MOST_HELD: Final = 64
"""Ports that are kept for whom they were given to: those of some stacks."""
_held: deque[int] = deque()
"""Descriptors of sockets that are bound to these ports and do not listen. A server that sets SO_REUSEADDR, as all do,
may listen there beside them; nobody who looks for a free port finds them."""


class PortsTaken(Exception):
    """Ports that the stack needs are in use by somebody else."""


def free_port() -> int:
    """Find one port that nobody uses, and keep it: for some time it is given to nobody else.

    Raises:
        PortsTaken: there is none.
    """
    for port in random.sample(_FREE_PORTS, len(_FREE_PORTS)):
        if _keep([port]):
            return port
    raise PortsTaken(f"no free port between {_FREE_PORTS.start} and {_FREE_PORTS.stop}")


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Ports of one node.

    Attributes:
        listen: for clients.
        admin: health, readiness and metrics.
        agent: HAProxy's agent check.
        link: for the other nodes.
        zone: for other clusters, where it is linked with some.
    """

    listen: int
    admin: int
    agent: int
    link: int
    zone: int


@dataclass(frozen=True, slots=True)
class PortPlan:
    """Ports of one stack.

    Attributes:
        base: the first one.
        nodes: by node name (``n1``, ``n2``, …).
    """

    base: int
    nodes: dict[str, NodePorts]

    @classmethod
    def from_base(cls, base: int, nodes: int) -> PortPlan:
        """Lay out the ports of a stack.

        Args:
            base: the first port.
            nodes: how many nodes, 1 to ``MAXIMUM_NODES``.

        Raises:
            ValueError: too many nodes, or ports outside 1 to 65535.
        """
        if not 1 <= nodes <= MAXIMUM_NODES:
            raise ValueError(f"a local stack has 1 to {MAXIMUM_NODES} nodes, not {nodes}")
        if not 1 <= base <= LAST_PORT - BLOCK + 1:
            raise ValueError(f"the port base must be 1 to {LAST_PORT - BLOCK + 1}, not {base}")
        return cls(
            base,
            {
                f"n{number}": NodePorts(*(base + 10 * number + each for each in (1, 2, 3, 4, 5)))
                for number in range(1, nodes + 1)
            },
        )

    @classmethod
    def free(cls, nodes: int) -> PortPlan:
        """Find a block of free ports, for tests, and keep it as ``free_port`` does.

        Raises:
            PortsTaken: there is none.
        """
        for base in random.sample(_FREE_BASES, len(_FREE_BASES)):
            plan = cls.from_base(base, nodes)
            if _keep(plan.all()):
                return plan
        raise PortsTaken(f"no block of free ports between {_FREE_BASES.start} and {_FREE_BASES.stop}")

    @property
    def entry(self) -> int:
        """HAProxy's port for clients."""
        return self.base

    @property
    def balancer_metrics(self) -> int:
        """HAProxy's port for metrics."""
        return self.base + 1

    @property
    def grid(self) -> int:
        """The port of Redis."""
        return self.base + 2

    @property
    def prometheus(self) -> int:
        """The port of Prometheus."""
        return self.base + 3

    @property
    def demo_page(self) -> int:
        """The port of the demo page."""
        return self.base + 4

    def all(self) -> tuple[int, ...]:
        """Return every port of the stack, in ascending order."""
        nodes = (port for node in self.nodes.values() for port in astuple(node))
        return (self.entry, self.balancer_metrics, self.grid, self.prometheus, self.demo_page, *nodes)

    def taken(self) -> tuple[int, ...]:
        """Return the ports on which somebody listens now."""
        return tuple(port for port in self.all() if is_taken(port))

    def require_free(self) -> None:
        """Check that the stack can have its ports.

        Raises:
            PortsTaken: it can not; the message says what to do.
        """
        taken = self.taken()
        if taken:
            raise PortsTaken(
                f"in use by another program: port {', '.join(map(str, taken))} of {LOOPBACK}; "
                f"stop it, or choose another base, for example PORT_BASE={self.base + BLOCK}"
            )


def _keep(ports: Iterable[int]) -> bool:
    """Bind to all these ports, if nobody else has."""
    bound: list[socket.socket] = []
    for port in ports:
        bound.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        try:
            bound[-1].bind((LOOPBACK, port))
        except OSError as error:
            for each in bound:
                each.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    for each in bound:
        # Only now: before, it would have bound beside others who wait for their server as well.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held.append(each.detach())
    # Other systems than Linux let nobody listen beside a socket that is bound.
    while len(_held) > (_MOST_HELD if sys.platform == "linux" else 0):
        os.close(_held.popleft())
    return True


def is_taken(port: int) -> bool:
    """Tell whether somebody listens at a port of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return True
            raise
    return False
