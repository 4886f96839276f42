"""Who uses queues and histories: senders, consumers that settle what they are given, and readers of every event."""

from __future__ import annotations

from typing import Final

from locust.env import Environment

from gateway.core.client.errors import NotHeld, SessionEnded
from gateway.core.client.log_reader import LogReader
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.wire.packets import EARLIEST, NOW, HistoryPart, ReadHistory, Reply
from gateway.core.wire.queue_packets import AckMode, Message, Send, Settle
from loadtests.cluster import QUEUE, SELECTOR
from loadtests.figures import READ, RECEIVE, SEND, SETTLE
from loadtests.payload import encode, wall_clock
from loadtests.queue_integrity import HistoryWatch
from loadtests.recorder import Recorder, Watching
from loadtests.shell.session import GatewaySession
from loadtests.users import GatewayUser

CONSUME_SECONDS: Final = 30.0
"""How long it may take to begin to consume, or to read a page: as for a subscription."""

CREDIT: Final = 32

READ_EVERY: Final = 0.5
"""Seconds from one page of the history to the next, once a reader has caught up."""


class SenderUser(GatewayUser):
    """Sends messages on an absolute schedule, and does not wait for receipts before it goes on."""

    fixed_count = 1
    rate = 2.0
    """Messages per second; as ``--publish-rate``."""
    value_bytes = 100
    """Size of a value; as ``--value-bytes``."""

    @property
    def purpose(self) -> str:
        """See ``GatewayUser``."""
        return SEND

    def use(self, session: GatewaySession, watching: Watching) -> None:  # noqa: ARG002 - nothing to watch
        """Send what is due, also while the session recovers: it is sent as soon as it can be."""
        for samples in self.due(session, self.new_source(), self.rate):
            for each in samples:
                value = encode(each, size=self.value_bytes)
                session.ask(Send(UNNUMBERED, QUEUE, value), _Sent(self.recorder, each.due))


class ConsumerUser(GatewayUser):
    """Consumes from the queue, and accepts each message by itself as soon as it comes."""

    fixed_count = 1

    @property
    def purpose(self) -> str:
        """See ``GatewayUser``."""
        return RECEIVE

    def use(self, session: GatewaySession, watching: Watching) -> None:
        """Consume until the session is lost."""

        def work(message: Message) -> None:
            latency = self.recorder.queue.received(message, wall_clock())
            if latency is not None:
                self.recorder.request(RECEIVE, latency)
            session.settle(
                Settle(UNNUMBERED, QUEUE, ((message.message, message.delivery),)),
                _Settled(self.recorder, message.message),
            )

        watching.works(work)
        session.consume(QUEUE, CREDIT, AckMode.EACH, CONSUME_SECONDS)
        session.wait_ended()


class ReaderUser(GatewayUser):
    """Reads every event of the publishers' topics, page by page; a new session goes on where the last one stopped."""

    fixed_count = 1

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._position: str = NOW
        self._watch = HistoryWatch(self.recorder.tally, self.recorder.violated)

    @property
    def purpose(self) -> str:
        """See ``GatewayUser``."""
        return READ

    def use(self, session: GatewaySession, watching: Watching) -> None:
        """Read until the session is lost."""
        watching.reads(self._watch)
        reader = LogReader(self._position, size=1, octets=1)
        if self._position == NOW:
            self._page(session, reader, limit=0)
        while session.ended is None:
            part = self._page(session, reader)
            while len(reader):
                self._watch.read(reader.take())
                reader.consume()
            self._position = reader.position or EARLIEST
            if part.complete and session.wait_ended(READ_EVERY):
                return

    def _page(self, session: GatewaySession, reader: LogReader, limit: int | None = None) -> HistoryPart:
        began = wall_clock()
        ask = ReadHistory(UNNUMBERED, SELECTOR, reader.after, reader.earliest, limit)
        part = session.request(ask, CONSUME_SECONDS).history or HistoryPart()
        self.recorder.request(READ, wall_clock() - began)
        reader.answered(part, holds=False)
        return part


class _Sent:
    """Waits for the receipt of one message; an ``Answer`` of the shell."""

    __slots__ = ("_due", "_recorder")

    def __init__(self, recorder: Recorder, due: float) -> None:
        self._recorder = recorder
        self._due = due

    def set_result(self, _reply: Reply, /) -> None:
        if not self._recorder.stopping:
            self._recorder.tally.sent += 1
        self._recorder.request(SEND, wall_clock() - self._due)

    def set_exception(self, error: Exception, /) -> None:
        if not isinstance(error, SessionEnded) or not self._recorder.stopping:
            self._recorder.request(SEND, wall_clock() - self._due, error)


class _Settled:
    """Waits for the answer to one acceptance."""

    __slots__ = ("_asked", "_message", "_recorder")

    def __init__(self, recorder: Recorder, message: int) -> None:
        self._recorder = recorder
        self._message = message
        self._asked = wall_clock()

    def set_result(self, _reply: Reply, /) -> None:
        if not self._recorder.stopping:
            self._recorder.queue.accepted(self._message)
        self._recorder.request(SETTLE, wall_clock() - self._asked)

    def set_exception(self, error: Exception, /) -> None:
        # Taken back from a session that was given it before, or settled by an earlier copy of it: it is with somebody.
        if not isinstance(error, NotHeld | SessionEnded):
            self._recorder.request(SETTLE, wall_clock() - self._asked, error)
