"""Publish: how a run of a session's publishes becomes one step of the grid, and one run of replies (protocol 6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.delivery import Delivery
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Outdated
from gateway.app.requests.receipts import Receipts
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.destinations.table import DestinationTable
from gateway.core.session.server_session import number_used
from gateway.core.topics.remembered import PLACE_BYTES, Remembered
from gateway.core.topics.topics import is_reserved, parse_topic, shown, topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Publish
from gateway.core.wire.publish_packet import FOR_EVER
from gateway.core.wire.will_packets import Will
from gateway.ports import Fenced, GridRefused, Operation, Ownership, PublishCommand, Published, StagedPublish

KNOWN_TOPIC_BYTES: Final = 16 * 1024 * 1024
"""Bytes of topics whose check and partition are remembered: some 65,000 usual ones, those that are published most."""


def too_large(request: Publish | Will, largest: int) -> RequestRefused:
    """Make the refusal of a value that has more than *largest* bytes."""
    return RequestRefused(
        f"the value has {len(request.value)} bytes; limits.value_bytes is {largest}", code=ErrorCode.VALUE_TOO_LARGE
    )


def topic_to_publish(text: str) -> TopicPath:
    """Validate a topic that a client wants to publish to.

    Raises:
        RequestRefused: it breaks the rules of protocol section 6, or is one of the system's.
    """
    topic = parse_topic(text)
    if is_reserved(topic):
        raise RequestRefused(
            f"only the gateway publishes below {shown(topic)}: first segments that begin with '$' are the system's",
            code=ErrorCode.FORBIDDEN,
        )
    return topic


def time_to_live(request: Publish, topic: TopicPath, destinations: DestinationTable) -> float:
    """Tell after how many seconds a value ends, as its publisher says or else as the topic has it; 0 for never."""
    return destinations.ttl(topic) if request.ttl is None else request.ttl


class Publishing:
    """Publishes on behalf of sessions.

    Args:
        context: of the node.
        store: where what a session will leave behind is written ahead (P7).
        delivery: told when what was published can be expected back.
        authorisation: judges it.
    """

    def __init__(self, context: Context, store: FencedStore, delivery: Delivery, authorisation: Authorisation) -> None:
        self._parameters = context.parameters
        self._limits = context.limits
        self._clock = context.clock
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._journal = context.journal
        self._destinations = context.destinations
        self._store = store
        self._delivery = delivery
        self._authorisation = authorisation
        self._places: Remembered[str, tuple[TopicPath, int]] = Remembered(
            KNOWN_TOPIC_BYTES, lambda text, _: getsizeof(text) + PLACE_BYTES
        )

    async def publish(self, session: Session, run: Sequence[Publish]) -> None:
        """Publish a run; refusals are answered only when the fate of the others is known, so that they come once.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: some may have been published; asking again does no harm.
            GridRefused: nothing was published.
        """
        refused: list[tuple[RequestNumber, RequestRefused]] = []
        touched: set[int] = set()
        commands = self._commands(session, run, refused, touched)
        if commands:
            began = self._clock.monotonic()
            if not self._store.is_ready(session, touched):
                try:
                    await self._store.prepare(session, touched)
                finally:
                    self._limits.recount(session)
            started = self._clock.monotonic()
            with self._tracer.span(Operation.PUBLISH) as span:
                span.note("requests", len(commands))
                results = await self._store.publish(commands)
            receipts = Receipts(commands, results, run)
            self._reply(session, commands[0].ownership, run, receipts)
            self._metrics.observe(catalogue.PUBLISH_SECONDS, self._clock.monotonic() - began)
            for result in results:
                if isinstance(result, Published):
                    self._delivery.lag.published(result.event, started)
            if self._journal.traffic is not None:
                self._journal.traffic.accepted(commands, results)
        for number, refusal in refused:
            if refusal.code is ErrorCode.VALUE_TOO_LARGE:
                self._limits.count("limit_value_bytes")
            self._metrics.add(catalogue.PUBLISHES, label="refused")
            session.decline(number, refusal)

    def _commands(
        self,
        session: Session,
        run: Sequence[Publish],
        refused: list[tuple[RequestNumber, RequestRefused]],
        touched: set[int],
    ) -> list[PublishCommand]:
        """Make the commands of a run, and note what cannot be published and which partitions the rest is for."""
        commands: list[PublishCommand] = []
        settled, ownership, stored = session.settled(), session.ownership, self._store.replicated
        largest, place = self._parameters.limits.value_bytes, self._place
        asks = not session.permissions.publishes_all
        known = session.publish_partitions
        destinations, history = self._destinations, None
        most, most_bytes = self._limits.most_topics(session), self._parameters.partition_bytes
        for request in run:
            try:
                if len(request.value) > largest:
                    raise too_large(request, largest)
                topic, partition = place(request.topic)
                if asks:
                    self._authorisation.check_publish(session, topic)
                if partition not in known:
                    # Nobody can have executed it: that it may leave a receipt there is written ahead.
                    self._limits.check_receipts(session, len(known) + 1)
                    known |= {partition}
            except RequestRefused as reason:
                # Its trace leads to this very list, and the session and what it published would stay with it.
                refused.append((request.request, reason.with_traceback(None)))
            else:
                touched.add(partition)
                if destinations.has_history:
                    history = destinations.history(topic)
                is_plain = request.ttl is None and not destinations.has_ttl
                ttl = FOR_EVER if is_plain else time_to_live(request, topic, destinations)
                commands.append(
                    PublishCommand(
                        *(ownership, request.request, settled, topic, request.value, stored, most, most_bytes),
                        *(history, ttl),
                    )
                )
        return commands

    def staged(self, session: Session, request: Publish) -> StagedPublish:
        """Make of a publish what its transaction does.

        Raises:
            RequestRefused: it cannot be published.
        """
        largest = self._parameters.limits.value_bytes
        if len(request.value) > largest:
            self._limits.count("limit_value_bytes")
            raise too_large(request, largest)
        topic, _ = self._place(request.topic)
        if not session.permissions.publishes_all:
            self._authorisation.check_publish(session, topic)
        return StagedPublish(
            topic,
            request.value,
            self._limits.most_topics(session),
            self._parameters.partition_bytes,
            self._destinations.history(topic) if self._destinations.has_history else None,
            time_to_live(request, topic, self._destinations),
        )

    def _place(self, text: str) -> tuple[TopicPath, int]:
        known = self._places.get(text)
        return self._places.put(text, self._find_place(text)) if known is None else known

    def _find_place(self, text: str) -> tuple[TopicPath, int]:
        """Validate a topic and tell its partition; see ``topic_to_publish``."""
        topic = topic_to_publish(text)
        return topic, topic_partition(topic, self._parameters.topic_depth)

    def _reply(self, session: Session, ownership: Ownership, run: Sequence[Publish], receipts: Receipts) -> None:
        """Answer a run of publishes by a run of replies.

        Raises:
            Outdated: the grid refused one, which says nothing of the session of now: nothing is answered.
            SessionLost: the grid refused one; those before it are answered.
            GridRefused: the grid refuses to write, and the client may not be told: nothing is answered.
        """
        self._refuse_whole(session, ownership, run, receipts)
        answered, duplicates = receipts.answered, receipts.duplicates
        if answered:
            session.reply_run(receipts.bodies, min(answered), max(answered))
            if duplicates:
                session.deduplicated += duplicates
                self._metrics.add(catalogue.PUBLISHES, duplicates, label="duplicate")
            if duplicates < len(answered):
                self._metrics.add(catalogue.PUBLISHES, len(answered) - duplicates, label="published")
        if receipts.created:
            self._limits.created(session, receipts.created)
        if receipts.not_created or receipts.not_stored or receipts.refused or receipts.used:
            self._decline(session, receipts)
        if receipts.fenced is not None:
            raise self._store.lost(session, ownership, Fenced(receipts.fenced))

    def _refuse_whole(self, session: Session, ownership: Ownership, run: Sequence[Publish], receipts: Receipts) -> None:
        """Raise what ``_reply`` does if nothing of a run may be answered: it is asked again, and answered then."""
        if receipts.fenced is not None and self._store.is_outdated(session, ownership):
            raise Outdated
        if receipts.refused:
            for request in run:
                if request.resubmitted and request.request in receipts.refused:
                    # Another node may have executed it (protocol 5.2.4).
                    raise GridRefused(receipts.refused[request.request])

    def _decline(self, session: Session, receipts: Receipts) -> None:
        refused = len(receipts.not_created) + len(receipts.not_stored) + len(receipts.refused) + len(receipts.used)
        self._metrics.add(catalogue.PUBLISHES, refused, label="refused")
        for number in receipts.used:
            session.decline(number, number_used(number))
        for number in receipts.not_created:
            session.decline(number, self._limits.too_many_topics(session))
        for number in receipts.not_stored:
            session.decline(number, self._limits.too_many_bytes(session))
        for number, why in receipts.refused.items():
            session.decline_for_now(number, why)
