"""Who has subscribed to a tree of topics, as an application gets it: a part of ``Session``, and ``Presence``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from gateway.client.arguments import text_of
from gateway.client.queues import QUEUE_BYTES, QUEUE_SIZE, ConflatingQueue
from gateway.client.streams import Feed
from gateway.client.supervisor import Supervisor
from gateway.core.client.errors import InvalidTopic
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.types import Update
from gateway.core.topics.selectors import ANY, Selector, parse_selector
from gateway.core.topics.topics import PRESENCE_COUNT, PRESENCE_MEMBERS, PRESENCE_ROOT, SEPARATOR, parse_topic
from gateway.core.types import TopicPath
from gateway.core.wire.packets import Subscribe


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who has subscribed to topics of a tree.

    Attributes:
        session_id: whose session it is.
        principal: who it belongs to.
        properties: those that the tree's destination shows.
    """

    session_id: str
    principal: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PresenceEvent:
    """Something has changed.

    Attributes:
        kind: ``joined``, ``changed`` (other properties) or ``left``, of a member; or ``count``.
        member: who; None for ``count``.
        count: how many there are, as far as it has been told: at most once a second, so not with each member.
    """

    kind: Literal["joined", "changed", "left", "count"]
    member: Member | None
    count: int


class _NotingQueue(ConflatingQueue):
    """A queue that tells what comes into it; older updates than those before do not come so far.

    Args:
        note: is told.
    """

    def __init__(self, note: Callable[[Update], None]) -> None:
        super().__init__(QUEUE_SIZE, QUEUE_BYTES)
        self._note = note

    def push(self, update: Update, octets: int) -> None:
        """See ``ConflatingQueue``."""
        self._note(update)
        super().push(update, octets)


class _PresenceFeed(Feed):
    """Where the updates about one tree come.

    Args:
        tree: its path.
        members: whether members are wanted, or their number alone.
    """

    def __init__(self, tree: TopicPath, *, members: bool) -> None:
        begins = f"{PRESENCE_ROOT}{SEPARATOR}{tree}{SEPARATOR}"
        self.count_topic = begins + PRESENCE_COUNT
        self._before_session = f"{begins}{PRESENCE_MEMBERS}{SEPARATOR}"
        self.selectors = [parse_selector(self.count_topic)]
        whole: Selector = self.selectors[0]
        if members:
            self.selectors.append(parse_selector(f"{self._before_session}*"))
            whole = parse_selector(begins + ANY)
        super().__init__(whole, size=QUEUE_SIZE, octets=QUEUE_BYTES)
        self._queue = _NotingQueue(self.note)
        self._members = members
        self.count = self.listed = 0
        self.members: dict[str, Member] = {}
        self.seen: dict[str, Member] = {}

    def session_of(self, topic: str) -> str | None:
        """Tell of whose membership a topic tells."""
        session = topic.removeprefix(self._before_session)
        return session if self._members and session != topic and SEPARATOR not in session else None

    def takes(self, topic: TopicPath) -> bool:
        """See ``Feed``: nothing of trees within this one."""
        return (topic == self.count_topic or self.session_of(topic) is not None) and super().takes(topic)

    def note(self, update: Update) -> None:
        """Take in what is known now: that does not wait for a reader."""
        session = self.session_of(update.topic)
        if session is None:
            told = update.value or {}
            self.count, self.listed = told.get("count", 0), told.get("listed", 0)
        elif update.removed:
            self.members.pop(session, None)
        else:
            self.members[session] = _member(session, update.value)


class Presence:
    """Who has subscribed to a tree of topics; iterate over it with ``async for`` to hear who comes and goes.

    What comes first are the members that were there before, as ``joined``. It goes on by itself whatever becomes of the
    session's connections and nodes. A member stays one while its client recovers; it leaves when it unsubscribes, or
    its session ends.

    Made by ``Session.presence``. Leaving ``async with presence`` closes it.
    """

    def __init__(self, feed: _PresenceFeed, supervisor: Supervisor, tree: str) -> None:
        self._feed = feed
        self._supervisor = supervisor
        self.tree = tree

    def __repr__(self) -> str:
        return f"<Presence {self.tree} count={self.count}>"

    @property
    def count(self) -> int:
        """How many there are, all nodes together, as it was told last; it is told once a second while it changes."""
        return self._feed.count

    @property
    def listed(self) -> int:
        """Of how many of these it is told who they are; less than all where there are more than the tree lists."""
        return self._feed.listed

    @property
    def members(self) -> Mapping[str, Member]:
        """Those of whom it was told, by the ids of their sessions; this very session may be among them."""
        return MappingProxyType(self._feed.members)

    @property
    def closed(self) -> bool:
        """Whether nothing further will be told."""
        return self._feed.ended

    def close(self) -> None:
        """Hear nothing more; returns at once."""
        self._supervisor.streams.close(self._feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PresenceEvent:
        """Wait for the next change.

        Raises:
            StopAsyncIteration: it was closed.
            StreamOverflow: it has ended because it was read too slowly.
            SessionEnded: the session died of something.
        """
        while True:
            event = self._event(await self._feed.next())
            if event is not None:
                return event

    def _event(self, update: Update) -> PresenceEvent | None:
        feed = self._feed
        session = feed.session_of(update.topic)
        if session is None:
            return PresenceEvent("count", None, (update.value or {}).get("count", 0))
        before = feed.seen.get(session)
        if update.removed:
            feed.seen.pop(session, None)
            return None if before is None else PresenceEvent("left", before, feed.count)
        member = feed.seen[session] = _member(session, update.value)
        if member == before:
            return None
        return PresenceEvent("joined" if before is None else "changed", member, feed.count)


class PresenceCalls:
    """The methods of a session that are about presence."""

    _supervisor: Supervisor

    async def presence(
        self,
        tree: str,
        *,
        members: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> Presence:
        """Hear who has subscribed to topics of a tree, and who comes and goes.

        An operator has said that the tree tells it, and that this principal may see it.

        Args:
            tree: its path, such as ``rooms/7``.
            members: whether it is told who they are; else only how many, which costs little however many come and go.
            timeout: seconds; None for the session's default.

        Raises:
            InvalidTopic: the path breaks the rules of protocol section 6.
            Forbidden: the policy does not let this principal see it.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``subscribe``.
        """
        path = parse_topic(text_of("tree", tree, InvalidTopic))
        feed = _PresenceFeed(path, members=members)
        streams = self._supervisor.streams
        streams.add(feed)
        try:
            for each in feed.selectors:
                await self._supervisor.request(Subscribe(UNNUMBERED, each.text), timeout)
        except BaseException:
            streams.close(feed)
            raise
        return Presence(feed, self._supervisor, path)


def _member(session: str, told: Mapping[str, object]) -> Member:
    properties = told.get("properties")
    shown = {str(name): str(value) for name, value in properties.items()} if isinstance(properties, Mapping) else {}
    return Member(session, str(told.get("principal", "")), shown)
