"""What the admin API gives and takes about queues and dead letters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from gateway.adapters.admin.models.base import Cursor, Given, PlainNumber, Told
from gateway.ports.queue_administration import DEAD_PAGE, MENDED_MOST


class Queue(Told):
    """A queue. It is there as long as something is in it, or somebody consumes."""

    queue: str = Field(description="Its path. Those of shared subscriptions and temporary ones begin with `$`.")
    ready: int = Field(description="Messages that wait for a consumer.")
    delayed: int = Field(description="Messages that wait for their time.")
    held: int = Field(description="Messages that consumers hold.")
    dead: int = Field(description="Dead letters: messages that nobody is given any more.")
    bytes: int = Field(description="Bytes of its messages, dead letters aside, and of what Redis needs for them.")
    consumers: int = Field(description="Consumers.")
    oldest: float | None = Field(
        description="When the oldest message that waits for a consumer was sent, in seconds since 1970; null if none "
        "waits."
    )
    sent: int = Field(
        description="Messages that were put into it since it is there; those that are not in it any more were "
        "accepted or dropped. Two answers tell rates. It begins anew with a queue that was gone."
    )


class QueuePage(Told):
    """Some queues."""

    items: list[Queue]
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class QueuePath(Given):
    """Which queue."""

    queue: str = Field(
        min_length=1,
        max_length=1024,
        description="Path of the queue as one segment: each `/` in it is written `%2F`.",
        examples=["jobs/render"],
    )


class DeadLetter(Told):
    """A message that nobody is given any more."""

    id: int = Field(description="Of the message.")
    reason: str = Field(
        description="`rejected` by a consumer, `deliveries` that failed too often, `expired`, or `overflow` of the "
        "queue."
    )
    deliveries: int = Field(description="How often it was delivered and failed.")
    sent: float = Field(description="When it was sent, in seconds since 1970.")
    since: float = Field(description="When it became a dead letter, likewise.")
    headers: JsonValue = Field(description="What the sender said beside the value; null for nothing.")
    value: JsonValue = Field(description="What was sent; null if it is too large to be shown here.")
    size: int = Field(description="Bytes of the value as JSON text.")


class DeadLetterPage(Told):
    """Some dead letters, the oldest first."""

    items: list[DeadLetter]
    cursor: str | None = Field(
        description="Pass it to get the next page; null on the last one. If letters were put back or dropped "
        "meanwhile, begin without one."
    )


class DeadLetterQuery(Given):
    """Which page of dead letters."""

    limit: Annotated[int, Field(ge=1, le=DEAD_PAGE, description="Most dead letters of the page."), PlainNumber] = (
        DEAD_PAGE
    )
    cursor: Cursor | None = None


class DeadLetters(Given):
    """Which dead letters."""

    messages: list[Annotated[int, Field(ge=1, le=2**53 - 1, strict=True)]] = Field(
        min_length=1,
        max_length=MENDED_MOST,
        description="Their ids; what is no dead letter of the queue is left alone.",
    )


class Mended(Told):
    """What became of dead letters."""

    messages: int = Field(description="How many of them there were.")
