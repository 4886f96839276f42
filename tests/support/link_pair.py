"""Two session machines joined by a bad link, in virtual time.

```text
 client application ── ClientEnd ──▶ to_server ──▶ ServerEnd ── server application
                           ▲                            │
                           └────────── to_client ◀──────┘
```

The ends do what a client and a node do around their machines: the handshake of protocol 5.4 and 5.5, attempts and token
generations, resubmission after a failover, deduplication in a grid. The link loses, duplicates and reorders messages,
and cuts connections so that the ends notice at different times. Everything that must hold at every step is asserted
here, at the step where it breaks; what must hold in the end is asserted by ``LinkPair.settle``.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from gateway.core.stream.machine import SessionMachine, StreamParameters
from gateway.core.stream.transitions import Role, State
from gateway.core.types import NodeId, PacketId, SessionId, TokenGeneration
from gateway.core.wire import codec
from gateway.core.wire.codes import FailoverReason, Numbering, Outcome
from gateway.core.wire.packets import Ack, Backoff, Limits, Resume, Welcome
from tests.support.link_ends import PLENTY, ClientEnd, Connection, Ledger
from tests.support.link_server import ServerEnd

PATIENCE: Final = 2000
"""Steps after which a pair that has not come to rest counts as stuck; a full buffer takes some dozens."""


def parameters(*, packets: int = 8, size: int = 4096, ack_packets: int = 4) -> StreamParameters:
    """Make parameters with short times and small buffers."""
    return StreamParameters(
        resend_packets=packets,
        resend_bytes=size,
        message_bytes=600,
        ack_packets=ack_packets,
        ack_delay=0.25,
        ping_interval=10.0,
        ping_timeout=25.0,
    )


class LinkPair:
    """A client, a server, a link, and the grid behind the server.

    Args:
        client: parameters of the client.
        server: parameters of the server.
        tells_generations: the server tells its machine the generations of tokens, as nodes do; without, the machine
            has to be careful by itself.

    Attributes:
        now: virtual time, in seconds.
        seen: how often what happened; makes coverage visible.
        executed: requests that took effect, in order (the grid).
        is_slow: the grid leaves requests without an answer, until a server is told to ask or to answer.
        versions: current version by topic (the grid).
        log: all versions, in the order in which they were published (the grid).
        ledgers: what servers have numbered, by life.
        pending: a connection whose resume the servers have not seen yet.
        former: the node that has served the session before, and keeps it as it was; None if there is none.
    """

    def __init__(self, client: StreamParameters, server: StreamParameters, *, tells_generations: bool = True) -> None:
        self.now = 0.0
        self.seen: Counter[str] = Counter()
        self.tells_generations = tells_generations
        self.executed: list[int] = []
        self.is_slow = False
        self.versions: dict[str, int] = {}
        self.log: list[tuple[str, int]] = []
        self.notices = 0
        self.generation = 1
        self.attempt_served = 0
        self.ledgers: list[Ledger] = []
        self.pending: Connection | None = None
        self.late: Connection | None = None
        self.former: ServerEnd | None = None
        self._moves = self._forgets = False
        self._server_parameters = server
        self.server = ServerEnd(self, SessionMachine(Role.SERVER, server))
        self.client = ClientEnd(self, SessionMachine(Role.CLIENT, client))
        first = Connection()
        self.server.connection = self.client.connection = first
        self.server.machine.open(self.now, generation=TokenGeneration(1) if tells_generations else None)
        self.client.machine.open(self.now)
        self.client.machine.send_link(Ack(PacketId(0)))

    def welcome(
        self, outcome: Outcome, reason: FailoverReason | None, server: ServerEnd, resent: int, lost: int | None
    ) -> Welcome:
        """Make a welcome. Its session names the numbering, which no real one does: only for the client's assertions."""
        numbers = server.machine.parameters
        return Welcome(
            session=SessionId(str(server.life)),
            principal="p",
            node=NodeId("n"),
            token=str(self.generation),
            outcome=outcome,
            numbering=Numbering.RESTARTED if outcome is Outcome.FAILED_OVER else Numbering.KEPT,
            reason=reason,
            received=server.machine.received,
            resent=resent,
            lost=lost,
            window=60.0,
            ping_interval=numbers.ping_interval,
            ping_timeout=numbers.ping_timeout,
            replicated=True,
            limits=Limits(
                message_bytes=600, value_bytes=100, requests=9, selections=9, resend_packets=8, resend_bytes=4096
            ),
            backoff=Backoff(initial=0.1, maximum=1.0, stable_after=1.0),
            properties={},
        )

    # --- What the link does -------------------------------------------------------------------------------------------

    def deliver_to_server(self, count: int = 1) -> bool:
        """Deliver up to *count* messages of the client; tells whether there was one."""
        if self.pending is not None:
            connection, self.pending = self.pending, None
            if not connection.to_server:
                return False
            self._serve_resume(connection)
            return True
        connection_now = self.server.connection
        moved = False
        for _ in range(count):
            if connection_now is None or self.server.connection is not connection_now or not connection_now.to_server:
                break
            self.server.deliver(codec.decode_from_client(connection_now.to_server.popleft()))
            moved = True
            if self._forgets:
                self.former = None
        return moved

    def deliver_to_client(self, count: int = 1) -> bool:
        """Deliver up to *count* messages of the server; tells whether there was one."""
        connection = self.client.connection
        moved = False
        for _ in range(count):
            if connection is None or self.client.connection is not connection or not connection.to_client:
                break
            self.client.deliver(codec.decode_from_server(connection.to_client.popleft()))
            moved = True
        return moved

    def _serve_resume(self, connection: Connection) -> None:
        (packet,) = codec.decode_from_client(connection.to_server.popleft())
        if isinstance(packet, Resume):
            if self._moves and packet.attempt > self.attempt_served:
                self._moves = False
                self._hand_over(TokenGeneration(int(packet.token)))
            self.server.resumed(connection, packet)

    def _hand_over(self, presented: TokenGeneration) -> None:
        """Have another node take the session from the one that serves it, or from the one that did before."""
        self._stop_server()
        if self.former is not None:
            self.server = self.former.succeed(presented) or self.server

    def cut(self, *, client_notices: bool, server_notices: bool) -> None:
        """Cut the connection; an end that does not notice goes on writing into the void."""
        for end in (self.client, self.server):
            if end.connection is not None:
                end.connection.cut()
        if client_notices:
            self.client.give_up()
        if server_notices:
            self.server.give_up()

    def reconnect(self) -> None:
        """Have the client come back; a resume that it gave up on may still arrive, late."""
        if self.pending is not None and self.pending.to_server:
            self.late = Connection(to_server=deque(self.pending.to_server), dead=True, life=self.pending.life)
        self.client.reconnect()

    def deliver_late_resume(self) -> None:
        """Deliver a resume whose connection the client has given up (a hung node, a proxy's retry)."""
        if self.late is not None:
            connection, self.late = self.late, None
            self._serve_resume(connection)

    def _wire(self, *, to_client: bool) -> tuple[Connection, deque[bytes]] | None:
        connection = self.client.connection if to_client else self.server.connection
        if connection is None:
            return None
        return connection, connection.to_client if to_client else connection.to_server

    def lose(self, *, to_client: bool) -> None:
        """Lose the next message."""
        if (found := self._wire(to_client=to_client)) and found[1]:
            found[0].tampered = True
            found[1].popleft()

    def double(self, *, to_client: bool) -> None:
        """Duplicate the next message."""
        if (found := self._wire(to_client=to_client)) and found[1]:
            found[0].tampered = True
            found[1].appendleft(found[1][0])

    def swap(self, *, to_client: bool) -> None:
        """Let the next message arrive last."""
        if (found := self._wire(to_client=to_client)) and len(found[1]) > 1:
            found[0].tampered = True
            found[1].rotate(-1)

    def replace_server(self) -> None:
        """Let the node die; the next resume is served by another one, which has only the grid."""
        for end in (self.client, self.server):
            if end.connection is not None:
                end.connection.cut()
        self.server = ServerEnd(self, SessionMachine(Role.SERVER, self._server_parameters))
        self.former = None
        self.seen["node replaced"] += 1

    # --- What the cluster does ----------------------------------------------------------------------------------------

    def execute(self, request: int) -> None:
        """Have a request take effect, unless it has (P5)."""
        if request > len(self.executed):
            assert request == len(self.executed) + 1, "a request was skipped"
            self.executed.append(request)

    def move(self, *, forgets: bool, stops: bool = False) -> None:
        """Have the client come to another node, which takes the session from the one that serves it (rung 2).

        Args:
            forgets: whether the former node hears that the client was heard at the next one, and forgets the session.
            stops: whether the former node hears of the claim before it is asked for the session.
        """
        self._moves, self._forgets = True, forgets
        if stops:
            self._stop_server()
        self.reconnect()

    def _stop_server(self) -> None:
        if self.server.is_serving:
            self.server.stop()
            self.former = self.server

    def lose_taker(self) -> None:
        """Let the node die to which the session has moved; the next one asks the one before, if that still keeps it."""
        former = self.former
        if former is not None:
            self.seen["taker lost"] += 1
            self.replace_server()
            self.former, self._moves = former, True

    def pass_time(self, seconds: float) -> None:
        """Let time pass and both machines do what is due."""
        self.now += seconds
        self.client.tick()
        self.server.tick()

    # --- The end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the link become good and everything come to rest; then the two ends must agree on everything."""
        self.cut(client_notices=True, server_notices=True)
        self.pending = self.late = None
        self.is_slow = False
        self.reconnect()
        for _ in range(PATIENCE):
            moved = self.deliver_to_server() | self.deliver_to_client()
            self.server.work()
            self.client.flush(PLENTY)
            self.server.flush(PLENTY)
            if moved:
                continue
            if self._is_settled:
                break
            self.pass_time(self.client.machine.parameters.ack_delay)
        assert self._is_settled, f"stuck: {self.client.machine} {self.server.machine}"
        client, server = self.client, self.server
        assert client.life == server.life
        assert self.executed == list(range(1, client.next_request)), "a request took effect twice, late or never"
        assert not client.unanswered
        assert client.values == self.versions
        assert client.notices == server.notices
        assert client.taken_in == server.machine.last_numbered == len(server.sent.numbered)
        assert server.taken_in == client.machine.last_numbered == len(client.sent.numbered)

    @property
    def _is_settled(self) -> bool:
        return all(
            end.machine.state is State.ATTACHED and end.machine.is_settled and not end.machine.has_output
            for end in (self.client, self.server)
        )
