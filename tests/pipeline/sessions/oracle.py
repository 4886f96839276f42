"""Silver a second time, by other means: DuckDB's SQL over the same events, without a line of the fold.

It follows what ``docs/explanation/pipeline.md`` says of silver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import duckdb

from pipeline.schemas import INTERVAL_COLUMNS

_SQL: Final = """
CREATE OR REPLACE TEMP TABLE facts AS
SELECT DISTINCT ON (session, incarnation, number)
    session, type, greatest(0, epoch_us("at")) AS moment, node, incarnation,
    CAST(regexp_extract(id, '-([0-9]+)$', 1) AS BIGINT) AS number,
    epoch AS told_epoch, coalesce(epoch, 0) AS epoch, release, cause, rung, reason, replayed, peer,
    peer_incarnation, away_ms, resent, conflated, deduplicated, lost,
    epoch_us(since) AS since, epoch_us(until) AS until, principal, client, window_ms
FROM events
WHERE session IS NOT NULL AND type IN (
    'session_opened', 'session_resumed', 'session_disconnected', 'session_orphaned', 'session_fenced',
    'session_slow_closed', 'session_closed', 'session_expired', 'session_refused'
);

CREATE OR REPLACE TEMP TABLE heard AS
SELECT coalesce(max(epoch_ms("at")) - $delay_ms, 0) AS until_ms FROM events WHERE session IS NULL;

