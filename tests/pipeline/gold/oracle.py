"""The gold tables a second time: by DuckDB, from the same files, and written without a look at how Spark makes them.

Where the job takes arrays apart, this joins; where it walks over windows, this counts on a grid of time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

RETRYABLE: Final = (
    "'grid_unavailable', 'draining', 'rate_limited', 'too_many_sessions', 'authentication_unavailable', 'try_later', "
    "'handshake_timeout'"
)
"""As the wire protocol says."""

RUNGS: Final = "'reattached', 'handed_over', 'mirrored', 'failed_over'"
"""Those with a column."""

_VIEWS: Final = """
SET timezone = 'UTC';

CREATE VIEW ev AS
SELECT * FROM read_parquet('{lake}/bronze/date=*/hour=*/*.parquet', union_by_name = true, hive_partitioning = true);
CREATE VIEW se AS SELECT * FROM read_parquet('{lake}/silver/sessions/**/*.parquet', union_by_name = true);

-- Every interval, with its place in its session.
CREATE TABLE iv AS
SELECT session, "end" AS session_end, "state" AS session_state, unnest(intervals, recursive := true),
       unnest(range(len(intervals))) AS place
FROM se;

CREATE TABLE stint AS
SELECT *, row_number() OVER (PARTITION BY session ORDER BY place) AS turn FROM iv WHERE kind = 'connected';

CREATE TABLE back AS SELECT * FROM stint WHERE rung IS NOT NULL AND rung <> 'created';

