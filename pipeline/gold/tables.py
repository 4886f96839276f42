"""The gold tables: what they are called, their columns, and what each means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.schemas import Column, struct


@dataclass(frozen=True, slots=True)
class GoldTable:
    """One table of gold.

    Attributes:
        name: also of its folder.
        meaning: what it is for, and what one row is.
        columns: all of them; the last is ``date``, by which it is stored.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> StructType:
        """For Spark."""
        return struct(self.columns)


_TEXT, _COUNT, _INSTANT, _SHARE = StringType(), LongType(), TimestampType(), DoubleType()
_TEXTS: Final = ArrayType(StringType(), containsNull=False)


def _count(name: str, meaning: str) -> Column:
    return Column(name, _COUNT, meaning, required=True)


def _by_date(meaning: str) -> Column:
    return Column("date", DateType(), f"The day (UTC) {meaning}; the table is stored by it.", required=True)


_HOUR: Final = Column("hour", _INSTANT, "The hour (UTC), as the instant it begins at.", required=True)
_NODE: Final = Column("node", _TEXT, "The node.")
_RELEASE: Final = Column("release", _TEXT, "The version of the gateway that it ran.")

_RUNGS: Final = (
    _count("reattached", "Of these, how many went on with both resend buffers."),
    _count("handed_over", "Of these, how many went on with what the node that had served them handed over."),
    _count("mirrored", "Of these, how many went on with a copy that a backup held."),
    _count("failed_over", "Of these, how many went on with what the grid held."),
    _count("other_rungs", "Of these, how many came back on another rung of the ladder."),
    _count("replayed", "Of those that failed over, how many were sent every update that they had missed."),
    _count(
        "not_replayed",
        "Of those that failed over, how many were sent current values instead, of some topics at least. The rest had "
        "selected nothing, or came to a node of a release that did not tell.",
    ),
)

_AWAY: Final = (
    _count("measured", "How many comebacks tell how long the session was away."),
    Column("away_p50_ms", _COUNT, "How long sessions were away, in milliseconds: the median (p50)."),
    Column("away_p95_ms", _COUNT, "The same, the 95th percentile."),
    Column("away_p99_ms", _COUNT, "The same, the 99th percentile."),
    Column("away_max_ms", _COUNT, "The same, the maximum."),
)

OBJECTIVES: Final = GoldTable(
    "objectives",
    "Is the gateway within its recovery objective? One row for each hour, node and release with comebacks, refusals or "
    "sessions that nobody came back for.",
    (
        _HOUR,
        _NODE,
        _RELEASE,
        _count("comebacks", "Clients that came back to their sessions here, in this hour."),
        *_RUNGS,
        _count(
            "refused", "Resumes with a genuine token that were refused for good; a client may try a dead token often."
        ),
        _count(
            "refused_sessions",
            "Different sessions among these that were refused for the first time on this day, without those that "
            "`missed` counts: one client that tries a dead token 600 times is one.",
        ),
        _count(
            "missed",
            "Sessions that an incident of this node touched, in the hour in which it began, and whose clients have not "
            "come back: expired, or still away.",
        ),
        _count("put_off", "Resumes that were told to try again: the grid was unreachable, or too many came at once."),
        _count("strangers", "Resumes whose token was not genuine; they are nobody's comeback."),
        _count("expired", "Sessions served here last whose window ended in this hour, as was reported or must be so."),
        Column(
            "recovered_share",
            _SHARE,
            "Comebacks as a share of comebacks, sessions that were refused for good, and those that were missed; none "
            "if there were none of these.",
        ),
        Column("reattached_share", _SHARE, "Comebacks that were reattached as a share of all comebacks."),
        *_AWAY,
        _count("resent", "Packets that were sent once more."),
        _count("conflated", "Updates that comebacks left out because a newer one followed."),
        _count("deduplicated", "Publishes that were in the grid already and were not repeated."),
        _count("lossy", "Comebacks that are known to have lost packets."),
        _count("lost", "Packets that are known to be lost."),
        _by_date("of the hour"),
    ),
)

