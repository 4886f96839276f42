"""Every field of a record, declared once: name, kind and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

HASHED: Final = "hmac:"
"""Begins what stands for a principal that is not told."""


class FieldKind(Enum):
    """What a field holds."""

    TEXT = "text"
    NUMBER = "whole number"
    """Of 64 bits."""
    FLAG = "true or false"
    TEXTS = "list of texts"
    INSTANT = "instant"
    """A whole number of microseconds since 1970, UTC, by the clock of the node."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    Attributes:
        name: as in records, and as the columns of the pipeline are called.
        kind: what it holds.
        meaning: for people, with the unit.
        since: version of the schema that introduced it.
    """

    name: str
    kind: FieldKind
    meaning: str
    since: int = 1


ENVELOPE: Final = (
    Field("version", FieldKind.NUMBER, "Version of the schema that the record was written by."),
    Field(
        "id",
        FieldKind.TEXT,
        "Names the event in the whole cluster and for ever: `<incarnation>-<number>`. The numbers of one incarnation "
        "count all its events from 1 without a hole, so that what is missing can be told.",
    ),
    Field("type", FieldKind.TEXT, "What happened; see below."),
    Field("at", FieldKind.INSTANT, "When."),
    Field("node", FieldKind.TEXT, "The node that reports it."),
    Field("incarnation", FieldKind.TEXT, "Which run of that node."),
    Field("release", FieldKind.TEXT, "The version of the gateway that it runs."),
    Field("session", FieldKind.TEXT, "Which session it is about; none for events of nodes."),
    Field("epoch", FieldKind.NUMBER, "The session's epoch: a higher one happened later, whatever the clocks say."),
)
"""What every record begins with."""

_TOLD: Final = (
    Field("principal", FieldKind.TEXT, "Whose session: as it is, or as a keyed hash that begins with `hmac:`."),
    Field("client", FieldKind.TEXT, "What the client says it is."),
    Field("window_ms", FieldKind.NUMBER, "How long the session is kept without a connection, in milliseconds."),
    Field("rung", FieldKind.TEXT, "How the session was recovered, as in the welcome: `reattached`, …"),
    Field(
        "reason", FieldKind.TEXT, "Why: of a failover, a refusal, an end or a loss; a word of the registry of codes."
    ),
    Field(
        "cause",
        FieldKind.TEXT,
        "What ended the connection: the name of a close code, or `connection_lost` if there was none.",
    ),
    Field("code", FieldKind.NUMBER, "The close code; none if the transport was lost without one."),
    Field(
        "away_ms",
        FieldKind.NUMBER,
        "How long it was disconnected, in milliseconds: of a session from the loss of the connection to the welcome, "
        "as its client measured it up to the resume, and its node from there; of the grid as the node saw it.",
    ),
    Field("resent", FieldKind.NUMBER, "Packets that were sent once more."),
    Field("conflated", FieldKind.NUMBER, "Updates that were left out because a newer one of the same topic followed."),
    Field(
        "deduplicated", FieldKind.NUMBER, "Publishes of the client that were in the grid already, on this connection."
    ),
    Field("lost", FieldKind.NUMBER, "Packets known to be lost, as reported to the client; none if unknown."),
    Field("packets", FieldKind.NUMBER, "Packets that waited for the client."),
    Field(
        "bytes",
        FieldKind.NUMBER,
        "Bytes: that waited for the client, or of the values that were delivered, or crossed a link.",
    ),
    Field("names", FieldKind.TEXTS, "Names of properties, or selectors, that changed; the first 20."),
    Field("count", FieldKind.NUMBER, "How many there are: names that changed, selections in force, sessions, events."),
    Field("peer", FieldKind.TEXT, "The other node: the previous owner, or the one whose lease expired."),
    Field("peer_incarnation", FieldKind.TEXT, "Which run of the other node."),
    Field("generation", FieldKind.NUMBER, "Generation of the grid."),
    Field("lost_writes", FieldKind.FLAG, "Whether the grid came back as something that may have forgotten writes."),
    Field(
        "since",
        FieldKind.INSTANT,
        "When the time begins that the event is about; of a node whose lease expired, when it last lived.",
    ),
    Field("until", FieldKind.INSTANT, "When that time ends."),
    Field("root", FieldKind.TEXT, "First segment of the topics counted here; none for the node as a whole."),
    Field("deliveries", FieldKind.NUMBER, "Updates written to sessions."),
    Field("publishes", FieldKind.NUMBER, "Publishes accepted from clients."),
    Field("connections", FieldKind.NUMBER, "Connections open at the end of that time."),
    Field("sessions", FieldKind.NUMBER, "Sessions held at the end of that time."),
    Field("cpu_ms", FieldKind.NUMBER, "CPU time that the node's process took, in milliseconds."),
    Field(
        "replayed",
        FieldKind.FLAG,
        "Of a failover: whether every update that the client had missed follows, once and in order; false if current "
        "values take their place, of some topics at least; none if it had selected nothing.",
        since=2,
    ),
    Field("queue", FieldKind.TEXT, "Path of the queue; `*` for all that the node does not count apart.", since=3),
    Field("sent", FieldKind.NUMBER, "Messages that the grid took in.", since=3),
    Field("given", FieldKind.NUMBER, "Messages that were sent to consumers.", since=3),
    Field("redelivered", FieldKind.NUMBER, "Of these, the ones that somebody may have received before.", since=3),
    Field("accepted", FieldKind.NUMBER, "Messages that were done.", since=3),
    Field("rejected", FieldKind.NUMBER, "Messages that consumers made dead letters.", since=3),
    Field("released", FieldKind.NUMBER, "Messages that consumers gave back.", since=3),
    Field(
        "settle_ms",
        FieldKind.NUMBER,
        "Milliseconds from when a message was sent, by the clock of the grid, to when it was accepted, by that of the "
        "node; all that were accepted added up.",
        since=3,
    ),
    Field("settle_max_ms", FieldKind.NUMBER, "The most of one of them.", since=3),
    Field("term", FieldKind.NUMBER, "Term of the master: it grows with each one.", since=4),
    Field(
        "link",
        FieldKind.TEXT,
        "The link: id of the other cluster or `join:` and its name, and behind a slash which share of the topic "
        "partitions it carries; before it `from:` if the other cluster has dialled. `*` for all that the node does not "
        "count apart.",
        since=4,
    ),
    Field("remote", FieldKind.TEXT, "Name of the other cluster, or of the join that the link is for.", since=4),
    Field("direction", FieldKind.TEXT, "`out`: the node sends over the link; `in`: it takes what comes.", since=4),
    Field("events", FieldKind.NUMBER, "Events that were sent over the link, or came over it.", since=4),
    Field("taken", FieldKind.NUMBER, "Of those that came, the ones that were new here and are in the grid.", since=4),
    Field(
        "repeated",
        FieldKind.NUMBER,
        "Of those that came, the ones that had come before, or were older than what is here.",
        since=4,
    ),
    Field(
        "refused",
        FieldKind.NUMBER,
        "Of those that came, the ones that may not be taken: by the policy, the join, their path or a limit.",
        since=4,
    ),
    Field(
        "behind",
        FieldKind.NUMBER,
        "The most entries of streams that had yet to be looked at for the link, of what was counted each second.",
        since=4,
    ),
)

FIELDS: Final[Mapping[str, Field]] = {each.name: each for each in (*ENVELOPE, *_TOLD)}
"""All fields by name, in the order in which they stand in documents and tables."""
