"""How sessions recover."""

from __future__ import annotations

from typing import Final

from gateway.core.wire.codes import RECOVERED, Outcome
from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure, quantile, rate

_CAME_BACK: Final = "|".join(RECOVERED)
_WITH_BUFFERS: Final = "|".join(each for each in RECOVERED if each is not Outcome.FAILED_OVER)
"""Outcomes of resumes by which a session goes on, and those of them that lose nothing whatever is replayed."""

_NO_RESUME: Final = "no session came back in that time"

RECOVERY: Final = Dashboard(
    name="recovery",
    title="Gateway: recovery",
    meaning="Sessions that resume, by recovery outcome: how fast, and what was lost.",
    sections=(
        Section(
            "The last five minutes",
            (
                figure(
                    "Came back",
                    "Sessions that were resumed.",
                    f'sum(increase(gateway_resumes_total{{outcome=~"{_CAME_BACK}", {CLUSTER}}}[5m]))',
                ),
                figure(
                    "With nothing lost",
                    "Share of them that kept every packet, were sent every update they had missed, or select none.",
                    f'(sum(increase(gateway_resumes_total{{outcome=~"{_WITH_BUFFERS}", {CLUSTER}}}[5m])) '
                    f'+ sum(increase(gateway_failovers_total{{replayed!="false", {CLUSTER}}}[5m]))) '
                    f'/ sum(increase(gateway_resumes_total{{outcome=~"{_CAME_BACK}", {CLUSTER}}}[5m]))',
                    unit=Unit.RATIO,
                    empty=_NO_RESUME,
                ),
                figure(
                    "Refused",
                    "Resumes that were refused, for any reason.",
                    f'sum(increase(gateway_resumes_total{{outcome!~"{_CAME_BACK}", {CLUSTER}}}[5m]))',
                    warn=1,
                ),
                figure(
                    "Losses declared",
                    "Losses reported to sessions.",
                    f"sum(increase(gateway_losses_declared_total{{{CLUSTER}}}[5m]))",
                    warn=1,
                ),
                figure(
                    "Nodes lost",
                    "Nodes with an expired lease whose sessions were taken over.",
                    f"sum(increase(gateway_takeovers_total{{{CLUSTER}}}[5m]))",
                    warn=1,
                ),
                figure(
                    "Draining",
                    "Nodes that move their clients to other nodes.",
                    f"sum(gateway_draining{{{CLUSTER}}})",
                    warn=1,
                ),
            ),
        ),
        Section(
            "Resumes",
            (
                Panel(
                    title="By outcome",
                    meaning="Recovery outcomes, and reasons of refusals.",
                    queries=(Query(rate("gateway_resumes_total", by="outcome"), "{{outcome}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                    width=12,
                ),
                Panel(
                    title="Failed over, by the node that took them",
                    meaning="After a node's death its sessions spread over the others.",
                    queries=(Query(rate("gateway_resumes_total", f'outcome="failed_over", {CLUSTER}'), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                    width=12,
                ),
            ),
        ),
        Section(
            "Time",
            (
                Panel(
                    title="Resume, p99",
                    meaning="From the resume packet to its welcome, p99 by outcome.",
                    queries=(Query(quantile(0.99, "gateway_resume_seconds", by="outcome"), "{{outcome}}"),),
                    unit=Unit.SECONDS,
                    warn=1,
                    empty=_NO_RESUME,
                ),
                Panel(
                    title="Hello, p99",
                    meaning="From the hello packet to its welcome, p99: authentication and one step of the grid.",
                    queries=(Query(quantile(0.99, "gateway_hello_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=1,
                    empty="no session was opened in that time",
                ),
                Panel(
                    title="Credentials, p99",
                    meaning="Time to verify credentials, p99: hashes, an identity provider, a callback of yours.",
                    queries=(Query(quantile(0.99, "gateway_authentication_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=1,
                    empty="no credentials were verified in that time",
                ),
                Panel(
                    title="Claim, p99",
                    meaning="Time of the grid to answer a claim, p99.",
                    queries=(Query(quantile(0.99, "gateway_claim_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=0.5,
                    empty=_NO_RESUME,
                ),
            ),
        ),
        Section(
            "Handoffs",
            (
                Panel(
                    title="Asked of the former owner",
                    meaning="What came of asking the node that had served a session for what it held; all but "
                    "'given' leads to a failover.",
                    queries=(Query(rate("gateway_handoffs_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                    empty=_NO_RESUME,
                ),
                Panel(
                    title="Handoff, p99",
                    meaning="From asking for a session until it was there, p99.",
                    queries=(Query(quantile(0.99, "gateway_handoff_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=0.2,
                    empty=_NO_RESUME,
                ),
                Panel(
                    title="Kept for their new owners",
                    meaning="Sessions that a node keeps as they were until their new owner has heard of the client.",
                    queries=(Query(f"sum by (node) (gateway_former_sessions{{{CLUSTER}}})", "{{node}}"),),
                ),
            ),
        ),
        Section(
            "Copies at backups",
            (
                Panel(
                    title="Sessions, by whether there is a copy",
                    meaning="Of nodes that have a backup. Should a node die, clients of the others fail over.",
                    queries=(
                        Query(
                            f'sum by (node) (gateway_mirror_sessions{{copied="true", {CLUSTER}}})', "{{node}}: copied"
                        ),
                        Query(
                            f'sum by (node) (gateway_mirror_sessions{{copied="false", {CLUSTER}}})', "{{node}}: not yet"
                        ),
                    ),
                ),
                Panel(
                    title="Asked of backups",
                    meaning="What came of asking a backup for a copy; all but 'given' leads to a failover.",
                    queries=(Query(rate("gateway_mirror_takes_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                    empty=_NO_RESUME,
                ),
                Panel(
                    title="Behind, p99",
                    meaning="Time until a backup had taken in what it was sent, p99; and bytes that it has yet to.",
                    queries=(Query(quantile(0.99, "gateway_mirror_lag_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=0.5,
                    empty="no node has a backup",
                ),
                Panel(
                    title="Sent to backups",
                    meaning="Bytes a second, and bytes that they have yet to take in.",
                    queries=(
                        Query(rate("gateway_mirror_bytes_total", by="node"), "{{node}}: a second"),
                        Query(
                            f"sum by (node) (gateway_mirror_unacknowledged_bytes{{{CLUSTER}}})", "{{node}}: to take in"
                        ),
                    ),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Copies kept, and their bytes",
                    meaning="Of other nodes' sessions, at each node.",
                    queries=(
                        Query(f"sum by (node) (gateway_mirror_copies{{{CLUSTER}}})", "{{node}}: copies"),
                        Query(f"sum by (node) (gateway_mirror_copy_bytes{{{CLUSTER}}})", "{{node}}: bytes"),
                    ),
                ),
                Panel(
                    title="Filled anew, and copies given up",
                    meaning="Times that a backup was begun to be filled, and copies without room, or broken by a bug.",
                    queries=(
                        Query(rate("gateway_mirror_begun_total", by="node"), "{{node}}: filled"),
                        Query(rate("gateway_mirror_copies_lost_total", by="why"), "{{why}}"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Output that waits for backups",
                    meaning="Connections whose output waits at the moment, and those a second that stopped waiting.",
                    queries=(
                        Query(f"sum by (node) (gateway_mirror_held_connections{{{CLUSTER}}})", "{{node}}: wait"),
                        Query(rate("gateway_mirror_lapses_total", by="node"), "{{node}}: stopped"),
                    ),
                ),
            ),
        ),
        Section(
            "Storm control",
            (
                Panel(
                    title="Admission",
                    meaning="Clients that were accepted, and those that were rejected because too many come.",
                    queries=(Query(rate("gateway_admissions_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Waiting",
                    meaning="Clients that wait to be accepted, to be verified, and for their turn at the grid.",
                    queries=(
                        Query(f"sum(gateway_admissions_waiting{{{CLUSTER}}})", "to be accepted"),
                        Query(f"sum(gateway_verifications_waiting{{{CLUSTER}}})", "to be verified"),
                        Query(f"sum(gateway_handshakes_waiting{{{CLUSTER}}})", "for the grid"),
                    ),
                ),
                Panel(
                    title="Advised window",
                    meaning="Over how long the clients of a node would spread their return, should it die now.",
                    queries=(Query(f"max by (node) (gateway_backoff_advised_seconds{{{CLUSTER}}})", "{{node}}"),),
                    unit=Unit.SECONDS,
                ),
                Panel(
                    title="Wait for admission, p99",
                    meaning="How long the slowest of a hundred accepted clients had waited.",
                    queries=(Query(quantile(0.99, "gateway_admission_wait_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=1,
                    empty=_NO_RESUME,
                ),
            ),
        ),
        Section(
            "Replay",
            (
                Panel(
                    title="Failovers, replayed or not",
                    meaning="Clients that failed over: sent all that they had missed (true), current values of some "
                    "topics at least (false), or nothing, as they select nothing.",
                    queries=(Query(rate("gateway_failovers_total", by="replayed"), "{{replayed}}"),),
                    unit=Unit.PER_SECOND,
                    width=12,
                ),
                Panel(
                    title="Updates replayed",
                    meaning="Updates that clients had missed and were sent after a failover, not current values.",
                    queries=(Query(rate("gateway_replayed_updates_total"), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                    width=12,
                ),
                Panel(
                    title="Not replayed",
                    meaning="Topic partitions of which a client got current values all the same, by reason.",
                    queries=(Query(rate("gateway_not_replayed_total", by="reason"), "{{reason}}"),),
                    unit=Unit.PER_SECOND,
                    width=12,
                ),
                Panel(
                    title="History read by clients",
                    meaning="Events of topics with history that clients have read, and readings that met a gap: not "
                    "all that they asked for was kept.",
                    queries=(
                        Query(rate("gateway_history_events_total"), "events {{node}}"),
                        Query(rate("gateway_history_gaps_total"), "gaps {{node}}"),
                    ),
                    unit=Unit.PER_SECOND,
                    width=12,
                ),
                Panel(
                    title="History cut and restored",
                    meaning="Entries of histories that were cut by age or dropped with their destination, and events "
                    "that nodes put back after the grid had lost writes.",
                    queries=(
                        Query(rate("gateway_history_swept_total"), "cut {{node}}"),
                        Query(rate("gateway_history_restored_total"), "restored {{node}}"),
                    ),
                    unit=Unit.PER_SECOND,
                    width=12,
                ),
                Panel(
                    title="What it costs",
                    meaning="Streams read again, and updates looked at: once for all who come together.",
                    queries=(
                        Query(rate("gateway_replay_reads_total"), "reads {{node}}"),
                        Query(rate("gateway_replay_events_total"), "updates {{node}}"),
                    ),
                    unit=Unit.PER_SECOND,
                    width=12,
                ),
            ),
        ),
        Section(
            "What went wrong",
            (
                Panel(
                    title="Losses declared",
                    meaning="A gap beyond the resend buffers, a place lost in a stream, a grid that came back with "
                    "less.",
                    queries=(Query(rate("gateway_losses_declared_total", by="kind"), "{{kind}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Leases and takeovers",
                    meaning="Leases that nodes found gone, and dead nodes whose sessions were put on the clock.",
                    queries=(
                        Query(rate("gateway_lease_lost_total"), "{{node}} lost its lease"),
                        Query(rate("gateway_takeovers_total"), "{{node}} took over"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Suspects and takeovers under way",
                    meaning="Nodes that are not heard though their leases hold, and those that are taken over.",
                    queries=(
                        Query(f"gateway_suspects{{{CLUSTER}}}", "{{node}} suspects"),
                        Query(f"gateway_takeovers_under_way{{{CLUSTER}}}", "{{node}} takes over"),
                    ),
                ),
                Panel(
                    title="Fenced writes",
                    meaning="Writes that the grid refused because the session has a newer owner: nodes that were "
                    "hung or cut off, kept from doing harm.",
                    queries=(Query(rate("gateway_fenced_writes_total"), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
