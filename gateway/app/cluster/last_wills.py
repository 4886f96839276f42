"""Executes what sessions have left, whoever ends them: each will once, by the policy of now (ADR 0119)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gateway.app.context import Context
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.meter import Meter
from gateway.catalogue import will_log_events as events
from gateway.catalogue import will_metrics as catalogue
from gateway.core.pacing.accounts import Account
from gateway.core.policy.permissions import Permissions
from gateway.core.topics.topics import is_reserved, parse_topic, topic_partition
from gateway.core.types import RequestNumber, SessionId, TopicPath
from gateway.core.wire.codec.will_packets import read_wills
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.will_packets import Will
from gateway.ports import (
    Fenced,
    GridRefused,
    LastWills,
    Ownership,
    PublishCommand,
    Published,
    PublishResult,
    ReceiptsLeft,
)

PUBLISHER: Final = "$will-"
"""Begins the name under which the wills of a session are published: the same at every node that executes them. Not the
session's own name, as what it has published itself may still be under way, and would come after its last request."""

NOTHING_SETTLED: Final = RequestNumber(0)
"""All receipts are kept until the wills are executed."""


class _Testator:
    """Who has left wills; a ``Subject``."""

    meter: Meter | None = None
    rests_until = 0.0
    account: Account | None = None

    def __init__(self, principal: str, permissions: Permissions) -> None:
        self.principal = principal
        self.permissions = permissions


class _Asked(NamedTuple):
    """What is asked of the grid for a session that has left wills.

    Attributes:
        left: what it has left.
        commands: its wills for this kind of end.
        refused: topics of those that may not be published, and why.
    """

    left: LastWills
    commands: list[PublishCommand]
    refused: list[tuple[str, str]]


class WillExecution:
    """Executes wills; see ``WillExecutor``.

    Args:
        context: of the node.
        authorisation: judges them, by what the principal may do now.
        loaded: tells whether it is known what paths are.
    """

    def __init__(self, context: Context, authorisation: Authorisation, loaded: Callable[[], bool]) -> None:
        self._grid = context.grid
        self._parameters = context.parameters
        self._destinations = context.destinations
        self._metrics = context.metrics
        self._log = context.log
        self._authorisation = authorisation
        self._loaded = loaded

    async def execute(self, left: Sequence[LastWills]) -> Mapping[SessionId, Sequence[ReceiptsLeft]]:
        """Publish what sessions have left for the kind of their end.

        Raises:
            GridUnavailable: some may have been published; they will not be again when this is repeated.
        """
        if not self._loaded():
            return {}  # It is not known yet what paths are: they wait.
        asked = [self._asked(each) for each in left]
        results = iter(await self._grid.topics.publish([each for some in asked for each in some.commands]))
        depth = self._parameters.topic_depth
        executed: dict[SessionId, Sequence[ReceiptsLeft]] = {}
        for each in asked:
            # Redis is full, or does not serve a topic now. The session stays marked, and is finished when it does.
            if not self._count(each, list(islice(results, len(each.commands)))):
                continue
            places = {(command.ownership.session, topic_partition(command.topic, depth)) for command in each.commands}
            executed[each.left.session] = [ReceiptsLeft(*place) for place in sorted(places)]
        return executed

    def _asked(self, left: LastWills) -> _Asked:
        asked = _Asked(left, [], [])
        try:
            wills = read_wills(left.wills)
        except ValueError as error:
            asked.refused.append(("", str(error)))
            return asked
        permissions = self._authorisation.permissions_for(left.principal, left.roles, left.principal_properties)
        testator = _Testator(left.principal, permissions)
        ownership = Ownership(SessionId(f"{PUBLISHER}{left.session}"), left.owner, left.epoch)
        for number, will in enumerate(wills, 1):
            if left.kind not in will.when:
                continue
            try:
                topic = self._judge(testator, will)
            except RequestRefused as refusal:
                asked.refused.append((will.topic, str(refusal)))
                continue
            asked.commands.append(
                PublishCommand(
                    *(ownership, RequestNumber(number), NOTHING_SETTLED, topic, will.value),
                    most_topics=self._parameters.partition_topics,
                    most_bytes=self._parameters.partition_bytes,
                    history=self._destinations.history(topic),
                    ttl=self._destinations.ttl(topic) if will.ttl is None else will.ttl,
                )
            )
        return asked

    def _judge(self, testator: _Testator, will: Will) -> TopicPath:
        """Let pass a will that may be published today.

        Raises:
            RequestRefused: it may not.
        """
        topic = parse_topic(will.topic)
        if is_reserved(topic):
            raise RequestRefused("only the gateway publishes there")
        if not testator.permissions.publishes_all:
            self._authorisation.check_publish(testator, topic)
        return topic

    def _count(self, asked: _Asked, results: Sequence[PublishResult]) -> bool:
        """Count what became of the wills of a session; tells whether that is the end of them.

        What is refused is told once: when none of them has to wait.
        """
        is_done = not any(isinstance(each, GridRefused) for each in results)
        refused = asked.refused
        for command, result in zip(asked.commands, results, strict=True):
            if isinstance(result, Published):
                if not result.duplicate:
                    self._metrics.add(catalogue.WILLS, label="published")
            elif not isinstance(result, Fenced):  # else another node has executed it, and has come to the end
                refused.append((command.topic, "there is no room for it"))
        for topic, why in refused if is_done else ():
            left = asked.left
            self._metrics.add(catalogue.WILLS, label="refused")
            self._log.emit(events.WILL_REFUSED, session=left.session, principal=left.principal, topic=topic, why=why)
        return is_done