INCIDENTS: Final = GoldTable(
    "incidents",
    "What happened to nodes and to the grid, and what became of sessions. One row for each death, hang or drain of a "
    "run of a node, and for each outage of the grid; two nodes that die shortly after each other are two, and all that "
    "cannot reach the grid at the same time are one.",
    (
        Column("incident", _TEXT, "Names it: kind and incarnation, or for an outage when it began.", required=True),
        Column(
            "kind",
            _TEXT,
            "`death`: the node vanished; `hang`: its lease expired, and it lived on; `drain`: it was emptied as "
            "planned; `outage`: the grid could not be reached.",
            required=True,
        ),
        Column("node", _TEXT, "The node; none for an outage that several nodes met."),
        Column("nodes", _TEXTS, "All nodes that it happened to, in the order of their names."),
        Column("incarnation", _TEXT, "Which run of the node; none for an outage."),
        _RELEASE,
        Column(
            "begins",
            _INSTANT,
            "When: of a drain or an outage, its beginning; else when the node is last known to live.",
            required=True,
        ),
        Column(
            "ends",
            _INSTANT,
            "Of a drain, when the node had stopped; of an outage, when the last node reached the grid again; else when "
            "survivors had its sessions on the clock, or noticed. Never before it began, whatever the clocks say.",
        ),
        Column(
            "skew_ms",
            _COUNT,
            "By how much the clocks of the nodes that tell of it differ at least, in milliseconds; 0 if nothing says "
            "that they do.",
        ),
        Column(
            "lost_writes",
            BooleanType(),
            "Of an outage: whether the grid came back as something that may have forgotten writes; none if no node "
            "said that it is back.",
        ),
        Column("noticed_by", _TEXT, "The node that noticed first; none for a drain, or if nobody reported it."),
        Column(
            "suspected_at",
            _INSTANT,
            "Of a death or a hang: when another node first did not hear it any more over their link, and looked at its "
            "lease; none if no node told.",
        ),
        Column(
            "taken_over_at",
            _INSTANT,
            "Of a death or a hang: when the windows of all its sessions had begun; none if nobody told.",
        ),
        Column(
            "takeovers_continued",
            _COUNT,
            "Of a death or a hang: how often a node went on with taking over because the one before did not finish.",
        ),
        Column(
            "cleaned_up_at",
            _INSTANT,
            "Of a death or a hang: when what was transient of the node was removed, because it had not come back.",
        ),
        _count(
            "sessions",
            "Sessions that were connected to it then; of an outage, those whose client was refused because of it.",
        ),
        _count("comebacks", "Of these, how many came back."),
        *_RUNGS,
        _count(
            "expired",
            "Of the sessions, how many ended because nobody came back in time, as was reported or must be so.",
        ),
        _count("closed", "Of the sessions, how many were closed on purpose without having come back."),
        _count("away", "Of the sessions, how many are still away, as far as is known."),
        Column("recovered_share", _SHARE, "Comebacks as a share of the sessions; none if there were none."),
        *_AWAY,
        _count("resent", "Packets that were sent once more."),
        _count("lossy", "Sessions that are known to have lost packets."),
        _count("lost", "Packets that are known to be lost."),
        Column("put_off", _COUNT, "Of the sessions, how many were told to try again because of it."),
        Column(
            "refused",
            _COUNT,
            "Of an outage: how many sessions were refused for good because the grid had forgotten them.",
        ),
        Column("held_up_p50_ms", _COUNT, "How long those were held up that were put off and came back: the median."),
        Column("held_up_max_ms", _COUNT, "The same, the maximum."),
        Column("settled_at", _INSTANT, "When the last of those who came back was back."),
        _by_date("on which it began"),
    ),
)

