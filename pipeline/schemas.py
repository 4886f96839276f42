"""Every schema of the pipeline's tables, in one place.

Bronze is made of the journal's own declaration of its fields, so that a field that is added there is a column here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gateway.core.journal import FIELDS, Field, FieldKind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: as in the table.
        type: what it holds.
        meaning: for people, with the unit.
        required: whether every row has it.
    """

    name: str
    type: DataType
    meaning: str
    required: bool = False


def struct(columns: Iterable[Column]) -> StructType:
    """Give the schema that consists of some columns."""
    return StructType([StructField(each.name, each.type, nullable=not each.required) for each in columns])


_TYPES: Final[Mapping[FieldKind, DataType]] = {
    FieldKind.TEXT: StringType(),
    FieldKind.NUMBER: LongType(),
    FieldKind.FLAG: BooleanType(),
    FieldKind.TEXTS: ArrayType(StringType(), containsNull=False),
    FieldKind.INSTANT: TimestampType(),
}


def events_schema(fields: Mapping[str, Field]) -> StructType:
    """Give the columns of events that have some fields."""
    return StructType([StructField(each.name, _TYPES[each.kind]) for each in fields.values()])


EVENTS: Final = events_schema(FIELDS)
"""An event of the journal, one column for each field that the journal declares, in that order."""

PLACE: Final = StructType(
    [
        StructField("stream", IntegerType(), nullable=False),
        StructField("entry", StringType(), nullable=False),
        StructField("line", IntegerType(), nullable=False),
    ]
)
"""Where an event stood in the journal: which stream, the id of the entry in it, and which line of the entry, from 0.
Events of one session are in one stream; ordered by entry and line they are in the order in which they were written."""

OTHER: Final = StructField("other", StringType())
"""Fields of an event that this version of the pipeline does not know, as JSON; none if it knows them all. So nothing is
lost while the gateway is newer than the pipeline."""

BATCH: Final = StructField("batch", LongType())
"""Which commit of bronze brought the event in, from 1; none for events that did not come through the journal."""


def bronze_schema(fields: Mapping[str, Field]) -> StructType:
    """Give the columns of bronze, its events having some fields."""
    when = [StructField("date", DateType()), StructField("hour", IntegerType())]
    return StructType([*events_schema(fields).fields, OTHER, *PLACE.fields, BATCH, *when])


BRONZE: Final = bronze_schema(FIELDS)
"""Raw events, by date and hour of the event's own time (UTC). An event whose time is impossible is filed under the hour
of its arrival, so that a wrong clock cannot spread the table over thousands of folders; ``at`` stays as it was told."""

REJECTED: Final = StructType(
    [
        *PLACE.fields,
        StructField("reason", StringType()),
        StructField("text", BinaryType()),
        StructField("seen_at", TimestampType()),
        BATCH,
    ]
)
"""Lines of the journal that could not be events, with the reason, and gaps that were accepted. ``line`` is -1 for what
concerns a whole entry or more; ``seen_at`` is when the pipeline read it."""

INTERVAL_COLUMNS: Final = (
    Column("kind", StringType(), "`connected` or `away`.", required=True),
    Column("begins", TimestampType(), "When it began; the end of the interval before.", required=True),
    Column("ends", TimestampType(), "When it ended; none if it goes on, as far as is known."),
    Column("node", StringType(), "Connected: the node that served it. Away: the node that served it last."),
    Column("incarnation", StringType(), "Which run of that node."),
    Column("release", StringType(), "The version of the gateway that it ran; none if its own events are missing."),
    Column("epoch", LongType(), "The session's epoch there."),
    Column(
        "rung",
        StringType(),
        "Connected: how it began, `created` or the rung of the recovery ladder by which the client came back; none if "
        "the event that tells is missing. A connected interval whose rung is neither is a *comeback*.",
    ),
    Column("reason", StringType(), "Of a comeback by failover: why, `other_node` or `gap`."),
    Column(
        "replayed",
        BooleanType(),
        "Of a comeback by failover: whether every update that the client had missed was sent; false if current values "
        "took their place, of some topics at least. None if it had selected nothing, or the node was of a release that "
        "did not tell.",
    ),
    Column(
        "cause",
        StringType(),
        "How the connection ended: the name of a close code, `connection_lost`, `node_died`, or `closed` or `expired` "
        "with the session; an away interval repeats it. None if the connection goes on or nobody reported it.",
    ),
    Column(
        "away_ms",
        LongType(),
        "Of a comeback: how long the session had been away before it, in milliseconds: the length of the interval "
        "before. None if nobody can tell.",
    ),
    Column(
        "measured_by",
        StringType(),
        "Of a comeback: who measured that: `client`, from the loss of the connection to the attempt that succeeded; "
        "`node`, from when the old node noticed; `survivors`, from when a node that died last lived.",
    ),
    Column(
        "uncertain_ms",
        LongType(),
        "Of a comeback measured by survivors: by how much it may have been shorter, in milliseconds.",
    ),
    Column("resent", LongType(), "Of a comeback: packets that were sent once more."),
    Column("conflated", LongType(), "Of a comeback: updates left out because a newer one of the same topic followed."),
    Column(
        "deduplicated",
        LongType(),
        "Connected: publishes of the client that were in the grid already and were not repeated.",
    ),
    Column("lost", LongType(), "Of a comeback: packets that are known to be lost; none if unknown."),
    Column("peer", StringType(), "Of a comeback: the node that owned the session before."),
    Column(
        "put_off",
        LongType(),
        "Of a comeback: how often its client was told to try again before, because the grid was unreachable or too "
        "many came at once.",
    ),
    Column(
        "held_up_ms",
        LongType(),
        "Of a comeback that was put off: for how long, from the first time, in milliseconds. It is part of `away_ms`.",
    ),
)
"""What is told of each interval of a session's timeline."""

