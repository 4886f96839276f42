"""Publish: how a run of a session's publishes becomes one step of the grid, and one run of replies (protocol 6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.delivery import Delivery
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.requests.receipts import Receipts
from gateway.app.requests.replies import decline, decline_for_now, number_used
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.topics.remembered import PLACE_BYTES, Remembered
from gateway.core.topics.topics import is_reserved, parse_topic, shown, topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Publish
from gateway.ports import Fenced, GridRefused, Operation, PublishCommand, Published, SessionChanges

KNOWN_TOPIC_BYTES: Final = 16 * 1024 * 1024
"""Bytes of topics whose check and partition are remembered: some 65,000 usual ones, those that are published most."""


def too_large(request: Publish, largest: int) -> RequestRefused:
    """Make the refusal of a value that has more than *largest* bytes."""
    return RequestRefused(
        f"the value has {len(request.value)} bytes; limits.value_bytes is {largest}", code=ErrorCode.VALUE_TOO_LARGE
    )


class Publishing:
    """Publishes on behalf of sessions.

    Args:
        context: of the node.
        store: where what a session will leave behind is written ahead (P7).
        delivery: told when what was published can be expected back.
        authorisation: judges it.
    """

    def __init__(self, context: Context, store: FencedStore, delivery: Delivery, authorisation: Authorisation) -> None:
        self._grid = context.grid
        self._policy = context.policy
        self._limits = context.limits
        self._clock = context.clock
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._journal = context.journal
        self._store = store
        self._delivery = delivery
        self._authorisation = authorisation
        self._places: Remembered[str, tuple[TopicPath, int]] = Remembered(
            KNOWN_TOPIC_BYTES, lambda text, _: getsizeof(text) + PLACE_BYTES
        )

    async def publish(self, session: Session, run: Sequence[Publish]) -> None:
        """Publish a run; refusals are answered only when the fate of the others is known, so that they come once.

        Raises:
            Fenced, SessionGone: the session is not this node's any more.
            GridUnavailable: some may have been published; asking again does no harm.
            GridRefused: nothing was published.
        """
        refused: list[tuple[RequestNumber, RequestRefused]] = []
        touched: set[int] = set()
        commands = self._commands(session, run, refused, touched)
        if commands:
            began = self._clock.monotonic()
            await self._store.verify(session)
            await self._note_partitions(session, touched)
            started = self._clock.monotonic()
            with self._tracer.span(Operation.PUBLISH) as span:
                span.note("requests", len(commands))
                results = await self._grid.topics.publish(commands)
            self._reply(session, run, Receipts(commands, results, run))
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
            decline(session, number, refusal)

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
        largest, place = self._policy.limits.value_bytes, self._place
        asks = not session.permissions.publishes_all
        most, most_bytes = self._limits.most_topics(session), self._policy.partition_bytes
        for request in run:
            try:
                if len(request.value) > largest:
                    raise too_large(request, largest)
                topic, partition = place(request.topic)
                if asks:
                    self._authorisation.check_publish(session, topic)
            except RequestRefused as reason:
                # Its trace leads to this very list, and the session and what it published would stay with it.
                refused.append((request.request, reason.with_traceback(None)))
            else:
                touched.add(partition)
                commands.append(
                    PublishCommand(ownership, request.request, settled, topic, request.value, stored, most, most_bytes)
                )
        return commands

    def _place(self, text: str) -> tuple[TopicPath, int]:
        known = self._places.get(text)
        return self._places.put(text, self._find_place(text)) if known is None else known

    def _find_place(self, text: str) -> tuple[TopicPath, int]:
        """Validate a topic and tell its partition; see ``parse_topic``."""
        topic = parse_topic(text)
        if is_reserved(topic):
            raise RequestRefused(
                f"only the gateway publishes below {shown(topic)}: first segments that begin with '$' are the system's",
                code=ErrorCode.FORBIDDEN,
            )
        return topic, topic_partition(topic, self._policy.topic_depth)

    async def _note_partitions(self, session: Session, touched: set[int]) -> None:
        """Write ahead which partitions will hold receipts of the session, so that its end can remove them (P7)."""
        if not touched <= session.publish_partitions:
            partitions = session.publish_partitions | touched
            await self._store.change(session, SessionChanges(publish_partitions=partitions))
            session.publish_partitions = partitions

    def _reply(self, session: Session, run: Sequence[Publish], receipts: Receipts) -> None:
        """Answer a run of publishes by a run of replies.

        Raises:
            Fenced: the grid refused one; those before it are answered.
            GridRefused: the grid refuses to write, and the client may not be told: nothing is answered.
        """
        if receipts.refused:
            for request in run:
                if request.resubmitted and request.request in receipts.refused:
                    # Another node may have executed it (protocol 5.2.4).
                    raise GridRefused(receipts.refused[request.request])
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
            raise Fenced(receipts.fenced)

    def _decline(self, session: Session, receipts: Receipts) -> None:
        refused = len(receipts.not_created) + len(receipts.not_stored) + len(receipts.refused) + len(receipts.used)
        self._metrics.add(catalogue.PUBLISHES, refused, label="refused")
        for number in receipts.used:
            decline(session, number, number_used(number))
        for number in receipts.not_created:
            decline(session, number, self._limits.too_many_topics(session))
        for number in receipts.not_stored:
            decline(session, number, self._limits.too_many_bytes(session))
        for number, why in receipts.refused.items():
            decline_for_now(session, number, why)