INCIDENT_SESSIONS: Final = GoldTable(
    "incident_sessions",
    "Who was affected by an incident, and how. One row for each incident and session; a session that two incidents "
    "touched belongs to both.",
    (
        Column("incident", _TEXT, "Which incident.", required=True),
        Column("session", _TEXT, "Which session.", required=True),
        Column("principal", _TEXT, "Whose it is."),
        Column("client", _TEXT, "What the client said it is."),
        Column("connected_at", _INSTANT, "Since when it was connected to the node, or before an outage."),
        Column("left_at", _INSTANT, "When that connection ended; none if nobody knows."),
        Column("cause", _TEXT, "How it ended, as silver tells; none if nobody reported it."),
        Column("fate", _TEXT, "`recovered`, `expired`, `closed` or `away`.", required=True),
        Column("back_at", _INSTANT, "When its client was back."),
        Column("back_node", _TEXT, "Where."),
        Column("rung", _TEXT, "By which rung of the recovery ladder."),
        Column(
            "replayed",
            BooleanType(),
            "If it failed over, whether every update that it had missed was sent; none if it had selected nothing, or "
            "the node was of a release that did not tell.",
        ),
        Column("away_ms", _COUNT, "How long it was away, in milliseconds."),
        Column("measured_by", _TEXT, "Who measured that: `client`, `node` or `survivors`."),
        Column("uncertain_ms", _COUNT, "By how much it may have been shorter."),
        Column("resent", _COUNT, "Packets that were sent once more."),
        Column("lost", _COUNT, "Packets that are known to be lost; none if unknown."),
        Column("put_off", _COUNT, "How often its client was told to try again before it came back."),
        Column("held_up_ms", _COUNT, "For how long that held it up, in milliseconds."),
        Column("refused", _COUNT, "Of an outage: how often it was refused for good because the grid had forgotten it."),
        _by_date("on which the incident began"),
    ),
)

STORMS: Final = GoldTable(
    "storms",
    "When clients came back in a crowd. One row for each time in which ten seconds after ten seconds had at least "
    "5 times as many comebacks as usual, and at least 20; ten quieter seconds do not end it.",
    (
        Column("begins", _INSTANT, "The first of these seconds.", required=True),
        Column("ends", _INSTANT, "The end of the last of them.", required=True),
        _count("comebacks", "Clients that came back."),
        _count("sessions", "Different sessions among these."),
        _count("peak", "Most comebacks in ten seconds."),
        _count("usual", "What is usual: the median of all ten seconds of the hour with the peak."),
        _count("put_off", "Resumes that were told to try again meanwhile."),
        Column("nodes", _TEXTS, "Nodes to which they came, in the order of their names.", required=True),
        Column(
            "incidents",
            _TEXTS,
            "Incidents that it may be a consequence of, in the order of their names.",
            required=True,
        ),
        _by_date("on which it began"),
    ),
)

REFUSED_SESSIONS: Final = GoldTable(
    "refused_sessions",
    "Whose session was gone when its client came for it. One row for each day and session that was refused for good.",
    (
        Column("session", _TEXT, "Which session.", required=True),
        Column("principal", _TEXT, "Whose it is."),
        Column("client", _TEXT, "What the client said it is."),
        _count("refusals", "How often it was refused for good on this day."),
        Column("reason", _TEXT, "Why, the first time."),
        Column("node", _TEXT, "Where, the first time."),
        Column("first_at", _INSTANT, "When first.", required=True),
        Column("last_at", _INSTANT, "When last.", required=True),
        _by_date("on which it happened"),
    ),
)

