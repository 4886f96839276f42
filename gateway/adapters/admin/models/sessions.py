"""What the admin API gives and takes about sessions."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from gateway.adapters.admin.models.base import DEFAULT_ITEMS, Cursor, Given, Limit, Told

LONGEST_ID: Final = 128
"""Characters of a session's id in a path; those that exist are shorter."""

LONGEST_NOTICE: Final = 2000
"""Characters of a notice: some paragraphs."""


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