INTERVAL: Final = struct(INTERVAL_COLUMNS)

SILVER_COLUMNS: Final = (
    Column("session", StringType(), "The session; one row each.", required=True),
    Column("principal", StringType(), "Whose it is: as it is, or as a keyed hash that begins with `hmac:`."),
    Column("client", StringType(), "What the client said it is."),
    Column("window_ms", LongType(), "How long it is kept without a connection, in milliseconds."),
    Column("first_node", StringType(), "The node that served it first, as far as is known."),
    Column(
        "nodes",
        ArrayType(StringType(), containsNull=False),
        "All nodes that served it, in the order in which they did first.",
        required=True,
    ),
    Column("release", StringType(), "The version of the gateway that served it last."),
    Column("epoch", LongType(), "The highest epoch that was seen: how often it was claimed."),
    Column("state", StringType(), "`connected`, `away` or `ended`.", required=True),
    Column("opened_at", TimestampType(), "When it was opened; none if that event is missing."),
    Column("ended_at", TimestampType(), "When it ended; none if it has not."),
    Column(
        "end",
        StringType(),
        "How it ended: `closed` on purpose or `expired`. None if it has not ended, or if nobody reported it and its "
        "window has passed.",
    ),
    Column(
        "end_reason",
        StringType(),
        "Why it was closed, as the event tells; `presumed` if nobody reported its end and its window has passed.",
    ),
    Column(
        "intervals",
        ArrayType(INTERVAL, containsNull=False),
        "Its timeline: connected and away intervals, without holes and without overlaps.",
        required=True,
    ),
    Column(
        "connected_ms", LongType(), "Length of its connected intervals that have ended, in milliseconds.", required=True
    ),
    Column("away_ms", LongType(), "Length of its away intervals that have ended, in milliseconds.", required=True),
    Column("comebacks", LongType(), "How often its client came back.", required=True),
    Column("resent", LongType(), "Packets that were sent once more at comebacks.", required=True),
    Column("deduplicated", LongType(), "Publishes that were in the grid already and were not repeated.", required=True),
    Column("conflated", LongType(), "Updates that comebacks left out because a newer one followed.", required=True),
    Column("lost", LongType(), "Packets that are known to be lost.", required=True),
    Column("refused", LongType(), "Resumes that were refused, for good or to be tried again.", required=True),
    Column("put_off", LongType(), "Of these, how many were told to try again."),
    Column(
        "slow_closes", LongType(), "Connections that were closed because the client read too slowly.", required=True
    ),
    Column("complete", BooleanType(), "Whether its opening was seen.", required=True),
    Column("first_event_at", TimestampType(), "Time of the first of its events.", required=True),
    Column("last_event_at", TimestampType(), "Time of the last of its events.", required=True),
    Column(
        "events",
        LongType(),
        "Of how many events the row is made; changes of properties and selections are none.",
        required=True,
    ),
)
"""Silver: what is told of each session."""

SILVER: Final = struct(SILVER_COLUMNS)
"""One row per session. The table in the lake has one more column, ``date``: the day (UTC) on which it was opened."""
