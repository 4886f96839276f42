"""The complete exchange of protocol section 12, made by two session machines.

Each step is a message as it stands in the document, made by the code that clients and nodes run. Nothing here is a
recording: if the code changes what it writes, the document is wrong, and ``test_protocol_examples`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from gateway.core.stream.machine import Received, SessionMachine, StreamParameters
from gateway.core.stream.runs import Outgoing
from gateway.core.stream.transitions import Role
from gateway.core.types import (
    Attempt,
    EventId,
    NodeId,
    PacketId,
    RequestNumber,
    SessionId,
    TokenGeneration,
    Version,
)
from gateway.core.wire import codec
from gateway.core.wire.codes import FailoverReason, Numbering, Outcome
from gateway.core.wire.durable_packets import AdvanceDurable, OpenDurable, ReleaseDurable, RemoveDurable
from gateway.core.wire.packets import (
    Authenticate,
    Backoff,
    Bye,
    Hello,
    Limits,
    Notice,
    Publish,
    ReadHistory,
    Reply,
    Resume,
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from gateway.core.wire.queue_packets import (
    Cancel,
    Consume,
    Declare,
    Message,
    Send,
    Settle,
)
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import SetWills
from tests.docs.exchange_examples import OF_QUESTIONS, encode_of_questions

PLENTY: Final = 1 << 20
TOPIC: Final = "prices/ACME"
SUPPORTS: Final = frozenset({"handed_over", "mirrored"})

PARAMETERS: Final = StreamParameters(
    resend_packets=1024,
    resend_bytes=1048576,
    message_bytes=65536,
    ack_packets=64,
    ack_delay=0.25,
    ping_interval=20.0,
    ping_timeout=45.0,
)

WELCOME: Final = Welcome(
    session=SessionId("s-4f1c"),
    principal="alice",
    node=NodeId("n1"),
    token="token-1",
    outcome=Outcome.CREATED,
    numbering=Numbering.RESTARTED,
    window=60.0,
    ping_interval=20.0,
    ping_timeout=45.0,
    replicated=True,
    limits=Limits(
        message_bytes=65536,
        value_bytes=32768,
        requests=256,
        selections=1000,
        resend_packets=1024,
        resend_bytes=1048576,
        selection_bytes=65536,
        questions=64,
        handlers=32,
    ),
    backoff=Backoff(initial=0.25, maximum=10.0, stable_after=10.0),
    properties={"$session": "s-4f1c", "$principal": "alice", "$node": "n1", "$client": "example/1", "team": "fx"},
)


class Step(NamedTuple):
    """One message of the exchange.

    Attributes:
        sender: ``client`` or ``server``.
        message: as on the wire.
        received: what the other end's application got out of it; None if the message never arrived.
    """

    sender: str
    message: bytes
    received: list[Received] | None


def encode_update(update: Update) -> bytes:
    """Encode an update of the examples, whose values are small."""
    value = codec.json_text(update.value)
    value = b"" if update.removed else value
    body = codec.encode_update(update.topic, update.version, update.event, value, snapshot=update.snapshot)
    return codec.folding_mark(body, update.folded, snapshot=update.snapshot) + body if update.folded else body


def encode_body(body: object) -> bytes:
    """Encode the body of any session packet."""
    match body:
        case Update():
            return encode_update(body)
        case Reply():
            return codec.encode_reply(body)
        case Notice():
            return codec.encode_notice(body)
        case Message():
            headers = codec.json_text(dict(body.headers)) if body.headers else b""
            return codec.encode_message(body, headers, codec.json_text(body.value))
        case Send() | Consume() | Cancel() | Settle() | Declare():
            return codec.encode_request(body)
        case Begin() | Stage() | Commit() | Rollback():
            return codec.encode_request(body)
        case OpenDurable() | AdvanceDurable() | ReleaseDurable() | RemoveDurable() | SetWills() | ReadValues():
            return codec.encode_request(body)
        case Subscribe() | Unsubscribe() | Publish() | ReadHistory() | SetProperties() | Authenticate():
            return codec.encode_request(body)
        case _ if (text := encode_of_questions(body)) is not None:
            return text
        case _:
            raise AssertionError(f"{body} is not the body of a session packet")


def price(version: int, bid: int, *, snapshot: bool = False) -> Update:
    return Update(TOPIC, Version(version), EventId(f"25-1-{version}"), {"bid": bid}, snapshot)


def published(request: int, version: int) -> Reply:
    return Reply(request=RequestNumber(request), version=Version(version), event=EventId(f"25-1-{version}"))


def publish(request: int, bid: int, *, resubmitted: bool = False) -> Publish:
    return Publish(RequestNumber(request), TOPIC, b'{"bid":%d}' % bid, resubmitted)


class Exchange:
    """Two ends and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.client = SessionMachine(Role.CLIENT, PARAMETERS)
        self.server = SessionMachine(Role.SERVER, PARAMETERS)

    def submit(self, machine: SessionMachine, *bodies: object) -> None:
        for body in bodies:
            topic = body.topic if isinstance(body, Update) else None
            machine.submit(Outgoing(topic, encode_body(body)))

    def from_client(self, *, arrives: bool = True) -> Step:
        (message,) = self.client.flush(PLENTY)
        received = self.server.receive(codec.decode_from_client(message), self.now) if arrives else None
        return Step("client", message, received)

    def from_server(self, *, arrives: bool = True) -> Step:
        (message,) = self.server.flush(PLENTY)
        received = self.client.receive(codec.decode_from_server(message), self.now) if arrives else None
        return Step("server", message, received)

    def steps(self) -> Iterator[Step]:
        """Run through the exchange."""
        yield from self._opened()
        yield from self._subscribed_and_published()
        yield from self._quiet()
        yield from self._reattached()
        yield from self._failed_over()
        yield from self._ended()

    def _opened(self) -> Iterator[Step]:
        hello = Hello(
            principal="alice",
            secret="s3cret",
            properties={"team": "fx"},
            client="example/1",
            window=60.0,
            supports=SUPPORTS,
        )
        message = codec.encode_link(hello)
        assert codec.decode_from_client(message) == [hello]
        yield Step("client", message, [])

        self.server.open(self.now, generation=TokenGeneration(1))
        self.server.send_link(WELCOME)
        (message,) = self.server.flush(PLENTY)
        assert codec.decode_from_server(message) == [WELCOME]
        self.client.open(self.now)
        yield Step("server", message, [])

    def _subscribed_and_published(self) -> Iterator[Step]:
        self.submit(self.client, Subscribe(RequestNumber(1), "prices/**"))
        yield self.from_client()
        self.submit(self.server, Reply(request=RequestNumber(1)), price(7, 99, snapshot=True))
        yield self.from_server()
        self.submit(self.client, publish(2, 100))
        yield self.from_client()
        self.submit(self.server, price(8, 100), published(2, 8))
        yield self.from_server()
        self.now += PARAMETERS.ack_delay
        self.client.tick(self.now)
        yield self.from_client()

    def _quiet(self) -> Iterator[Step]:
        self.now += PARAMETERS.ping_interval
        self.server.ping("token-1b")
        yield self.from_server()
        yield self.from_client()

    def _reattached(self) -> Iterator[Step]:
        self.submit(self.server, price(9, 101))
        yield self.from_server(arrives=False)
        self.submit(self.client, publish(3, 102))
        yield self.from_client(arrives=False)
        for machine in (self.client, self.server):
            machine.detach()
            machine.resume()
        self.now += 1.0

        resume = Resume(
            token="token-1b",
            attempt=Attempt(1),
            received=self.client.received,
            oldest=self.client.oldest,
            supports=SUPPORTS,
        )
        self.client.send_link(resume)
        (message,) = self.client.flush(PLENTY)
        assert codec.decode_from_client(message) == [resume]
        yield Step("client", message, [])

        assert self.server.can_reattach(received=resume.received, oldest=resume.oldest, generation=TokenGeneration(1))
        resent = self.server.reattach(received=resume.received, now=self.now)
        welcome = replace(
            WELCOME,
            token="token-2",
            outcome=Outcome.REATTACHED,
            numbering=Numbering.KEPT,
            received=self.server.received,
            resent=resent,
            selections=("+prices/**",),
        )
        self.server.send_link(welcome)
        (message,) = self.server.flush(PLENTY)
        first, *rest = codec.decode_from_server(message)
        assert first == welcome
        self.client.reattach(received=welcome.received, now=self.now)
        yield Step("server", message, self.client.receive(rest, self.now))

        yield self.from_client()
        self.submit(self.server, price(10, 102), published(3, 10))
        yield self.from_server()

    def _failed_over(self) -> Iterator[Step]:
        self.submit(self.client, publish(4, 103))
        yield self.from_client()
        self.client.detach()
        self.client.resume()
        self.now += 1.0
        self.server = SessionMachine(Role.SERVER, PARAMETERS)

        resume = Resume(
            token="token-2",
            attempt=Attempt(2),
            received=self.client.received,
            oldest=self.client.oldest,
            supports=SUPPORTS,
        )
        self.client.send_link(resume)
        (message,) = self.client.flush(PLENTY)
        assert codec.decode_from_client(message) == [resume]
        yield Step("client", message, [])

        welcome = replace(
            WELCOME,
            node=NodeId("n2"),
            token="token-3",
            outcome=Outcome.FAILED_OVER,
            reason=FailoverReason.OTHER_NODE,
            lost=None,
            conflated=None,
            properties={**WELCOME.properties, "$node": "n2"},
            selections=("+prices/**",),
        )
        self.server.open(self.now, generation=TokenGeneration(3))
        self.server.send_link(welcome)
        self.submit(self.server, price(11, 103, snapshot=True))
        (message,) = self.server.flush(PLENTY)
        first, *rest = codec.decode_from_server(message)
        assert first == welcome
        self.client.restart(self.now)
        yield Step("server", message, self.client.receive(rest, self.now))

        self.submit(self.client, publish(4, 103, resubmitted=True))
        yield self.from_client()
        self.submit(self.server, published(4, 11))
        yield self.from_server()

    def _ended(self) -> Iterator[Step]:
        assert self.client.received == PacketId(2)
        self.client.send_link(Bye("done"))
        yield self.from_client()


_ELEVEN: Final = RequestNumber(11)

_OF_TRANSACTIONS: Final = (
    Begin(_ELEVEN),
    Stage(RequestNumber(12), _ELEVEN, Publish(RequestNumber(12), "orders/7", b'{"state":"shipped"}')),
    Commit(RequestNumber(13), _ELEVEN),
    Rollback(RequestNumber(14), _ELEVEN),
)
"""What the examples of section 16 mean, each with the packet number of its request."""

OF_LATER_SECTIONS: Final = {
    **{type(each).__name__.lower(): SessionPacket(PacketId(each.request), None, each) for each in _OF_TRANSACTIONS},
    **OF_QUESTIONS,
}
"""What the examples of sections 16 and 18 mean, by their names."""
