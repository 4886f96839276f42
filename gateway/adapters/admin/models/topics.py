"""What the admin API gives and takes about topics, their values and their histories."""

from __future__ import annotations

from typing import Final

from pydantic import Field, JsonValue

from gateway.adapters.admin.models.base import DEFAULT_ITEMS, Cursor, Given, Limit, Switch, Told

_SEGMENT: Final = r"[^/*\u0000-\u001f\u007f-\u009f\u2028\u2029]+"
TOPIC_PATTERN: Final = f"^{_SEGMENT}(/{_SEGMENT}){{0,31}}$"
"""What a topic looks like, as a regular expression of JSON Schema."""


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
