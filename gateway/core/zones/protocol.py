"""The messages of zone links, as values: what two clusters say to each other (docs/reference/zone-links.md).

A link has a direction. The *sender* has dialled and tells of events; the *receiver* was dialled and tells what it is
interested in. The other direction is another link, which the other cluster dials.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from gateway.core.types import TopicPath
from gateway.core.wire.errors import GatewayError
from gateway.core.zones.compaction import MOST_SELECTORS
from gateway.core.zones.interest import InterestChange, InterestDigest
from gateway.core.zones.records import Member
from gateway.core.zones.routes import ClusterId, Path, Place
from gateway.core.zones.stamps import Origin, Stamp

PROTOCOLS: Final = (1,)
"""Versions of the protocol that this code speaks, ascending."""

MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Longest message: one event of the largest size that any node can take is within it."""

GREETING_BYTES: Final = 64 * 1024
"""Longest message of somebody who has not proved who it is."""

HEAD_BYTES: Final = 1024 * 1024
"""Longest JSON of a message, which is all of it but the values of events: to parse a byte may take a hundred times as
long as to read it. The longest honest one is a change of all the interest, of twice ``MOST_INTEREST_BYTES``."""

BATCH_BYTES: Final = 256 * 1024
"""Bytes of events above which a message of several is ended: some 2 ms on a link of 1 Gbit/s."""

BATCH_EVENTS: Final = 500
"""Events of a message, likewise: what the grid takes in one step."""

MOST_SHARES: Final = 64
"""Links over which one cluster may send to another: one for each topic partition at most."""

MOST_HEARD: Final = 3 * MOST_SELECTORS
"""Selectors that another cluster may tell: while all of them change, those of before and after are there together."""


class ZoneProtocolError(GatewayError):
    """What came is not the protocol of zone links; the message tells why."""


class ZoneTooMuch(ZoneProtocolError):
    """What came is more than a link may carry; nothing of it was taken."""


class Purpose(StrEnum):
    """What a link is for."""

    MEMBER = "member"
    """To send events to another member of the zone."""
    JOIN = "join"
    """To send events over a static join."""
    MEET = "meet"
    """To get to know a zone, or the other end of a join, and nothing else."""


class ZoneRefusal(StrEnum):
    """Why there is no link, or none any more."""

    PROTOCOL = "protocol"
    """No common version, or something that is no protocol."""
    ZONE = "zone"
    """It is not in this zone, or takes no such join."""
    PROOF = "proof"
    """It does not know the secret."""
    CERTIFICATE = "certificate"
    """The certificate is not the one that is known of this cluster."""
    LEFT = "left"
    """The cluster is a member no more."""
    STALE = "stale"
    """Another node sends for this cluster by now."""
    SELF = "self"
    """Both ends are the same cluster."""
    BUSY = "busy"
    """There are too many links, or there was no answer in time; it may be tried again."""
    LIMIT = "limit"
    """It has sent more than a link may carry, such as too many selectors."""
    STOPPED = "stopped"
    """The node stops, or the zone was left; another node may be tried."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The first message of whoever was dialled.

    Attributes:
        protocols: versions that it speaks.
        nonce: made by chance; the other side's proof contains it.
    """

    protocols: tuple[int, ...]
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who dials, for what, and the proof that it may.

    Attributes:
        protocol: version that it has chosen.
        purpose: what the link is for.
        reference: uid of the zone, or its name with ``MEET``; of a join the name of its key.
        cluster: who dials.
        name: of it, for people.
        place: where its events come from: the uid of its zone, or its own id.
        share: which share of the topic partitions it sends over this link.
        shares: how many such shares there are.
        term: of its carrier; a receiver refuses older ones.
        nonce: made by chance.
        proof: see ``gateway.core.zones.proofs``.
        member: its own record, so that it can be met; None over a join.
    """

    protocol: int
    purpose: Purpose
    reference: str
    cluster: ClusterId
    name: str
    place: Place
    share: int
    shares: int
    term: int
    nonce: str
    proof: str
    member: Member | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The link is up, for the one who was dialled.

    Attributes:
        cluster: who that is.
        name: of it, for people.
        place: where events come that are sent over this link.
        zone: uid of the zone; empty over a join.
        zone_name: its name; likewise.
        proof: see ``gateway.core.zones.proofs``.
    """

    cluster: ClusterId
    name: str
    place: Place
    zone: str
    zone_name: str
    proof: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """There is no link, or none any more. The last message of a side.

    Attributes:
        why: the reason.
        detail: more of it, for people.
    """

    why: ZoneRefusal
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Members:
    """What is known of members of the zone; only over links within it.

    Attributes:
        members: some of them or all.
    """

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class InterestAll:
    """The whole interest of the receiver.

    Attributes:
        revision: of it.
        selectors: all.
    """

    revision: int
    selectors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InterestAsk:
    """The sender has missed something and asks for the whole interest."""


@dataclass(frozen=True, slots=True)
class ValuesAsk:
    """The receiver has lost some of what it had, as its grid has lost writes; it asks for all current values again."""


class SentEvent(NamedTuple):
    """One event that crosses.

    Attributes:
        topic: what it is about.
        value: JSON text as it was published; empty if the topic was removed.
        origin: which publish it is.
        stamp: which of two values is the newer one; None if it was overtaken, so that only histories take it.
        path: places that it has left over joins.
    """

    topic: TopicPath
    value: bytes
    origin: Origin
    stamp: Stamp | None
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Events:
    """Events, those of each topic in the order in which the sender has them.

    Attributes:
        events: these.
        current: whether these are current values, told because there is new interest, and not published now.
    """

    events: tuple[SentEvent, ...]
    current: bool = False


@dataclass(frozen=True, slots=True)
class EventsAck:
    """Events are in the grid of the receiver, each that counts there.

    Attributes:
        messages: ``Events`` that have been applied on this link, since it came up.
    """

    messages: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The sender's stream does not reach back to what was sent last: some events will never come.

    Current values follow, so that it matters to histories alone.

    Attributes:
        partition: the sender's number of the topic partition.
    """

    partition: int


@dataclass(frozen=True, slots=True)
class Beat:
    """One lives. Sent if nothing else was.

    Attributes:
        time: what the clock of the sender of this message says, in milliseconds since 1970.
    """

    time: int


ZoneMessage: TypeAlias = (
    Challenge
    | Hello
    | Welcome
    | Refuse
    | Members
    | InterestAll
    | InterestChange
    | InterestDigest
    | InterestAsk
    | ValuesAsk
    | Events
    | EventsAck
    | Gap
    | Beat
)
"""Whatever is said over a zone link."""