SLOW_CONSUMERS: Final = GoldTable(
    "slow_consumers",
    "Who reads too slowly. One row for each day and session whose connection was closed for that.",
    (
        Column("session", _TEXT, "Which session.", required=True),
        Column("principal", _TEXT, "Whose it is."),
        Column("client", _TEXT, "What the client said it is."),
        _count("closes", "How often that happened on this day."),
        Column("first_at", _INSTANT, "When first.", required=True),
        Column("last_at", _INSTANT, "When last.", required=True),
        Column("nodes", _TEXTS, "On which nodes, in the order of their names.", required=True),
        _count("packets", "Packets that waited for it, most at a time."),
        _count("bytes", "Bytes that waited for it, most at a time."),
        _by_date("on which it happened"),
    ),
)

TRAFFIC: Final = GoldTable(
    "traffic",
    "What passed, and what it cost. One row for each hour and root of topics.",
    (
        _HOUR,
        Column("root", _TEXT, "First segment of the topics; `*` for all that nodes do not count apart.", required=True),
        _count("deliveries", "Updates written to sessions."),
        _count("publishes", "Publishes accepted from clients."),
        _count("bytes", "Bytes of the values that were delivered."),
        _count(
            "cpu_ms",
            "CPU time of nodes, in milliseconds, divided among roots by their deliveries in each minute. That of "
            "minutes without a delivery belongs to none.",
        ),
        Column(
            "cost_share", _SHARE, "This CPU time as a share of that of all roots in the hour; none if there was none."
        ),
        _by_date("of the hour"),
    ),
)

QUEUES: Final = GoldTable(
    "queues",
    "What passed through queues, and how long it took. One row for each hour and queue.",
    (
        _HOUR,
        Column("queue", _TEXT, "Path of the queue; `*` for all that nodes do not count apart.", required=True),
        _count("sent", "Messages that the grid took in."),
        _count("given", "Messages that were sent to consumers."),
        _count("redelivered", "Of these, the ones that somebody may have received before."),
        _count("accepted", "Messages that were done."),
        _count("rejected", "Messages that consumers made dead letters."),
        _count("released", "Messages that consumers gave back."),
        Column(
            "growth",
            _COUNT,
            "By how many messages more were sent than accepted or rejected: added up over the hours, what waits, is "
            "held, or has become a dead letter by its time or its failures.",
            required=True,
        ),
        _count("settle_ms", "Milliseconds from when messages were sent to when they were accepted, added up."),
        Column("settle_mean_ms", _SHARE, "The mean of these, in milliseconds; none if nothing was accepted."),
        _count("settle_max_ms", "The most of one message."),
        _by_date("of the hour"),
    ),
)

ZONE_LINKS: Final = GoldTable(
    "zone_links",
    "What crossed links with other clusters, and how they fared. One row for each hour, other end and direction.",
    (
        _HOUR,
        Column(
            "remote",
            _TEXT,
            "Name of the other cluster, or of the join; `*` for all that nodes do not count apart.",
            required=True,
        ),
        Column("direction", _TEXT, "`out`: this cluster sent; `in`: it took what came.", required=True),
        Column("nodes", _TEXTS, "Nodes that had such a link, in the order of their names.", required=True),
        _count("events", "Events that were sent, or came; those that were sent again count again."),
        _count("bytes", "Bytes of their values."),
        _count("taken", "Of those that came, the ones that were new here and are in the grid."),
        _count("repeated", "Of those that came, the ones that had come before, or were older than what is here."),
        _count(
            "refused",
            "Of those that came, the ones that may not be taken: by the policy, the join, their path or a limit.",
        ),
        _count("behind", "The most entries of streams that had yet to be looked at."),
        _count("connected", "How often a link came up."),
        _count("lost", "How often one was lost: the network, or the other end, was gone."),
        _count("hung_up", "How often one of both refused to go on."),
        _count("gaps", "How often a stream did not reach back to what had crossed: histories lack events."),
        _by_date("of the hour"),
    ),
)