CREATE MACRO ranked(values_, hundredths) AS
    list_sort(values_)[greatest(1, (len(values_) * hundredths + 99) // 100)];

CREATE TABLE runs AS
SELECT incarnation, max(node) AS node, max("release") AS "release", min("at") AS first_at, max("at") AS last_at,
       min("at") FILTER (type = 'node_started') AS started_at,
       min("at") FILTER (type = 'node_draining') AS draining_at,
       min("at") FILTER (type = 'node_stopped') AS stopped_at,
       max("at") FILTER (type = 'node_lease_lost') AS awoke_at
FROM ev GROUP BY incarnation;

CREATE TABLE gone AS
SELECT peer_incarnation AS incarnation, max(peer) AS node, min("since") AS "since", min("until") AS "until",
       min("at") FILTER (type = 'node_taken_over') AS taken_over_at,
       (SELECT node FROM ev e
        WHERE e.peer_incarnation = ev.peer_incarnation AND e.type IN ('node_expired', 'session_orphaned')
        ORDER BY "at", node LIMIT 1) AS noticed_by
FROM ev WHERE type IN ('node_expired', 'session_orphaned', 'node_taken_over') GROUP BY peer_incarnation;

CREATE TABLE blackout AS
WITH word AS (
    SELECT incarnation, node, "release", "at", type, lost_writes, away_ms,
           row_number() OVER (PARTITION BY incarnation ORDER BY split_part(id, '-', 2)::BIGINT) AS n
    FROM ev WHERE type IN ('grid_lost', 'grid_regained')
)
SELECT l.incarnation, l.node, l."release", l."at" AS begins, r."at" AS ends, r.lost_writes AS forgot
FROM word l LEFT JOIN word r ON r.incarnation = l.incarnation AND r.n = l.n + 1 AND r.type = 'grid_regained'
WHERE l.type = 'grid_lost'
UNION ALL
SELECT r.incarnation, r.node, r."release", r."at" - to_milliseconds(coalesce(r.away_ms, 0)), r."at", r.lost_writes
FROM word r LEFT JOIN word l ON l.incarnation = r.incarnation AND l.n = r.n - 1 AND l.type = 'grid_lost'
WHERE r.type = 'grid_regained' AND l.n IS NULL;

CREATE TABLE outage AS
WITH first_of AS (
    -- Whoever lost the grid while nobody else was without it, nor had been just before, begins an outage.
    SELECT incarnation, begins FROM blackout b WHERE NOT EXISTS (
        SELECT 1 FROM blackout p WHERE (p.begins, p.incarnation) < (b.begins, b.incarnation)
          AND coalesce(p.ends, p.begins) + INTERVAL 5 SECONDS >= b.begins)
), span AS (
    SELECT incarnation, begins,
           lead((begins, incarnation)) OVER (ORDER BY begins, incarnation) AS until FROM first_of
)
SELECT 'outage-' || strftime(s.begins, '%Y%m%dT%H%M%S.%g') AS incident, s.begins, max(b.ends) AS ends,
       list_sort(list(DISTINCT b.node)) AS nodes, max(b."release") AS "release", bool_or(b.forgot) AS lost_writes,
       (list(b.node ORDER BY b.begins, b.node))[1] AS noticed_by
FROM span s JOIN blackout b ON (b.begins, b.incarnation) >= (s.begins, s.incarnation)
    AND (s.until IS NULL OR (b.begins, b.incarnation) < s.until)
GROUP BY s.begins, s.incarnation;

CREATE TABLE incident AS
SELECT kind || '-' || incarnation AS incident, kind, node, if(node IS NULL, [], [node]) AS nodes, incarnation,
       "release", begins, greatest(begins, ends) AS ends, NULL::BOOLEAN AS lost_writes, noticed_by,
       greatest(0, coalesce(epoch_ms(begins) - epoch_ms(ends), 0)) AS skew_ms
FROM (
SELECT CASE WHEN awoke_at >= "since" THEN 'hang' ELSE 'death' END AS kind, coalesce(gone.node, runs.node) AS node,
       gone.incarnation, "release",
       CASE WHEN awoke_at >= "since" THEN "since" ELSE greatest("since", least(last_at, "until")) END AS begins,
       coalesce(taken_over_at, "until") AS ends, noticed_by
FROM gone LEFT JOIN runs USING (incarnation) WHERE stopped_at IS NULL
UNION ALL
SELECT 'death', node, incarnation, "release", last_at,
       (SELECT min(started_at) FROM runs later WHERE later.node = runs.node AND later.first_at > runs.first_at), NULL
FROM runs
WHERE stopped_at IS NULL AND incarnation NOT IN (SELECT incarnation FROM gone)
  AND EXISTS (SELECT 1 FROM runs later WHERE later.node = runs.node AND later.first_at > runs.first_at)
UNION ALL
SELECT 'drain', node, incarnation, "release", draining_at, stopped_at, NULL FROM runs WHERE draining_at IS NOT NULL
)
UNION ALL
SELECT incident, 'outage', if(len(nodes) = 1, nodes[1], NULL), nodes, NULL, "release", begins, greatest(begins, ends),
       lost_writes, noticed_by, greatest(0, coalesce(epoch_ms(begins) - epoch_ms(ends), 0))
FROM outage;
"""

_AWAY: Final = """
count(away_ms) AS measured,
ranked(list(away_ms) FILTER (away_ms IS NOT NULL), 50) AS away_p50_ms,
ranked(list(away_ms) FILTER (away_ms IS NOT NULL), 95) AS away_p95_ms,
ranked(list(away_ms) FILTER (away_ms IS NOT NULL), 99) AS away_p99_ms,
max(away_ms) AS away_max_ms
"""

_TOUCHED: Final = """
SELECT incident, who.session, principal, client, who.begins AS connected_at,
       who.ends AS left_at, who.cause,
       CASE WHEN nxt.session IS NOT NULL THEN 'recovered' WHEN se."end" = 'closed' THEN 'closed'
            WHEN se."state" = 'ended' OR se.session IS NULL THEN 'expired' ELSE 'away' END AS fate,
       nxt.begins AS back_at, nxt.node AS back_node, nxt.rung, nxt.replayed, nxt.away_ms, nxt.measured_by,
       nxt.uncertain_ms, nxt.resent, nxt.lost, if(who.outage, who.put_off, nxt.put_off) AS put_off, nxt.held_up_ms,
       who.refused, who.happened::DATE AS "date"
FROM (
    SELECT incident, session, stint.begins, stint.ends, cause, turn, false AS outage, NULL AS put_off, NULL AS refused,
           incident.begins AS happened,
           row_number() OVER (PARTITION BY incident, session ORDER BY turn) AS first_of
    FROM incident JOIN stint USING (incarnation)
    WHERE stint.begins <= coalesce(incident.ends, incident.begins)
      AND (stint.ends IS NULL OR stint.ends >= incident.begins - INTERVAL 1 SECOND)
      AND CASE incident.kind
          WHEN 'drain' THEN stint.cause IS NULL OR stint.cause NOT IN ('closed', 'expired')
          ELSE stint.cause IS NULL OR stint.cause IN ('node_died', 'fenced') END
    UNION ALL
    SELECT incident, session, s.begins, s.ends, s.cause, s.turn, true, put_off, refused, happened, 1
    FROM (
        SELECT incident, i.begins AS happened, e.session, min("at") AS first_at,
               count(*) FILTER (reason = 'grid_unavailable') AS put_off,
               count(*) FILTER (reason = 'session_unknown') AS refused
        FROM incident i JOIN ev e ON i.kind = 'outage' AND e.type = 'session_refused' AND e.session IS NOT NULL
             AND list_contains(i.nodes, e.node) AND e."at" >= i.begins - INTERVAL 1 SECOND
             AND e."at" <= coalesce(i.ends, i.begins) + INTERVAL 60 SECONDS
             AND (reason = 'grid_unavailable' OR (reason = 'session_unknown' AND i.lost_writes))
        GROUP BY ALL
    ) AS met
    LEFT JOIN LATERAL (
        SELECT begins, ends, cause, turn FROM stint WHERE stint.session = met.session AND stint.begins <= met.first_at
        ORDER BY turn DESC LIMIT 1
    ) AS s ON true
) AS who
LEFT JOIN se USING (session)
LEFT JOIN stint AS nxt ON nxt.session = who.session AND nxt.turn = who.turn + 1
WHERE first_of = 1
"""

_QUERIES: Final = {
    "objectives": f"""
        WITH touched AS ({_TOUCHED}), never AS (
            SELECT session, arg_min(i, i.begins::VARCHAR || i.incident) AS i
            FROM touched JOIN incident i USING (incident)
            WHERE fate IN ('expired', 'away') GROUP BY session
        ), m AS (
            SELECT date_trunc('hour', i.begins) AS "hour", i.node AS node, i."release" AS "release", count(*) AS missed
            FROM never GROUP BY ALL
        ), dead AS (
            SELECT "at", node, "release", row_number() OVER (PARTITION BY session, "at"::DATE ORDER BY "at", node) AS n
            FROM ev WHERE type = 'session_refused' AND session IS NOT NULL AND reason NOT IN ({RETRYABLE})
              AND session NOT IN (SELECT session FROM never)
        ), d AS (
            SELECT date_trunc('hour', "at") AS "hour", node, "release", count(*) AS refused_sessions
            FROM dead WHERE n = 1 GROUP BY ALL
        ), expired AS (
            SELECT ended_at, stint.node, stint."release" FROM se
            LEFT JOIN stint ON stint.session = se.session
                AND turn = (SELECT max(turn) FROM stint s WHERE s.session = se.session)
            WHERE se."end" = 'expired' OR se.end_reason = 'presumed'
        ), keys AS (
            SELECT date_trunc('hour', begins) AS "hour", node, "release" FROM back
            UNION SELECT date_trunc('hour', "at"), node, "release" FROM ev WHERE type = 'session_refused'
            UNION SELECT date_trunc('hour', ended_at), node, "release" FROM expired
            UNION SELECT "hour", node, "release" FROM m UNION SELECT "hour", node, "release" FROM d
        ), b AS (
            SELECT date_trunc('hour', begins) AS "hour", node, "release", count(*) AS comebacks,
                   count(*) FILTER (rung = 'reattached') AS reattached,
                   count(*) FILTER (rung = 'handed_over') AS handed_over,
                   count(*) FILTER (rung = 'mirrored') AS mirrored,
                   count(*) FILTER (rung = 'failed_over') AS failed_over,
                   count(*) FILTER (rung NOT IN ({RUNGS})) AS other_rungs,
                   count(*) FILTER (replayed) AS replayed, count(*) FILTER (NOT replayed) AS not_replayed,
                   {_AWAY}, sum(resent) AS resent, sum(conflated) AS conflated, sum(deduplicated) AS deduplicated,
                   count(*) FILTER (lost > 0) AS lossy, sum(lost) AS lost
            FROM back GROUP BY ALL
        ), r AS (
            SELECT date_trunc('hour', "at") AS "hour", node, "release",
                   count(*) FILTER (session IS NOT NULL AND reason NOT IN ({RETRYABLE})) AS refused,
                   count(*) FILTER (session IS NOT NULL AND reason IN ({RETRYABLE})) AS put_off,
                   count(*) FILTER (session IS NULL) AS strangers
            FROM ev WHERE type = 'session_refused' GROUP BY ALL
        ), x AS (
            SELECT date_trunc('hour', ended_at) AS "hour", node, "release", count(*) AS expired
            FROM expired GROUP BY ALL
        )
        SELECT keys.*, coalesce(comebacks, 0) AS comebacks, coalesce(reattached, 0) AS reattached,
               coalesce(handed_over, 0) AS handed_over, coalesce(mirrored, 0) AS mirrored,
               coalesce(failed_over, 0) AS failed_over, coalesce(other_rungs, 0) AS other_rungs,
               coalesce(replayed, 0) AS replayed, coalesce(not_replayed, 0) AS not_replayed,
               coalesce(refused, 0) AS refused, coalesce(refused_sessions, 0) AS refused_sessions,
               coalesce(missed, 0) AS missed, coalesce(put_off, 0) AS put_off, coalesce(strangers, 0) AS strangers,
               coalesce(expired, 0) AS expired,
               CASE WHEN coalesce(comebacks, 0) + coalesce(refused_sessions, 0) + coalesce(missed, 0) > 0
                    THEN coalesce(comebacks, 0)
                         / (coalesce(comebacks, 0) + coalesce(refused_sessions, 0) + coalesce(missed, 0)) END
                    AS recovered_share,
               CASE WHEN comebacks > 0 THEN reattached / comebacks END AS reattached_share,
               coalesce(measured, 0) AS measured, away_p50_ms, away_p95_ms, away_p99_ms, away_max_ms,
               coalesce(resent, 0) AS resent, coalesce(conflated, 0) AS conflated,
               coalesce(deduplicated, 0) AS deduplicated, coalesce(lossy, 0) AS lossy, coalesce(lost, 0) AS lost,
               keys."hour"::DATE AS "date"
        FROM keys
        LEFT JOIN b ON b."hour" = keys."hour" AND b.node IS NOT DISTINCT FROM keys.node
            AND b."release" IS NOT DISTINCT FROM keys."release"
        LEFT JOIN r ON r."hour" = keys."hour" AND r.node IS NOT DISTINCT FROM keys.node
            AND r."release" IS NOT DISTINCT FROM keys."release"
        LEFT JOIN x ON x."hour" = keys."hour" AND x.node IS NOT DISTINCT FROM keys.node
            AND x."release" IS NOT DISTINCT FROM keys."release"
        LEFT JOIN m ON m."hour" = keys."hour" AND m.node IS NOT DISTINCT FROM keys.node
            AND m."release" IS NOT DISTINCT FROM keys."release"
        LEFT JOIN d ON d."hour" = keys."hour" AND d.node IS NOT DISTINCT FROM keys.node
            AND d."release" IS NOT DISTINCT FROM keys."release"
    """,
    "incidents": f"""
        WITH touched AS ({_TOUCHED})
        SELECT i.incident, any_value(kind) AS kind, any_value(i.node) AS node, any_value(nodes) AS nodes,
               any_value(incarnation) AS incarnation, any_value("release") AS "release", any_value(begins) AS begins,
               any_value(ends) AS ends, any_value(skew_ms) AS skew_ms, any_value(lost_writes) AS lost_writes,
               any_value(noticed_by) AS noticed_by,
               any_value(CASE WHEN kind IN ('death', 'hang') THEN (
                   SELECT min("at") FROM ev WHERE type = 'node_suspected' AND peer_incarnation = i.incarnation
                   AND "at" >= i.begins - INTERVAL 1 SECOND) END) AS suspected_at,
               any_value(CASE WHEN kind IN ('death', 'hang') THEN (
                   SELECT min("at") FROM ev WHERE type = 'node_taken_over' AND peer_incarnation = i.incarnation) END)
                   AS taken_over_at,
               any_value(CASE WHEN kind IN ('death', 'hang') THEN (
                   SELECT count(*) FROM ev WHERE type = 'node_takeover_continued'
                   AND peer_incarnation = i.incarnation) END) AS takeovers_continued,
               any_value(CASE WHEN kind IN ('death', 'hang') THEN (
                   SELECT min("at") FROM ev WHERE type = 'node_cleaned_up' AND peer_incarnation = i.incarnation) END)
                   AS cleaned_up_at,
               count(session) AS sessions,
               count(*) FILTER (fate = 'recovered') AS comebacks, count(*) FILTER (rung = 'reattached') AS reattached,
               count(*) FILTER (rung = 'handed_over') AS handed_over, count(*) FILTER (rung = 'mirrored') AS mirrored,
               count(*) FILTER (rung = 'failed_over') AS failed_over,
               count(*) FILTER (rung NOT IN ({RUNGS})) AS other_rungs,
               count(*) FILTER (replayed) AS replayed, count(*) FILTER (NOT replayed) AS not_replayed,
               count(*) FILTER (fate = 'expired') AS expired, count(*) FILTER (fate = 'closed') AS closed,
               count(*) FILTER (fate = 'away') AS away,
               CASE WHEN count(session) > 0 THEN count(*) FILTER (fate = 'recovered') / count(session) END
                    AS recovered_share,
               {_AWAY}, coalesce(sum(resent), 0) AS resent, count(*) FILTER (lost > 0) AS lossy,
               coalesce(sum(lost), 0) AS lost,
               if(count(session) > 0, count(*) FILTER (put_off > 0), NULL) AS put_off,
               if(count(session) > 0, count(*) FILTER (refused > 0), NULL) AS refused,
               ranked(list(held_up_ms) FILTER (held_up_ms IS NOT NULL), 50) AS held_up_p50_ms,
               max(held_up_ms) AS held_up_max_ms, max(back_at) AS settled_at, any_value(begins)::DATE AS "date"
        FROM incident i LEFT JOIN touched USING (incident)
        GROUP BY i.incident
    """,
    "incident_sessions": _TOUCHED,
    "storms": f"""
        WITH bucket AS (
            SELECT time_bucket(INTERVAL 10 SECONDS, begins) AS b, count(*) AS n FROM back GROUP BY 1
        ), grid AS (
            SELECT h, h + INTERVAL 10 SECONDS * i AS b
            FROM (SELECT DISTINCT date_trunc('hour', begins) AS h FROM back), range(360) AS t(i)
        ), filled AS (
            SELECT h, grid.b, coalesce(n, 0) AS n FROM grid LEFT JOIN bucket USING (b)
        ), usual AS (
            SELECT h, list_sort(list(n))[180] AS usual FROM filled GROUP BY h
        ), crowded AS (
            SELECT b, n, usual FROM filled JOIN usual USING (h) WHERE n >= 20 AND n >= 5 * usual
        ), storm AS (
            -- Whichever crowded bucket has no other within 20 s before it begins a storm.
            SELECT b AS begins, coalesce(lead(b) OVER (ORDER BY b), 'infinity') AS next_begins FROM crowded c
            WHERE NOT EXISTS (
                SELECT 1 FROM crowded p WHERE p.b < c.b AND p.b >= c.b - INTERVAL 20 SECONDS)
        ), summed AS (
            SELECT begins, max(b) + INTERVAL 10 SECONDS AS ends, sum(n) AS comebacks, max(n) AS peak,
                   (list(usual ORDER BY n DESC, b))[1] AS usual
            FROM storm JOIN crowded ON b >= begins AND b < next_begins GROUP BY begins
        )
        SELECT s.begins, s.ends, comebacks,
               (SELECT count(DISTINCT session) FROM back WHERE back.begins >= s.begins AND back.begins < s.ends)
                   AS sessions,
               peak, usual,
               (SELECT count(*) FROM ev WHERE type = 'session_refused' AND reason IN ({RETRYABLE})
                AND session IS NOT NULL AND "at" >= s.begins AND "at" < s.ends) AS put_off,
               (SELECT list_sort(list(DISTINCT node)) FROM back
                WHERE back.begins >= s.begins AND back.begins < s.ends) AS nodes,
               coalesce((SELECT list_sort(list(i.incident)) FROM incident i
                WHERE i.begins < s.ends AND coalesce(i.ends, i.begins) + INTERVAL 60 SECONDS >= s.begins), [])
                   AS incidents,
               s.begins::DATE AS "date"
        FROM summed s
    """,
    "refused_sessions": f"""
        SELECT e.session, any_value(s.principal) AS principal, any_value(s.client) AS client, count(*) AS refusals,
               arg_min(reason, "at") AS reason, arg_min(node, "at") AS node, min("at") AS first_at,
               max("at") AS last_at, "at"::DATE AS "date"
        FROM ev e LEFT JOIN se s USING (session)
        WHERE type = 'session_refused' AND session IS NOT NULL AND reason NOT IN ({RETRYABLE})
        GROUP BY e.session, "at"::DATE
    """,
    "slow_consumers": """
        SELECT e.session, any_value(s.principal) AS principal, any_value(s.client) AS client, count(*) AS closes,
               min("at") AS first_at, max("at") AS last_at, list_sort(list(DISTINCT node)) AS nodes,
               coalesce(max(packets), 0) AS packets, coalesce(max(bytes), 0) AS bytes, "at"::DATE AS "date"
        FROM ev e LEFT JOIN se s USING (session) WHERE type = 'session_slow_closed' GROUP BY e.session, "at"::DATE
    """,
    "traffic": """
        WITH whole AS (
            SELECT incarnation, "until", cpu_ms, deliveries FROM ev WHERE type = 'traffic_measured' AND root IS NULL
        ), part AS (
            SELECT date_trunc('hour', e."until") AS "hour", e.root, e.deliveries, e.publishes, e.bytes,
                   CASE WHEN whole.deliveries > 0
                        THEN (whole.cpu_ms::HUGEINT * 1000 * least(e.deliveries, whole.deliveries))
                                  // whole.deliveries END AS cost
            FROM ev e LEFT JOIN whole USING (incarnation, "until")
            WHERE e.type = 'traffic_measured' AND e.root IS NOT NULL
        )
        SELECT "hour", root, sum(deliveries) AS deliveries, sum(publishes) AS publishes, sum(bytes) AS bytes,
               coalesce(sum(cost), 0) // 1000 AS cpu_ms,
               CASE WHEN sum(sum(cost)) OVER (PARTITION BY "hour") > 0
                    THEN coalesce(sum(cost), 0) / sum(sum(cost)) OVER (PARTITION BY "hour") END AS cost_share,
               "hour"::DATE AS "date"
        FROM part GROUP BY "hour", root
    """,
    "queues": """
        SELECT date_trunc('hour', "until") AS "hour", queue, coalesce(sum(sent), 0) AS sent,
               coalesce(sum(given), 0) AS given, coalesce(sum(redelivered), 0) AS redelivered,
               coalesce(sum(accepted), 0) AS accepted, coalesce(sum(rejected), 0) AS rejected,
               coalesce(sum(released), 0) AS released,
               coalesce(sum(sent), 0) - coalesce(sum(accepted), 0) - coalesce(sum(rejected), 0) AS growth,
               coalesce(sum(settle_ms), 0) AS settle_ms,
               CASE WHEN sum(accepted) > 0 THEN sum(settle_ms) / sum(accepted) END AS settle_mean_ms,
               coalesce(max(settle_max_ms), 0) AS settle_max_ms, date_trunc('hour', "until")::DATE AS "date"
        FROM ev WHERE type = 'queue_measured' GROUP BY ALL
    """,
    "zone_links": """
        WITH l AS (
            SELECT * EXCLUDE ("hour"),
                   date_trunc('hour', CASE WHEN type = 'zone_link_measured' THEN "until" ELSE "at" END) AS "hour",
                   type = 'zone_link_measured' AS m, type = 'zone_link_lost' AS gone
            FROM ev WHERE starts_with(type, 'zone_')
        )
        SELECT "hour", remote, direction, list_sort(list(DISTINCT node)) AS nodes,
               coalesce(sum(events) FILTER (m), 0) AS events, coalesce(sum(bytes) FILTER (m), 0) AS bytes,
               coalesce(sum(taken) FILTER (m), 0) AS taken, coalesce(sum(repeated) FILTER (m), 0) AS repeated,
               coalesce(sum(refused) FILTER (m), 0) AS refused, coalesce(max(behind) FILTER (m), 0) AS behind,
               count(*) FILTER (type = 'zone_link_connected') AS connected,
               count(*) FILTER (gone AND reason IS DISTINCT FROM 'refused' AND reason IS DISTINCT FROM 'given_up')
                   AS lost,
               count(*) FILTER (gone AND reason = 'refused') AS hung_up,
               count(*) FILTER (type = 'zone_gap_found') AS gaps, "hour"::DATE AS "date"
        FROM l GROUP BY "hour", remote, direction
    """,
    "masters": """
        WITH e AS (
            SELECT incarnation, term, max(node) AS node, max("release") AS "release", max(peer) AS "before",
                   min("at") AS elected_at
            FROM ev WHERE type = 'master_elected' GROUP BY incarnation, term
        ), known AS (
            SELECT e.*,
                   (SELECT min("at") FROM ev m WHERE m.type = 'master_missed' AND m.peer_incarnation = e.incarnation
                    AND m.term = e.term) AS missed_at,
                   (SELECT min(n.elected_at) FROM e n WHERE n.elected_at > e.elected_at) AS next_at
            FROM e
        )
        SELECT node, incarnation, "release", term, "before", elected_at, missed_at,
               least(missed_at, next_at) AS ended_at,
               (epoch_us(least(missed_at, next_at)) - epoch_us(elected_at)) // 1000 AS held_ms,
               CASE WHEN missed_at IS NOT NULL AND next_at IS NOT NULL
                    THEN greatest((epoch_us(next_at) - epoch_us(missed_at)) // 1000, 0) END AS vacant_ms,
               elected_at::DATE AS "date"
        FROM known
    """,
    "capacity": """
        WITH h AS (
            SELECT date_trunc('hour', "until") AS "hour", node, max(connections) AS connections_peak,
                   max(sessions) AS sessions_peak, sum(deliveries) AS deliveries, sum(publishes) AS publishes,
                   sum(bytes) AS bytes, sum(cpu_ms) AS cpu_ms,
                   sum((epoch_us("until") - epoch_us("since"))::HUGEINT) // 1000 AS measured_ms
            FROM ev WHERE type = 'traffic_measured' AND root IS NULL GROUP BY ALL
        )
        SELECT h.*, CASE WHEN h.measured_ms > 0 THEN h.cpu_ms / h.measured_ms END AS cpu_share,
               CASE WHEN h.deliveries > 0 THEN h.cpu_ms * 1000 / h.deliveries END AS us_per_delivery,
               b.connections_peak AS connections_peak_before, b.deliveries AS deliveries_before,
               h."hour"::DATE AS "date"
        FROM h LEFT JOIN h AS b ON b.node = h.node AND b."hour" = h."hour" - INTERVAL 24 HOURS
    """,
    "rejections": """
        SELECT split_part(reason, ':', 1) AS reason, count(*) FILTER (line >= 0) AS lines,
               count(*) FILTER (line < 0) AS gaps, list_sort(list(DISTINCT stream)) AS streams,
               min(seen_at) AS first_at, max(seen_at) AS last_at, seen_at::DATE AS "date"
        FROM rejected GROUP BY split_part(reason, ':', 1), seen_at::DATE
    """,
    "losses": """
        WITH numbered AS (
            SELECT *, split_part(id, '-', 2)::BIGINT AS number, "date" AS day FROM ev
        ), first_day AS (SELECT min(day) AS first_day FROM numbered)
        SELECT node, incarnation, "release", events, lowest, highest, missing, dropped,
               greatest(missing - dropped, 0) AS unexplained, first_at, last_at, "date"
        FROM (
            SELECT max(node) AS node, incarnation, max("release") AS "release", count(*) AS events,
                   min(number) AS lowest, max(number) AS highest,
                   greatest(0, max(number) - count(*) - coalesce(
                       (SELECT max(number) FROM numbered p WHERE p.incarnation = n.incarnation AND p.day < n.day),
                       CASE WHEN n.day = any_value(first_day) AND count(*) FILTER (type = 'node_started') = 0
                            THEN min(number) - 1 ELSE 0 END)) AS missing,
                   coalesce(sum(count) FILTER (type = 'events_dropped'), 0) AS dropped, min("at") AS first_at,
                   max("at") AS last_at, day AS "date"
            FROM numbered n, first_day GROUP BY incarnation, day
        )
    """,
}


def oracle(lake: Path) -> duckdb.DuckDBPyConnection:
    """Open the lake's bronze and silver for ``QUERIES``."""
    connection = duckdb.connect()
    connection.execute(_VIEWS.format(lake=lake))
    if any((lake / "bronze" / "_rejected").rglob("*.parquet")):
        connection.execute(f"CREATE VIEW rejected AS FROM read_parquet('{lake}/bronze/_rejected/*/*.parquet')")
    else:
        connection.execute("CREATE TABLE rejected (reason TEXT, line INT, stream INT, seen_at TIMESTAMPTZ)")
    return connection


def query(table: str) -> str:
    """Return the query that computes a gold table."""
    return _QUERIES[table]
