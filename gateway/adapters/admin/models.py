"""What goes in and out of the admin API, as types: requests are checked by them, the OpenAPI document says them.

Their docstrings and descriptions are read by users of the API.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from gateway.core.destinations.destination import Origin
from gateway.core.destinations.limits import LEAST_BYTES, LONGEST_AGE, LONGEST_PAUSE, MOST_PRESENCE_MEMBERS
from gateway.core.policy.revocations import MAX_REVOCATION_REASON, MAX_REVOKED_VALUE, RevocationKind
from gateway.core.wire.publish_packet import LONGEST_TTL, SHORTEST_TTL
from gateway.ports.administration import NodeState

MOST_ITEMS: Final = 1000
"""Most items of a page: some hundred KB of sessions."""

DEFAULT_ITEMS: Final = 100
"""Items of a page if nobody asks for another number."""

LONGEST_ID: Final = 128
"""Characters of a session's id in a path; those that exist are shorter."""

LAST_MOMENT: Final = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970."""

_SEGMENT: Final = r"[^/*\u0000-\u001f\u007f-\u009f\u2028\u2029]+"
TOPIC_PATTERN: Final = f"^{_SEGMENT}(/{_SEGMENT}){{0,31}}$"
"""What a topic looks like, as a regular expression of JSON Schema."""

LONGEST_NOTICE: Final = 2000
"""Characters of a notice: some paragraphs."""

Cursor = Annotated[
    str,
    Field(min_length=1, max_length=4096, pattern="^[A-Za-z0-9_-]+$", description="The `cursor` of the page before."),
]


def _plain_number(given: object) -> object:
    """Take numbers as JSON writes them: no blanks, signs or underscores, which the document does not promise."""
    if isinstance(given, str) and not (given.isascii() and given.isdigit()):
        raise PydanticCustomError("number", "must be a number, written in digits alone")
    return given


def _plain_switch(given: object) -> object:
    """Take ``true`` and ``false``, and no other words for it."""
    if isinstance(given, str) and given not in {"true", "false"}:
        raise PydanticCustomError("switch", "must be true or false")
    return given


def _revocation_word(given: object) -> object:
    """Take the words of the enumeration, though JSON has nothing but texts."""
    return RevocationKind(given) if isinstance(given, str) and given in set(RevocationKind) else given


RevocationWord = Annotated[RevocationKind, BeforeValidator(_revocation_word)]
Switch = Annotated[bool, BeforeValidator(_plain_switch)]
PlainNumber: Final = BeforeValidator(_plain_number)
Limit = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="Most items of the page."), PlainNumber]


class Given(BaseModel):
    """Anything that a caller gives: what is not known is refused, because it would be silently ignored else."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Told(BaseModel):
    """Anything that is answered."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)


# --- Nodes ------------------------------------------------------------------------------------------------------------


class Node(Told):
    """A node of the cluster. What it reports is as old as the last renewal of its lease."""

    node: str = Field(description="Name of the node.")
    incarnation: str = Field(description="Identifies this run of the node.")
    state: NodeState = Field(
        description="`ready`: accepts new sessions. `not_ready`: keeps its own, see `reasons`. `draining`: its "
        "sessions are moved to other nodes, or have been. `expired`: its lease has expired. `lost`: it died within the "
        "last hour, others have taken its sessions over, and no node of its name is there. `unknown`: it has not "
        "reported yet."
    )
    reasons: list[str] = Field(description="Why it accepts no new sessions, for people.")
    listen: str | None = Field(description="Where its clients connect.")
    admin: str | None = Field(description="Where other nodes reach its admin port: a URL without a path.")
    version: str | None = Field(description="Version of the gateway that the node runs.")
    started: float | None = Field(description="When it started, in seconds since 1970.")
    connected: int | None = Field(description="Sessions with a client.")
    disconnected: int | None = Field(description="Sessions without a client whose windows have not ended.")
    lag: float | None = Field(description="Seconds by which its event loop was late when it last looked.")
    lost: float | None = Field(description="Seconds since the lease of a lost node ended; null for the others.")
    link: str | None = Field(description="Where other nodes have a link to it.")
    linked: bool | None = Field(
        description="Whether the node that answers has a link to it; null if one of the two has the setting `link` not."
    )
    heard: float | None = Field(
        description="Seconds since the node that answers heard of it over their link; null without one."
    )
    backup: str | None = Field(
        description="The node that keeps copies of its sessions, or kept them when it died; null if none does."
    )
    mirror: str | None = Field(
        description="What it waits for before packets leave: `async` for nothing, `sync` or `strict` for the backup."
    )
    copied: int | None = Field(description="Sessions of which the backup has a whole copy.")
    to_copy: int | None = Field(description="Sessions of which it is to have one.")
    suspected_by: list[str] = Field(
        description="Names of the nodes that do not hear it any more over their links, though its lease holds: it "
        "hangs, has just died, or the network between them is cut. Only in lists."
    )
    master: bool = Field(description="Whether it is the master of the cluster, as the node that answers last saw it.")
    here: bool = Field(description="Whether it is the node that answers.")


class Takeover(Told):
    """What the others do for a node that has failed."""

    node: str = Field(description="Name of the node that has failed.")
    incarnation: str = Field(description="Identifies the run of it that has failed.")
    by: str | None = Field(
        description="Name of the node that takes over, or cleans up; null if all is taken over, and what is transient "
        "of the node is left alone for the time of `transient_wait`."
    )
    stage: str | None = Field(
        description="The stage that is under way: `sessions`, `done`, `reports`; null if none is."
    )
    step: int = Field(description="The first step of that stage that is not done for certain.")
    sessions: int = Field(description="Sessions whose windows have begun, so far.")
    left: float = Field(
        description="Seconds until another node may go on in its place, or until what is transient may be cleaned up."
    )


class Takeovers(Told):
    """All takeovers that are under way, and those after which something is to be cleaned up."""

    items: list[Takeover]


class Nodes(Told):
    """All nodes that hold a lease, those whose sessions other nodes have yet to take over, and lost ones."""

    items: list[Node]


class NodePath(Given):
    """Which node."""

    node: str = Field(min_length=1, max_length=63, description="Name of the node.", examples=["n1"])


# --- Sessions ---------------------------------------------------------------------------------------------------------


class Session(Told):
    """A session as lists show it."""

    session: str = Field(description="Its id. Not secret.")
    principal: str = Field(description="Principal of the session. Untrusted text, as are the properties.")
    node: str = Field(description="The node that owns the session.")
    incarnation: str = Field(description="Identifies the run of that node.")
    connected: bool = Field(description="Whether it has a client.")
    properties: dict[str, str] = Field(description="The user's properties, and `$client`.")
    window: float = Field(description="Seconds it survives without a client.")
    epoch: int = Field(description="How often it was claimed.")


class Live(Told):
    """State of a session that only its node knows."""

    address: str | None = Field(description="Where its client comes from.")
    link: str = Field(description="State of the packet layer: `attached`, `detached`, `gap`, …")
    received: int = Field(description="Id of the last packet received from the client in order.")
    numbered: int = Field(description="Id of the last packet numbered for the client.")
    resend_packets: int = Field(description="Packets kept until the client acknowledges them.")
    resend_bytes: int = Field(description="Their bytes.")
    waiting_packets: int = Field(description="Packets that wait for a slow client: the depth of its queue.")
    waiting_bytes: int = Field(description="Their bytes.")
    requests: int = Field(description="Requests of the client without a reply.")
    moving: bool = Field(description="Whether it is being moved to another node.")
    throttled: bool = Field(description="Whether reading from its client is paused, because it sends more than it may.")


class SessionDetail(Session):
    """A session with all details."""

    selections: list[str] = Field(description="Its subscriptions: `+selector` and `-selector`, in order.")
    live: Live | None = Field(description="From the memory of its node; null if the node did not answer, see `note`.")
    note: str | None = Field(description="Why `live` is null.")


class SessionPage(Told):
    """Some sessions."""

    items: list[Session]
    cursor: str | None = Field(
        description="Pass it to get the next page; null on the last one. A page may have few items, or none, though "
        "more follow: it also ends after so much work."
    )


class SessionQuery(Given):
    """Which sessions."""

    filter: str | None = Field(
        default=None,
        max_length=2000,
        description="Only sessions that match this filter.",
        examples=["$principal is 'alice' and team is 'fx' or not $node is 'n1'"],
    )
    limit: Limit = DEFAULT_ITEMS
    cursor: Cursor | None = None


class SessionPath(Given):
    """Which session."""

    session: str = Field(min_length=1, max_length=LONGEST_ID, description="Id of the session.")


class PendingClose(Told):
    """The session is closed at its node, and its end in the grid is still to come."""

    session: str
    node: str = Field(
        description="The node that has closed it. It ends the session in the grid as soon as the grid answers; if it "
        "stops first, the session survives."
    )
    detail: str = Field(description="What has happened and what is still to come, for people.")


class Move(Given):
    """The node to move to."""

    node: str | None = Field(
        default=None, min_length=1, max_length=63, description="Name of the node; absent: the one with fewest sessions."
    )


class Moving(Told):
    """A move has begun."""

    session: str
    node: str = Field(description="The node that the client moves to, within seconds or not at all.")


class Notice(Given):
    """A message for a client."""

    message: str = Field(min_length=1, max_length=LONGEST_NOTICE, description="For the users of the client.")


class NoticeQueued(Told):
    """The notice waits for the client."""

    session: str
    node: str = Field(description="The node at which it waits. It is lost if the client fails over to another one.")
    connected: bool = Field(
        description="Whether the client is connected. If not, it gets the notice when it comes back to the node."
    )


# --- Topics -----------------------------------------------------------------------------------------------------------


class Topic(Told):
    """A topic without its value."""

    topic: str = Field(description="Its path. Untrusted text.")
    version: int = Field(description="Grows with every publish.")
    event: str = Field(description="Id of the publish that set the value.")
    size: int = Field(description="Bytes of the value's JSON text.")
    value: JsonValue = Field(default=None, description="The value, if it was requested.")
    ends: float | None = Field(
        default=None,
        description="When the value ends, in seconds since 1970 by the clock of the cluster; null if it does not.",
    )


class TopicPage(Told):
    """Some topics."""

    items: list[Topic]
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class HistoryPage(Told):
    """Some events of a topic."""

    items: list[Topic] = Field(description="The oldest first. A removal has no value, and size 0.")
    gap: bool = Field(
        description="Whether events between `after` and the first of these are not kept any more, or cannot be known."
    )
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class HistoryQuery(Given):
    """Which events."""

    after: str | None = Field(
        default=None,
        max_length=64,
        description="Id of the event behind which to begin; the earliest event that is kept if there is none.",
        examples=["17-1-88"],
    )
    limit: Limit = DEFAULT_ITEMS
    cursor: Cursor | None = None


class TopicQuery(Given):
    """Which topics."""

    selector: str = Field(
        default="**",
        min_length=1,
        max_length=1024,
        description="Which topics, as in a subscribe.",
        examples=["prices/*"],
    )
    values: Switch = Field(default=False, description="Whether to include the values.")
    limit: Limit = DEFAULT_ITEMS
    cursor: Cursor | None = None


class TopicPath(Given):
    """Which topic."""

    topic: str = Field(
        min_length=1,
        max_length=1024,
        description="Path of the topic as one segment: each `/` in it is written `%2F`.",
        examples=["prices/ACME"],
        # For whoever reads the document; what is wrong with a path is told better by what reads it.
        json_schema_extra={"pattern": TOPIC_PATTERN},
    )


class TopicWrite(Given):
    """What to publish."""

    value: JsonValue = Field(description="Any JSON value.")


class TopicWriteHeaders(Given):
    """How a repeated request is recognised."""

    idempotency_key: str | None = Field(
        default=None,
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        description="Names the request for an hour: however often it is sent with the same key and topic, by the same "
        "token, it is executed once and answered alike.",
    )


class TopicWritten(Told):
    """The topic was written."""

    topic: str
    version: int = Field(description="Of the new value, or of the removal.")
    event: str = Field(description="Id of the publish; empty if it was executed before and is not remembered in full.")
    duplicate: bool = Field(description="True if an earlier request with the same key had done it.")


class PageQuery(Given):
    """Which page."""

    limit: Limit = DEFAULT_ITEMS
    cursor: Cursor | None = None


# --- Destinations -----------------------------------------------------------------------------------------------------


class Destination(Told):
    """What somebody says of paths."""

    selector: str = Field(description="Which paths.")
    kind: str = Field(
        description="What they are. `value`: topics of which the newest value is kept. `history`: topics whose events "
        "are kept, too. `queue`: messages, each of which is given to one consumer."
    )
    limits: dict[str, JsonValue] = Field(description="Of a history or a queue; seconds and bytes as numbers.")
    origin: Origin = Field(description="Who says so: an administrator, or the file that nodes read.")
    made: float = Field(description="When, in seconds since 1970.")
    in_force: bool = Field(
        description="Whether it counts for its selector. What an administrator says replaces what the file says."
    )


class DestinationPage(Told):
    """Some destinations."""

    items: list[Destination]
    cursor: str | None = Field(description="Where the next page begins; null if this was the last.")


class DestinationPath(Given):
    """Which paths."""

    selector: str = Field(
        min_length=1,
        max_length=1024,
        description="Selector or path as one segment: each `/` in it is written `%2F`.",
        examples=["log/**"],
    )


class DestinationLimits(Given):
    """Limits of a value, a history or a queue, in seconds and bytes; what is left out is as by default."""

    count: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Most events kept of one topic, at most a million; or most messages of the queue, dead letters "
        "aside.",
    )
    age: float | None = Field(
        default=None, ge=1, le=LONGEST_AGE, description="Of a history: longest time that an event is kept."
    )
    bytes: int | None = Field(
        default=None,
        ge=LEAST_BYTES,
        le=16 * 1024**3,
        description="Most bytes of the kept events of one topic, at most 1 GiB; the newest is kept whatever its "
        "size. Or most bytes of the messages of the queue.",
    )
    full: Literal["refuse", "drop_oldest"] | None = Field(
        default=None,
        description="Of a queue: what it does with the next message when it is full; the oldest becomes a dead letter.",
    )
    deliveries: int | None = Field(
        default=None, ge=1, le=1_000, description="Of a queue: deliveries of a message before it becomes a dead letter."
    )
    redelivery_delay: float | None = Field(
        default=None, ge=0, le=LONGEST_PAUSE, description="Of a queue: time between a failed delivery and the next one."
    )
    ack_within: float | None = Field(
        default=None,
        ge=1,
        le=LONGEST_PAUSE,
        description="Of a queue: time in which a consumer settles a message before it goes to another one; null for no "
        "limit.",
    )
    expires: float | None = Field(
        default=None,
        ge=1,
        le=LONGEST_AGE,
        description="Of a queue: time after which a waiting message becomes a dead letter; null for never.",
    )
    exclusive: bool | None = Field(default=None, description="Of a queue: whether one consumer gets all messages.")
    dead_count: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Of a queue: most dead letters that are kept."
    )
    dead_age: float | None = Field(
        default=None, ge=1, le=LONGEST_AGE, description="Of a queue: how long a dead letter is kept."
    )
    ttl: float | None = Field(
        default=None,
        ge=SHORTEST_TTL,
        le=LONGEST_TTL,
        description="Time after which a value ends, in seconds, unless its publisher says otherwise; null for never.",
    )
    presence: bool | None = Field(
        default=None,
        description="Of topics: whether it is told who has subscribed to these trees, such as `rooms/*/**`.",
    )
    presence_members: int | None = Field(
        default=None,
        ge=0,
        le=MOST_PRESENCE_MEMBERS,
        description="Most members of such a tree that are listed; more are counted only.",
    )
    presence_properties: str | None = Field(
        default=None,
        max_length=2_048,
        description="Names of properties that are told of a member besides its principal, with commas between them.",
    )


class DestinationWrite(Given):
    """What the paths shall be."""

    kind: Literal["value", "history", "queue"] = Field(
        description="What they are. A queue is one path, without wildcards."
    )
    limits: DestinationLimits = Field(default_factory=DestinationLimits)


# --- Durable subscriptions --------------------------------------------------------------------------------------------


class Durable(Told):
    """A place in topics with history that outlives sessions."""

    principal: str = Field(description="Whose it is.")
    name: str = Field(description="What the principal calls it.")
    selector: str = Field(description="Which topics.")
    shared: bool = Field(description="Whether several sessions use it together.")
    session: str | None = Field(description="The session that uses it; null for none, and of a shared one.")
    position: str = Field(
        description="Up to where everything has been acknowledged, as event ids; empty for nothing. Of a shared one: "
        "where it began."
    )
    made: float = Field(description="When, in seconds since 1970.")
    until: float | None = Field(description="When it is removed unless it is used before; null while it is used.")


class DurablePage(Told):
    """Some durable subscriptions."""

    items: list[Durable]
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class DurablePath(Given):
    """Which durable subscription."""

    principal: str = Field(min_length=1, max_length=1024, description="Whose it is; `/` is written `%2F`.")
    name: str = Field(min_length=1, max_length=1024, description="What the principal calls it; likewise.")


# --- Revocations ------------------------------------------------------------------------------------------------------


class Revocation(Told):
    """A session, principal or credential that is blocked."""

    kind: RevocationKind = Field(description="What `value` is.")
    value: str = Field(description="Id of a session, name of a principal, or id (`jti`) of a credential.")
    reason: str = Field(description="Why, for administrators.")
    made: float = Field(description="When, in seconds since 1970.")
    until: float | None = Field(description="When it ends, in seconds since 1970; null for never.")


class RevocationPage(Told):
    """Some revocations."""

    items: list[Revocation]
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class Revoke(Given):
    """What to block."""

    kind: RevocationWord = Field(description="What `value` is.")
    value: str = Field(min_length=1, max_length=MAX_REVOKED_VALUE, description="Compared exactly.")
    reason: str = Field(default="", max_length=MAX_REVOCATION_REASON, description="For administrators alone.")
    until: float | None = Field(
        default=None, ge=0, le=LAST_MOMENT, description="When it ends, in seconds since 1970; absent: never."
    )


class RevocationPath(Given):
    """Which revocation."""

    kind: RevocationKind = Field(description="What `value` is.")
    value: str = Field(min_length=1, max_length=MAX_REVOKED_VALUE, description="What is blocked; `/` is written `%2F`.")


# --- Configuration ----------------------------------------------------------------------------------------------------


class ShownSetting(Told):
    """A setting and its value."""

    name: str
    group: str
    value: str = Field(description="For people; secrets are masked.")
    changed: bool = Field(description="Whether it differs from the default.")
    meaning: str


class Access(Told):
    """The caller, and what the caller may do."""

    name: str = Field(description="Of the token.")
    roles: list[str]
    actions: list[str] = Field(description="Permissions, of those that the operations name.")


class Configuration(Told):
    """The configuration of a node."""

    node: str
    items: list[ShownSetting]