CREATE OR REPLACE TEMP TABLE stints AS
WITH keyed AS (
    SELECT *, if(type = 'session_orphaned', coalesce(peer_incarnation, ''), incarnation) AS owner FROM facts
),
beginnings AS (
    SELECT * FROM keyed WHERE type IN ('session_opened', 'session_resumed')
    QUALIFY row_number() OVER (PARTITION BY session, epoch, owner ORDER BY number) = 1
),
endings AS (
    SELECT e.* FROM keyed e LEFT JOIN beginnings b USING (session, epoch, owner)
    WHERE e.type IN ('session_disconnected', 'session_slow_closed') AND (b.number IS NULL OR e.number > b.number)
    QUALIFY row_number() OVER (
        PARTITION BY session, epoch, owner ORDER BY e.type = 'session_slow_closed', e.number
    ) = 1
),
orphanings AS (
    SELECT * FROM keyed WHERE type = 'session_orphaned'
    QUALIFY row_number() OVER (PARTITION BY session, epoch, owner ORDER BY moment, incarnation, number) = 1
),
fences AS (SELECT DISTINCT session, epoch, owner FROM keyed WHERE type = 'session_fenced'),
known AS (
    SELECT session, epoch, owner FROM beginnings UNION SELECT session, epoch, owner FROM endings
    UNION SELECT session, epoch, owner FROM orphanings
),
joined AS (
    SELECT
        k.session, k.epoch, k.owner AS incarnation,
        coalesce(b.node, e.node, o.peer) AS node,
        coalesce(b.release, e.release) AS release,
        coalesce(b.moment, e.moment, o.since, o.moment) AS position,
        b.type AS began, b.moment AS began_at, b.release AS began_release, b.principal, b.client, b.window_ms, b.rung,
        b.reason, b.replayed, b.resent, b.conflated, b.lost, b.peer, b.peer_incarnation,
        if(b.type = 'session_resumed' AND b.away_ms BETWEEN 0 AND 604800000, b.away_ms, NULL) AS told_ms,
        e.moment AS ending_at, o.moment AS orphaned_at, coalesce(o.since, o.moment) AS lived,
        if(o.since IS NULL OR o.until IS NULL, NULL, greatest(0, o.until - o.since) // 1000) AS doubt_ms,
        greatest(b.deduplicated, e.deduplicated) AS deduplicated,
        CASE
            WHEN e.type = 'session_slow_closed' THEN 'slow_consumer'
            WHEN e.type IS NOT NULL THEN coalesce(e.cause, 'connection_lost')
            WHEN o.type IS NOT NULL THEN 'node_died'
            WHEN f.session IS NOT NULL THEN 'fenced'
        END AS cause
    FROM known k
    LEFT JOIN beginnings b USING (session, epoch, owner)
    LEFT JOIN endings e USING (session, epoch, owner)
    LEFT JOIN orphanings o USING (session, epoch, owner)
    LEFT JOIN fences f USING (session, epoch, owner)
)
SELECT
    *,
    row_number() OVER one AS i,
    count(*) OVER (PARTITION BY session) AS n,
    max(position) OVER (one ROWS UNBOUNDED PRECEDING) AS begins
FROM joined
WINDOW one AS (PARTITION BY session ORDER BY epoch, position, incarnation);

CREATE OR REPLACE TEMP TABLE ends AS
WITH told AS (
    SELECT session, moment, type, reason FROM facts WHERE type IN ('session_closed', 'session_expired')
    QUALIFY row_number() OVER (PARTITION BY session ORDER BY moment, incarnation, number) = 1
),
last AS (
    SELECT
        session, max(position) AS latest,
        arg_min(window_ms, i) FILTER (began = 'session_opened' AND window_ms IS NOT NULL) AS window_ms,
        max(coalesce(ending_at, orphaned_at)) FILTER (i = n) AS clock_at
    FROM stints GROUP BY session
),
presumed AS (
    SELECT session, (clock_at + 999) // 1000 + coalesce(window_ms, 7 * 86400000) AS due_ms FROM last
    WHERE clock_at IS NOT NULL AND session NOT IN (SELECT session FROM told)
)
SELECT
    session, greatest(t.moment, coalesce(l.latest, t.moment)) AS moment,
    if(t.type = 'session_closed', 'closed', 'expired') AS kind, t.reason
FROM told t LEFT JOIN last l USING (session)
UNION ALL
SELECT session, greatest(p.due_ms * 1000, l.latest), NULL, 'presumed'
FROM presumed p JOIN last l USING (session) WHERE p.due_ms <= (SELECT until_ms FROM heard);

CREATE OR REPLACE TEMP TABLE spans AS
WITH following AS (
    SELECT
        s.*, x.moment AS ended_at, x.kind AS ended_by,
        lead(begins) OVER one AS next_begins,
        lead(told_ms) OVER one AS next_told,
        if(i = n, x.moment, lead(begins) OVER one) AS bound
    FROM stints s LEFT JOIN ends x USING (session)
    WINDOW one AS (PARTITION BY session ORDER BY i)
),
losses AS (
    SELECT
        *,
        CASE
            WHEN next_told IS NOT NULL THEN next_begins - next_told * 1000
            WHEN ending_at IS NOT NULL THEN if(i = n OR ending_at <= next_begins, ending_at, NULL)
            WHEN lived IS NOT NULL THEN if(i = n OR lived <= next_begins, lived, NULL)
        END AS lost_at,
        CASE
            WHEN next_told IS NOT NULL THEN 'client'
            WHEN ending_at IS NOT NULL THEN 'node'
            WHEN lived IS NOT NULL THEN 'survivors'
        END AS lost_by
    FROM following
),
ended AS (
    SELECT
        *,
        CASE
            WHEN lost_at IS NULL THEN bound
            WHEN bound IS NULL THEN greatest(begins, lost_at)
            ELSE least(bound, greatest(begins, lost_at))
        END AS stops,
        coalesce(cause, if(i = n, ended_by, NULL)) AS why
    FROM losses
)
SELECT
    *,
    lag(stops) OVER one AS gone_at,
    lag(lost_at) OVER one IS NOT NULL AS gone_known,
    lag(lost_by) OVER one AS gone_by,
    if(lag(lost_by) OVER one = 'survivors', lag(doubt_ms) OVER one, NULL) AS gone_doubt
FROM ended
WINDOW one AS (PARTITION BY session ORDER BY i);

CREATE OR REPLACE TEMP TABLE waits AS
SELECT s.session, s.i, count(f.moment) AS put_off, (s.begins - min(f.moment)) // 1000 AS held_up_ms
FROM (
    SELECT session, i, begins, coalesce(lag(begins) OVER (PARTITION BY session ORDER BY i), 0) AS began FROM stints
) s
LEFT JOIN facts f ON f.session = s.session AND f.type = 'session_refused' AND f.moment > s.began
    AND f.moment <= s.begins AND f.reason IN (
        'grid_unavailable', 'draining', 'rate_limited', 'too_many_sessions', 'authentication_unavailable', 'try_later',
        'handshake_timeout'
    )
GROUP BY s.session, s.i, s.begins;

CREATE OR REPLACE TEMP TABLE pieces AS
SELECT session, 0 AS place, {
    'kind': 'away', 'begins': begins - told_ms * 1000, 'ends': begins, 'node': peer, 'incarnation': peer_incarnation,
    'release': NULL, 'epoch': NULL, 'rung': NULL, 'reason': NULL, 'replayed': NULL, 'cause': NULL, 'away_ms': NULL,
    'measured_by': NULL, 'uncertain_ms': NULL, 'resent': NULL, 'conflated': NULL, 'deduplicated': NULL,
    'lost': NULL, 'peer': NULL, 'put_off': NULL, 'held_up_ms': NULL
} AS piece
FROM spans WHERE i = 1 AND told_ms IS NOT NULL
UNION ALL
SELECT session, 2 * i, {
    'kind': 'connected', 'begins': begins, 'ends': stops, 'node': node, 'incarnation': incarnation,
    'release': release, 'epoch': epoch,
    'rung': CASE began WHEN 'session_opened' THEN 'created' WHEN 'session_resumed' THEN rung END,
    'reason': if(began = 'session_resumed', reason, NULL),
    'replayed': if(began = 'session_resumed', replayed, NULL), 'cause': why,
    'away_ms': CASE
        WHEN began IS DISTINCT FROM 'session_resumed' THEN NULL
        WHEN i = 1 THEN told_ms
        WHEN gone_known THEN (begins - gone_at) // 1000
    END,
    'measured_by': CASE
        WHEN began IS DISTINCT FROM 'session_resumed' THEN NULL
        WHEN i = 1 THEN if(told_ms IS NULL, NULL, 'client')
        WHEN gone_known THEN gone_by
    END,
    'uncertain_ms': if(began = 'session_resumed' AND i > 1 AND gone_known, gone_doubt, NULL),
    'resent': if(began = 'session_resumed', resent, NULL),
    'conflated': if(began = 'session_resumed', conflated, NULL),
    'deduplicated': deduplicated,
    'lost': if(began = 'session_resumed', lost, NULL), 'peer': if(began = 'session_resumed', peer, NULL),
    'put_off': if(began = 'session_resumed', put_off, NULL),
    'held_up_ms': if(began = 'session_resumed', held_up_ms, NULL)
} FROM spans JOIN waits USING (session, i)
UNION ALL
SELECT session, 2 * i + 1, {
    'kind': 'away', 'begins': stops, 'ends': bound, 'node': node, 'incarnation': incarnation, 'release': release,
    'epoch': epoch, 'rung': NULL, 'reason': NULL, 'replayed': NULL, 'cause': why, 'away_ms': NULL,
    'measured_by': NULL, 'uncertain_ms': NULL, 'resent': NULL, 'conflated': NULL, 'deduplicated': NULL,
    'lost': NULL, 'peer': NULL, 'put_off': NULL, 'held_up_ms': NULL
} FROM spans WHERE i < n OR (lost_at IS NOT NULL AND stops IS DISTINCT FROM ended_at);

WITH timelines AS (
    SELECT
        session, list(piece ORDER BY place) AS intervals,
        coalesce(sum(piece.ends - piece.begins) FILTER (piece.kind = 'connected'), 0) // 1000 AS connected_ms,
        coalesce(sum(piece.ends - piece.begins) FILTER (piece.kind = 'away'), 0) // 1000 AS away_ms
    FROM pieces GROUP BY session
),
visits AS (SELECT session, node, min(i) AS i FROM stints WHERE node IS NOT NULL GROUP BY session, node),
served AS (
    SELECT session, list(node ORDER BY i) AS nodes FROM visits GROUP BY session
),
counted AS (
    SELECT
        session,
        arg_min(principal, i) FILTER (principal IS NOT NULL AND began IS NOT NULL) AS principal,
        arg_min({'v': client}, i) FILTER (began = 'session_opened') AS client,
        arg_min({'v': window_ms}, i) FILTER (began = 'session_opened') AS window_ms,
        arg_min(began_at, i) FILTER (began = 'session_opened') AS opened_at,
        arg_max({'v': began_release}, i) FILTER (began IS NOT NULL) AS release,
        arg_max(release, i) FILTER (release IS NOT NULL) AS any_release,
        count(*) FILTER (began = 'session_resumed') AS comebacks,
        coalesce(sum(resent) FILTER (began = 'session_resumed'), 0) AS resent,
        coalesce(sum(conflated) FILTER (began = 'session_resumed'), 0) AS conflated,
        coalesce(sum(lost) FILTER (began = 'session_resumed'), 0) AS lost,
        coalesce(sum(deduplicated), 0) AS deduplicated
    FROM stints GROUP BY session
),
told AS (
    SELECT
        session, max(told_epoch) AS epoch, count(*) AS events,
        min(moment) AS first_event_at, max(moment) AS last_event_at,
        count(*) FILTER (type = 'session_refused') AS refused,
        count(*) FILTER (type = 'session_refused' AND reason IN (
            'grid_unavailable', 'draining', 'rate_limited', 'too_many_sessions', 'authentication_unavailable',
            'try_later', 'handshake_timeout'
        )) AS put_off,
        count(*) FILTER (type = 'session_slow_closed') AS slow_closes
    FROM facts GROUP BY session
)
SELECT
    t.session, c.principal, c.client.v AS client, c.window_ms.v AS window_ms, v.nodes[1] AS first_node,
    coalesce(v.nodes, []) AS nodes, if(c.release IS NULL, c.any_release, c.release.v) AS release, t.epoch,
    CASE WHEN x.session IS NOT NULL THEN 'ended' ELSE l.intervals[-1].kind END AS state,
    c.opened_at, x.moment AS ended_at, x.kind AS "end", x.reason AS end_reason,
    coalesce(l.intervals, []) AS intervals,
    CAST(coalesce(l.connected_ms, 0) AS BIGINT) AS connected_ms, CAST(coalesce(l.away_ms, 0) AS BIGINT) AS away_ms,
    coalesce(c.comebacks, 0) AS comebacks, CAST(coalesce(c.resent, 0) AS BIGINT) AS resent,
    CAST(coalesce(c.deduplicated, 0) AS BIGINT) AS deduplicated,
    CAST(coalesce(c.conflated, 0) AS BIGINT) AS conflated, CAST(coalesce(c.lost, 0) AS BIGINT) AS lost,
    t.refused, t.put_off, t.slow_closes, c.opened_at IS NOT NULL AS complete, t.first_event_at, t.last_event_at,
    t.events
FROM told t
LEFT JOIN counted c USING (session)
LEFT JOIN timelines l USING (session)
LEFT JOIN served v USING (session)
LEFT JOIN ends x USING (session)
WHERE c.session IS NOT NULL OR x.session IS NOT NULL
ORDER BY t.session
"""


def silver_by_sql(connection: duckdb.DuckDBPyConnection, *, delay_ms: int) -> list[dict[str, Any]]:
    """Tell the rows of silver, with instants in microseconds.

    Args:
        connection: has a table or a view ``events`` with the columns of bronze.
        delay_ms: by how much the watermark stays behind, in milliseconds.
    """
    *steps, last = _SQL.split(";\n")
    for each in steps:
        connection.execute(each, {"delay_ms": delay_ms} if "$delay_ms" in each else None)
    found = connection.execute(last)
    names = [each[0] for each in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def view_events(connection: duckdb.DuckDBPyConnection, bronze: Path) -> None:
    """Show a connection the events of a bronze."""
    files = f"{bronze}/date=*/hour=*/*.parquet"
    connection.execute(
        f"CREATE VIEW events AS SELECT * FROM read_parquet('{files}', hive_partitioning = true, union_by_name = true)"
    )


def rows_of_table(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[dict[str, Any]]:
    """Read the table of sessions: without the day, in the order of ids, and with instants in microseconds."""
    moments = ("opened_at", "ended_at", "first_event_at", "last_event_at")
    replaced = ", ".join(f"epoch_us({each}) AS {each}" for each in moments)
    interval = ", ".join(
        f"'{each.name}': " + (f"epoch_us(x.{each.name})" if each.name in {"begins", "ends"} else f"x.{each.name}")
        for each in INTERVAL_COLUMNS
    )
    found = connection.execute(
        f"SELECT * EXCLUDE (date) REPLACE ({replaced}, "
        f"list_transform(intervals, lambda x: {{{interval}}}) AS intervals) "
        f"FROM read_parquet('{folder}/*/*.parquet', hive_partitioning = true) ORDER BY session"
    )
    names = [each[0] for each in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
