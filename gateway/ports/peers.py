"""The other nodes of the cluster, over connections between nodes: questions, records, and who is heard of.

**Nothing said over a link gives a right.** Who owns a session is decided by the grid alone (P3). What comes over a link
is a copy or a hint; what a node does because of it must be right also if the link lied, came late, or said nothing. So
this port knows no session, no epoch and no lease, and a link that is down costs quality, never correctness.

Two rules hold for all of it:

* **What a failure means.** ``NoLink`` and ``Declined`` mean that nothing was done. ``Silent`` leaves it open.
* **What a peer costs.** Nothing here waits for a peer but ``ask``, for as long as it is told. What a peer does not read
  is held up to ``LinkLimits``; beyond, its link breaks. What nobody takes of what it sends is bounded, too (P20).
  Messages are read at a bounded rate, some ten thousand a second: whoever has many small things to say gathers them.

A message is a *kind*, which is a short word of ``docs/reference/node-links.md``, and a body that only the users of that
kind understand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Final, Protocol, TypeAlias

from gateway.core.types import NodeRef
from gateway.core.wire.errors import GatewayError

KIND_BYTES: Final = 32
"""Longest kind of a message, in bytes of ASCII: it is a word."""

NODE_URI: Final = "urn:gateway:node:"
"""Begins a URI in a certificate that names a node; a DNS name is taken for the name of a node as it is."""


class NoLink(GatewayError):
    """There is no link to that node, or it takes nothing more: nothing was sent."""


class TooLarge(NoLink):
    """The message is larger than ``LinkLimits.message``: nothing was sent, and trying again is useless."""


class Declined(GatewayError):
    """The node does not understand the question, or has too many of them: it has done nothing."""


class Silent(GatewayError):
    """The node was asked and did not answer in time, or its link broke, or it failed: it may have been done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """What one link may cost its node.

    Attributes:
        message: bytes of the largest message. A session that is handed over may need more than 1 MiB.
        queue: bytes that wait to be sent; more breaks the link, because a peer that does not read must not grow the
            memory of this node, and a record left out would be missed by nobody. At least ``message``.
        inbox: bytes that were received and that nobody has taken yet; above, nothing more is read from that peer.
        inbox_messages: likewise, in messages.
        questions: questions without an answer in one direction; above, more of them are declined.
    """

    message: int = 16 * 1024 * 1024
    queue: int = 32 * 1024 * 1024
    inbox: int = 8 * 1024 * 1024
    inbox_messages: int = 10_000
    questions: int = 1024


@dataclass(frozen=True, slots=True)
class LinkState:
    """What is known of the link to one node.

    Attributes:
        up: whether there is one.
        silence: seconds since anything was heard from that node; infinite while there is no link.
    """

    up: bool
    silence: float = inf


DOWN: Final = LinkState(up=False)
"""No link."""


@dataclass(frozen=True, slots=True)
class PeerPlace:
    """Where a node of the cluster is met.

    Attributes:
        address: host:port of its link; empty if it has none.
        started: when this run of it started, in seconds since 1970 by its own clock: which of two runs is newer.
    """

    address: str
    started: float


@dataclass(frozen=True, slots=True)
class Up:
    """A link is there. Sequences of records begin at 1.

    Attributes:
        peer: the node.
        features: what both nodes can do, in words of the reference page.
    """

    peer: NodeRef
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Down:
    """A link is gone, with all that was under way on it.

    Attributes:
        peer: the node.
        why: for people.
        planned: whether one of the two nodes hung up on purpose: it stops, or takes another connection.
    """

    peer: NodeRef
    why: str
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Something that a node sent, in the order in which it was sent, none left out since its link came up.

    Attributes:
        peer: who sent it.
        sequence: what ``send`` returned there.
        kind: see the module.
        body: see the module.
    """

    peer: NodeRef
    sequence: int
    kind: str
    body: bytes


class AnswerStatus(IntEnum):
    """What became of a question."""

    ANSWERED = 0
    NOT_UNDERSTOOD = 1
    FAILED = 2
    BUSY = 3


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a node asks. Answer it once, in any way; whoever takes longer than *within* is not heard.

    Attributes:
        peer: who asks.
        kind: see the module.
        body: see the module.
        within: seconds for which the answer is waited for.
        reply: takes the answer; see the methods.
    """

    peer: NodeRef
    kind: str
    body: bytes
    within: float
    reply: Callable[[AnswerStatus, bytes], None]

    def answer(self, body: bytes) -> None:
        """Answer; one that is too large, or that the link has no room for, arrives as ``Silent``."""
        self.reply(AnswerStatus.ANSWERED, body)

    def decline(self) -> None:
        """Say that the kind is not known here and that nothing was done: the asker gets ``Declined``."""
        self.reply(AnswerStatus.NOT_UNDERSTOOD, b"")

    def fail(self) -> None:
        """Say that it went wrong in the middle: the asker gets ``Silent`` at once."""
        self.reply(AnswerStatus.FAILED, b"")


LinkEvent: TypeAlias = Up | Down | Record | Question
"""What comes from the other nodes."""


class PeerLinks(Protocol):
    """The links of one node to the others: at most one to each."""

    @property
    def address(self) -> str:
        """Where other nodes find this one, as host:port; known once it was started."""

    @property
    def protocols(self) -> tuple[int, ...]:
        """The versions of the protocol that this node speaks."""

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be listened on.
        """

    def meet(self, cluster: str, peers: Mapping[NodeRef, PeerPlace]) -> None:
        """Learn which other nodes there are; links to them come up by themselves, now and whenever they break.

        A node that was among them and is no more is hung up, as is one of another cluster, or an older run of one that
        is there. Before the first call there is no link.

        Args:
            cluster: id of this node's cluster.
            peers: all other nodes that live, also those without a link.
        """

    def state(self, node: NodeRef) -> LinkState:
        """Tell how the link to *node* is; ``DOWN`` for one that nobody knows."""

    async def ask(self, to: NodeRef, kind: str, question: bytes, *, within: float) -> bytes:
        """Ask a node and wait for its answer.

        Args:
            to: whom.
            kind: see the module.
            question: see the module.
            within: seconds to wait at most, until the last byte of the answer.

        Raises:
            NoLink, TooLarge, Declined: it has not happened.
            Silent: it may have happened.
        """

    def send(self, to: NodeRef, kind: str, record: bytes) -> int:
        """Send a record; it arrives after all that was sent before it on this link, or the link breaks.

        Args:
            to: to whom.
            kind: see the module.
            record: see the module.

        Returns:
            Its sequence: 1 for the first one since the link came up. That it was sent says nothing of its arrival.

        Raises:
            NoLink, TooLarge: it was not sent. If it had no room in the queue, the link is broken by that.
        """

    def events(self) -> AsyncIterator[LinkEvent]:
        """Yield what comes from the other nodes, in order for each of them. There is one taker at a time."""

    async def close(self) -> None:
        """Hang all up, and listen no more. Whoever waits for an answer gets ``Silent``."""