MASTERS: Final = GoldTable(
    "masters",
    "Which nodes were the master of their cluster, and when. One row for each time that a node became it.",
    (
        _NODE,
        Column("incarnation", _TEXT, "Which run of that node.", required=True),
        _RELEASE,
        Column("term", _COUNT, "Its term: it grows with each master, as long as the grid forgets nothing."),
        Column("before", _TEXT, "The node that was the master before, as far as this one knew; none if none was."),
        Column("elected_at", _INSTANT, "When it became the master.", required=True),
        Column("missed_at", _INSTANT, "When a node first found that there was no master any more; none if none did."),
        Column(
            "ended_at",
            _INSTANT,
            "When that was found, or the next one became it; none if neither was told until a day later.",
        ),
        Column("held_ms", _COUNT, "For how long it was the master, in milliseconds."),
        Column("vacant_ms", _COUNT, "For how long there was none after that, as far as any node noticed."),
        _by_date("on which it became the master"),
    ),
)

CAPACITY: Final = GoldTable(
    "capacity",
    "How full nodes are, and how that changes. One row for each hour and node.",
    (
        _HOUR,
        Column("node", _TEXT, "The node.", required=True),
        _count("connections_peak", "Most connections at the end of a minute."),
        _count("sessions_peak", "Most sessions at the end of a minute."),
        _count("deliveries", "Updates written to sessions."),
        _count("publishes", "Publishes accepted from clients."),
        _count("bytes", "Bytes of the values that were delivered."),
        _count("cpu_ms", "CPU time of its process, in milliseconds."),
        _count("measured_ms", "How much of the hour has been measured, in milliseconds."),
        Column("cpu_share", _SHARE, "CPU time as a share of the time measured: 1 is a core that has nothing left."),
        Column("us_per_delivery", _SHARE, "CPU time by deliveries, in microseconds; none if there was no delivery."),
        Column("connections_peak_before", _COUNT, "Most connections in the same hour of the day before, if known."),
        Column("deliveries_before", _COUNT, "Deliveries in the same hour of the day before, if known."),
        _by_date("of the hour"),
    ),
)

LOSSES: Final = GoldTable(
    "losses",
    "What the journal itself is missing. One row for each day and run of a node.",
    (
        _NODE,
        Column("incarnation", _TEXT, "Which run of the node.", required=True),
        _RELEASE,
        _count("events", "Events that are there."),
        _count("lowest", "The lowest number of their ids."),
        _count("highest", "The highest number of their ids."),
        _count(
            "missing", "Numbers between the highest of the days before and the highest of this one that are not there."
        ),
        _count("dropped", "Events that the node itself reported it could not write."),
        _count("unexplained", "What is missing beyond that: a journal that was cut before it was read, or lost."),
        Column("first_at", _INSTANT, "Time of the first event.", required=True),
        Column("last_at", _INSTANT, "Time of the last one.", required=True),
        _by_date("of the events"),
    ),
)

REJECTIONS: Final = GoldTable(
    "rejections",
    "What stood in the journal and could not become an event. One row for each day and reason.",
    (
        Column("reason", _TEXT, "Why; the lines themselves, and all of the reason, are in bronze.", required=True),
        _count("lines", "Lines that are no events."),
        _count("gaps", "Whole entries that could not be read, and losses that were accepted."),
        Column("streams", ArrayType(IntegerType(), containsNull=False), "In which streams, in order.", required=True),
        Column("first_at", _INSTANT, "When the pipeline first met one.", required=True),
        Column("last_at", _INSTANT, "When last.", required=True),
        _by_date("on which the pipeline met it"),
    ),
)

TABLES: Final[Mapping[str, GoldTable]] = {
    each.name: each
    for each in (
        OBJECTIVES,
        INCIDENTS,
        INCIDENT_SESSIONS,
        STORMS,
        REFUSED_SESSIONS,
        SLOW_CONSUMERS,
        TRAFFIC,
        QUEUES,
        ZONE_LINKS,
        MASTERS,
        CAPACITY,
        LOSSES,
        REJECTIONS,
    )
}
"""All of them by name, in the order of the reference page."""
