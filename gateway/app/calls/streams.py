"""Streams of events: reading topics over a request of HTTP that is not over (docs: reference/client-api.md, ADR 0123).

A stream is read by a ``StreamSession``: what feeds, folds, replays and bounds what sessions are sent does so for it.
What the session would write as packets of the protocol is written as server-sent events. There is nobody to acknowledge
them: what the transport was handed counts as received, and what it has not taken yet is what the reader is measured by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gateway.app.admission.refusals import HandshakeRefused
from gateway.app.calls.callers import Caller, turned_away
from gateway.app.calls.problems import refused
from gateway.app.calls.stream_connection import StreamConnection
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.subscribe import TOPICS_PER_PACKET
from gateway.app.requests.turns import STEPS_PER_PACKET
from gateway.app.runtime.portions import portions
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import StoredUnder
from gateway.app.session.stream_session import StreamEnd, StreamSession
from gateway.catalogue import log_events as events
from gateway.catalogue import stream_metrics as catalogue
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.work import Work
from gateway.core.types import EventId
from gateway.core.wire.codec.event_stream import StreamWriter, read_stream_query, write_end, write_retry
from gateway.core.wire.codes import NotReplayed
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import REPLAY
from gateway.ports import Call, EventSink, GridUnavailable, SessionRecord

LEAST_RETRY: Final = 0.5
"""Seconds after which a reader comes back at the earliest: another node is there at once, and is not to be asked by all
readers of a dead one in the same moment."""

ENDED_TOGETHER: Final = 20
"""Streams that a drain ends in one turn of the loop."""

DRAIN_SHARE: Final = 2
"""All streams are ended in the time that a drain may take, divided by this."""

JUDGED_TOGETHER: Final = 50
"""Streams that are judged again in one turn of the loop: about a millisecond."""

LONGEST_STEP: Final = 3600.0
"""Seconds after which the end of credentials is looked at again at the latest: the time of day may have been set."""

MESSAGES: Final[Mapping[StreamEnd, str]] = {
    StreamEnd.DRAINING: "this node is to be stopped; come back, and another one goes on where this one stopped",
    StreamEnd.FORBIDDEN: "you may not select all of this any more",
    StreamEnd.REVOKED: "you are refused from now on",
    StreamEnd.CREDENTIALS_EXPIRED: "your credentials have ended; come back with fresh ones",
    StreamEnd.INTERNAL: "the node failed; come back",
}
"""What a reader is told of an end, for people."""


class Streams:
    """Serves the streams of a node.

    Args:
        context: of the node.
        sessions: the sessions held here, beside which they are.
        authorisation: judges what is selected.
        revocations: who is refused.
    """

    def __init__(
        self, context: Context, sessions: Sessions, authorisation: Authorisation, revocations: Revocations
    ) -> None:
        self.context = context
        self.clock = context.clock
        self.limits = context.limits
        self.metrics = context.metrics
        self.readers = sessions.readers
        self.delivery = sessions.delivery
        self.flusher = sessions.flusher
        self._authorisation = authorisation
        self._revocations = revocations
        self._judging = False
        self._judge_again = False
        self.readers.look_again = self._look_again
        context.metrics.watch(catalogue.STREAMS, lambda: len(self.readers))

    def open(self, call: Call, caller: Caller) -> EventStream:
        """Open a stream, of which nothing is written yet.

        Args:
            call: what is asked for.
            caller: who asks.

        Raises:
            CallRefused: it may not be read, or is one too many.
        """
        judging = Work()
        try:
            query = read_stream_query(call.query, call.headers.get("last-event-id", ""))
            selections: Selections = NOTHING
            for text in query.selectors:
                selector = parse_selector(text)
                self._authorisation.check_select(caller, selector, judging)
                selections = selections.select(selector, judging)
            self.limits.open(caller.principal)
            self.limits.check_stream(caller, selections)
        except RequestRefused as error:
            raise refused(error) from None
        except HandshakeRefused as error:
            raise turned_away(error) from None
        finally:
            self.limits.charge_work(caller, judging.taken // STEPS_PER_PACKET)
        stream = EventStream(self, caller, selections, query.after)
        self.readers.add(stream.session)
        self.limits.enter_stream(stream.session)
        return stream

    def make_session(self, stream: EventStream, caller: Caller, selections: Selections) -> StreamSession:
        """Make what a stream is read by."""
        record = SessionRecord(
            id=self.clock.session_id(), principal=caller.principal, properties={}, window=0.0, owner=self.context.me
        ).shows(caller.identity)
        session = StreamSession(
            record,
            SessionMachine(Role.SERVER, self.context.parameters.session),
            stored_under=StoredUnder(self.context.grid.generation, 0),
            stop=stream.stop,
        )
        session.permissions = caller.permissions
        session.meter = caller.meter
        session.supports = frozenset({REPLAY})
        session.selections = selections
        # Whatever another node has shown the reader until now, this one must know before it shows anything (P6).
        session.elsewhere_until = self.clock.monotonic()
        return session

    def retry(self) -> float:
        """Tell after how many seconds a reader is to come back; by chance, so that not all come together."""
        return LEAST_RETRY + self.clock.random() * self.context.reconnect_advice.advice().initial

    async def drain(self) -> None:
        """End all streams, as fast as the other nodes can take their readers on."""
        # However many there are, the node has a bounded time to stop.
        longest = self.context.parameters.drain.timeout / DRAIN_SHARE * ENDED_TOGETHER / max(1, len(self.readers))
        pause = min(ENDED_TOGETHER / max(1.0, self.context.reconnect_advice.capacity), longest)
        async for some in portions(self.readers, ENDED_TOGETHER):
            for session in some:
                session.stop(StreamEnd.DRAINING)
            if len(self.readers):
                await asyncio.sleep(pause)

    # --- A new policy, a new revocation -------------------------------------------------------------------------------

    def _look_again(self) -> None:
        self._judge_again = True
        if not self._judging and len(self.readers):
            self._judging = True
            self.context.background.once(self._judge(), "review-streams")

    async def _judge(self) -> None:
        try:
            while self._judge_again:
                self._judge_again = False
                async for some in portions(self.readers, JUDGED_TOGETHER):
                    for session in some:
                        try:
                            self._judge_one(session)
                        except Exception as bug:  # noqa: BLE001 - the others must be judged
                            # It must not go on with what it may not have any more.
                            self.context.log.emit(events.STREAM_FAILED, error=repr(bug))
                            session.stop(StreamEnd.INTERNAL)
        finally:
            self._judging = False

    def _judge_one(self, session: StreamSession) -> None:
        if session.dropped:
            return
        if self._revocations.refuses(session):
            session.stop(StreamEnd.REVOKED)
            return
        session.permissions = self._authorisation.permissions_of(session)
        if self._authorisation.allowed(session, session.selections, Work()) != session.selections:
            session.stop(StreamEnd.FORBIDDEN)


class EventStream:
    """One stream; an ``EventSource``.

    Args:
        streams: of the node.
        caller: who reads.
        selections: which topics.
        after: by topic partition, the event up to which the reader knows all.

    Attributes:
        session: what it is read by.
    """

    __slots__ = ("_after", "_caller", "_connection", "_streams", "_timer", "_writer", "session")

    def __init__(self, streams: Streams, caller: Caller, selections: Selections, after: Mapping[int, EventId]) -> None:
        self._streams = streams
        self._caller = caller
        self._after = after
        self._writer = StreamWriter()
        self._connection: StreamConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.session = streams.make_session(self, caller, selections)

    @property
    def keep_alive(self) -> float:
        """See ``EventSource``."""
        return self._streams.context.parameters.session.ping_interval

    def begin(self, sink: EventSink) -> None:
        """See ``EventSource``."""
        session, streams = self.session, self._streams
        if session.dropped:  # revoked, in the moment since it was opened
            sink.finish()
            return
        connection = self._connection = StreamConnection(sink, self._writer, session, streams.clock, self._failed)
        session.machine.open(streams.clock.monotonic())
        session.connection = connection
        # At once, so that whoever is between passes the head on, and the reader knows that it is connected.
        sink.send(write_retry(streams.retry()))
        self._watch_credentials()
        streams.context.background.once(self._start(connection), "start-stream")

    def idle(self) -> None:
        """See ``EventSource``."""
        connection, session = self._connection, self.session
        if connection is None or session.dropped or connection.backlog():
            return
        places: Mapping[int, EventId] = {}
        if not session.machine.has_output:
            # Nothing waits, so the reader has been sent all that this node has handed to sessions.
            places = self._streams.delivery.cuts(session).places
        connection.send(self._writer.idle(places))

    def ended(self) -> None:
        """See ``EventSource``."""
        self._leave(StreamEnd.LEFT)

    def stop(self, why: StreamEnd) -> None:
        """End it.

        Args:
            why: what the reader is told, if it takes that.
        """
        connection = self._connection
        if not self._leave(why) or connection is None:
            return
        if why is StreamEnd.SLOW:
            connection.abort()
            return
        connection.send(write_retry(self._streams.retry()) + write_end(why.value, MESSAGES.get(why, why.value)))
        connection.finish()

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _start(self, connection: StreamConnection) -> None:
        try:
            await self._deliver(connection)
        except Exception as bug:  # noqa: BLE001 - its reader must not wait for ever
            self._failed(bug)

    async def _deliver(self, connection: StreamConnection) -> None:
        """Begin to send: what was missed, if that can be told, or else current values."""
        session, delivery = self.session, self._streams.delivery
        missed: dict[int, str] = {}
        if self._after:
            replay = await delivery.replays.collect(session, self._after)
            if session.dropped:
                return
            delivery.replays.settle(replay)
            missed = {number: why.value for number, why in replay.refused.items()}
            if delivery.replays.has_values(replay):
                # From here on nothing may come between: the session enters the index where the replay ends.
                places = {
                    number: self._after[number] if number in replay.runs else place.event(number)
                    for number, place in replay.upto.items()
                }
                self._open(connection, places, missed)
                delivery.replay(session, replay, {})
                self._streams.metrics.add(catalogue.STREAMS_OPENED, label="gap" if missed else "replayed")
                return
            missed = dict.fromkeys(replay.refused, NotReplayed.BEHIND.value)
        self._open(connection, {}, missed)
        label = "gap" if self._after else "fresh"
        self._streams.metrics.add(catalogue.STREAMS_OPENED, label=label)
        delivery.restoring(session)
        with suppress(GridUnavailable):  # else it is seen to a little later
            presence = delivery.watchers.presence
            await presence.watch(presence.partitions(each.selector for each in session.selections.entries))
        await delivery.prepare(session, session.selections)
        if session.dropped:
            return
        delivery.select(session, session.selections)
        topics = delivery.feed(session)
        self._streams.limits.charge_work(self._caller, topics // TOPICS_PER_PACKET)

    def _open(self, connection: StreamConnection, places: Mapping[int, EventId], missed: Mapping[int, str]) -> None:
        """Tell the reader how the stream goes on."""
        replayed = None if not self._after else dict(missed) or True
        connection.send(self._writer.begin(places, self._streams.context.me.node, replayed))
        if gone := missed.keys() & self._after.keys():
            connection.send(self._writer.missed(gone))

    def _leave(self, why: StreamEnd) -> bool:
        """Do nothing for it any more; False if nothing was done already."""
        session, streams = self.session, self._streams
        if session.dropped:
            return False
        session.dropped = True
        streams.readers.discard(session)
        streams.limits.leave_stream(session)
        streams.delivery.forget(session)
        streams.flusher.forget(session)
        if session.connection is not None:
            session.machine.close()
            session.connection = None
        if self._timer is not None:
            self._timer.cancel()
        streams.metrics.add(catalogue.STREAMS_ENDED, label=why.value)
        return True

    def _failed(self, bug: Exception) -> None:
        if not self.session.dropped:
            self._streams.context.log.emit(events.STREAM_FAILED, error=repr(bug))
            self.stop(StreamEnd.INTERNAL)

    def _watch_credentials(self) -> None:
        expires = self.session.credential_expires
        if expires is None or self.session.dropped:
            return
        left = expires - self._streams.clock.wall()
        if left <= 0:
            self.stop(StreamEnd.CREDENTIALS_EXPIRED)
        else:
            self._timer = asyncio.get_running_loop().call_later(min(left, LONGEST_STEP), self._watch_credentials)
