"""What a system under test has to offer so that the same work can be given to each.

A *system* is everything that a publisher's update passes on its way to the subscribers: the server, and beside it what
the server stores or spreads updates with (Redis) and what stands before it (HAProxy). It is prepared once per run
(installed, compiled) and started afresh for every measurement:

```python
system.prepare(Path("benchmarks/.installed"))
with system.running(Placement.of_this_machine(), StartOptions()) as running:
    before = cpu_seconds(running.pids())
    ...
```

The generator reaches it by ``running.endpoint``, which names one of the protocols that the generator speaks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.placement import Placement

TOPIC_MARK: Final = "{topic}"
"""In a request target: the place of the topic."""


class Role(StrEnum):
    """What a process does for its system; CPU time is told apart by it."""

    SERVER = "server"
    """The system itself: what ratios are made of."""

    STORE = "redis"
    """The Redis behind it."""

    BALANCER = "haproxy"
    """The load balancer in front of it."""


class WireProtocol(StrEnum):
    """What the generator speaks with a system; each is one C file, ``benchmarks/generator/protocol_*.c``.

    The *value* is the text of one update, ``Endpoint`` says under which target. Texts of the generator's own making
    hold only letters, digits and spaces, so that none needs escaping in JSON.
    """

    GATEWAY = "gateway"
    """``gateway.v1.json`` (docs/reference/protocol.md). A subscriber sends hello and subscribe; a publisher sends hello
    and publish, and counts a publish as answered by its reply. Packet ids are checked, acknowledgements sent as 5.3
    asks."""

    PLAIN = "plain"
    """WebSocket text frames that hold the value and nothing else. A subscriber is subscribed by its request target; it
    sends nothing. A publisher over WebSocket sends one frame for each value and gets exactly one text frame, of any
    content, for each in turn; one over HTTP/1.1 (``Endpoint.publish_by_http``) sends ``POST`` on a kept-alive
    connection with the value as body, and any 2xx answers it."""

    SOCKET_IO = "socketio"
    """Socket.IO 5 over Engine.IO 4, WebSocket from the start (no polling). After the handshake (``0{…}``, ``40``,
    ``40{…}``) a subscriber emits ``420["subscribe","<topic>"]`` and waits for the acknowledgement ``430…``. Updates
    are ``42["update","<value>"]``, with connection state recovery ``42["update","<value>","<offset>"]``. A publisher
    emits ``42<n>["publish","<topic>","<value>"]`` and counts ``43<n>…`` as its answer. Pings ``2`` are answered by
    ``3``."""

    NATS = "nats"
    """NATS's text protocol inside binary WebSocket frames. After ``INFO`` a client sends ``CONNECT``, a subscriber
    ``SUB``, and ``PING``, whose ``PONG`` makes it ready. A publisher sends ``PUB`` and, behind what it has to publish,
    ``PING``: its ``PONG`` answers all before it."""

    MQTT = "mqtt"
    """MQTT 3.1.1 inside binary WebSocket frames, subprotocol ``mqtt``, QoS 1, sessions that are kept. A subscriber is
    ready with its ``SUBACK`` and confirms each update; ``PUBACK`` answers a publish."""


@dataclass(frozen=True)
class Endpoint:
    """Where a running system is reached, and how.

    Attributes:
        protocol: what the generator speaks there; None if it does not, and only a client of one case's own does.
        host: address to connect to, without a name to resolve.
        port: TCP port.
        subscribe_target: request target of a subscriber's upgrade; ``{topic}`` stands for its topic.
        publish_target: request target of a publisher, likewise.
        publish_by_http: whether publishers POST (``PLAIN`` only) instead of opening a WebSocket.
    """

    protocol: WireProtocol | None
    host: str
    port: int
    subscribe_target: str
    publish_target: str
    publish_by_http: bool = False


@dataclass(frozen=True)
class StartOptions:
    """What a case may ask of a start.

    Attributes:
        connections: about how many connections will be open at once; servers that want to know it are told (nginx).
        extra: settings for one system, by name, where a case needs them (for the gateway, settings of
            ``gateway serve``, such as ``{"ping-interval": "5"}``). A system fails on a name that it does not know.
    """

    connections: int = 1_000
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """A started system.

    Attributes:
        endpoint: where the generator finds it.
        pids: the live processes of each role, looked up anew at each call (workers may come and go). Roles without a
            process may be absent.
        alive: raises ``SystemFailed`` with what it printed last if a process of the system has ended.
    """

    endpoint: Endpoint
    pids: Callable[[], Mapping[Role, Sequence[int]]]
    alive: Callable[[], None]


class SystemUnavailable(Exception):
    """A system cannot be measured on this machine; the text says what is missing, and how to get it.

    The run goes on without it, and its table says so.
    """


class SystemFailed(Exception):
    """A system did not start, or broke while it was measured; the text has what it printed last.

    This fails the run.
    """


class SystemUnderTest(ABC):
    """One contestant.

    Attributes:
        name: short, for ``--systems``, such as ``socketio``.
        title: for the table, such as ``Socket.IO + Redis streams adapter``.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Install or compile what is needed; once per run, not measured, cheap if done before.

        Args:
            folder: of this system alone, kept from run to run; not under version control.

        Raises:
            SystemUnavailable: it cannot be had on this machine.
        """

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Tell the versions of all programs and libraries that matter, by name; after ``prepare``."""

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Tell every setting that is not the system's default, with the reason where it is not plain."""

    @abstractmethod
    def running(self, placement: Placement, options: StartOptions) -> AbstractContextManager[Running]:
        """Run it for the length of the block, on free ports of 127.0.0.1, and leave nothing behind.

        Servers go to ``placement.server``, Redis and HAProxy to ``placement.others``. When the block begins, it
        accepts connections.

        Raises:
            SystemFailed: it did not come up.
        """
