"""Tables of what the model says, for terminals and for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.model.plan import Plan, Rules, Workload
from benchmarks.model.predict import Comparison

Rows = Sequence[Sequence[str]]

_TENS: Final = 10.0
_HUNDREDS: Final = 100.0


def number(value: float) -> str:
    """Write a number with as many decimals as it deserves."""
    if value >= _HUNDREDS:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= _TENS else f"{value:.2f}"


def plain(rows: Rows, *, right: bool = True) -> str:
    """Align columns with spaces.

    Args:
        rows: the first is the header.
        right: whether columns after the first hold numbers, which are aligned at their ends.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column and right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: Rows) -> str:
    """Write a table of Markdown; the first row is the header."""
    header, *rest = rows
    rule = ["---", *("--:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rest])


def plan_rows(found: Plan, workload: Workload, rules: Rules) -> Rows:
    """Tell a plan, what it needs first, then why."""
    wanted = ", ".join(f"{name} {count:,}" for name, count in found.wanted.items())
    recovery = found.recovery
    return [
        ("what", "how much", "why"),
        ("nodes", f"{found.nodes:,}", f"{found.bottleneck} decides; wanted: {wanted}"),
        ("node, core", f"{found.node_busy:.0%}", f"at most {rules.busy:.0%}; one process uses one core"),
        ("node, memory", f"{found.node_memory:.2f} GiB", f"at most {rules.node_memory:g} GiB, also after a loss"),
        ("updates in a write", number(found.joined), "how many the node joins"),
        ("wait on the node, p99", f"{number(found.p99)} ms", "from the stream to the socket"),
        ("Redis masters", f"{found.masters:,}", f"they use {number(found.redis_cores)} cores"),
        ("Redis, memory", f"{number(found.redis_memory)} GiB", "all masters, no replicas"),
        ("Redis, egress", f"{number(found.redis_egress)} Gbit/s", "every node reads what it follows"),
        ("HAProxy, cores", f"{found.haproxy_cores:,}", "all processes, without TLS"),
        ("HAProxy, memory", f"{number(found.haproxy_memory)} GiB", "two kernel sockets each included"),
        ("towards clients", f"{number(found.client_traffic)} Gbit/s", f"{workload.update_bytes} bytes an update"),
        (
            f"{rules.nodes_lost} of the nodes lost",
            f"{number(recovery.last)} s",
            "; ".join(
                (
                    f"{found.lost_sessions:,} sessions",
                    f"half are served after {number(recovery.typical)} s",
                    f"{recovery.attempts:.2f} attempts each",
                    f"limited by {recovery.bottleneck}",
                )
            ),
        ),
    ]


def assumptions(workload: Workload, rules: Rules) -> str:
    """Tell what the plan takes for granted."""
    asked = (
        f"{workload.sessions:,} sessions with {workload.selections} selections each",
        f"{workload.churn:,.0f} of them come per second",
        f"{number(workload.updates)} updates/s of {workload.value_bytes} bytes",
        f"each to {min(workload.audience, workload.sessions):,.0f} sessions",
        f"{workload.topics:,} topics below {workload.roots:,} roots",
        f"a node follows {workload.interest:.0%} of the updates",
    )
    free = (
        f"nodes {rules.busy:.0%} busy ({rules.busy_after_loss:.0%} after a loss)",
        f"Redis {rules.redis_busy:.0%}",
        f"HAProxy {rules.haproxy_busy:.0%}",
        f"recovery within {rules.recover_within:g} s",
    )
    granted = (
        f"{rules.socket:,} bytes of kernel memory per socket",
        f"{rules.node_base * 1024:.0f} MiB for an empty node",
        f"{rules.ports:,} ports between one of {rules.balancers} HAProxy addresses and a node",
        f"{rules.segment} bytes of headers per write",
        f"clients notice a loss after {rules.detection:g} s and wait as advised",
        "updates come at random",
        "sessions and partitions are spread evenly",
        "work grows with the number of cores",
    )
    lines = (("workload", asked), ("left free", free), ("taken for granted", granted))
    return "\n".join(f"{name}: {'; '.join(each)}" for name, each in lines)


def comparison_rows(comparisons: Sequence[Comparison]) -> Rows:
    """Set measured and predicted side by side."""
    rows = [("work", "figure", "measured", "model", "apart", "allowed", "used to calibrate")]
    for each in comparisons:
        point = each.point
        rows.append(
            (
                point.name,
                f"{_FIGURES.get(point.figure, point.figure)}, {point.unit}",
                number(point.measured),
                number(each.predicted),
                f"{each.off:.0%}" if each.holds else f"{each.off:.0%} !",
                f"{each.tolerance:.0%}",
                "yes" if point.fitted else "no",
            )
        )
    return rows


_FIGURES: Final = {
    "server_cpu": "CPU of the node for each (update, session)",
    "seconds": "until the last is served",
    "p50": "median latency",
    "cpu_per_delivery": "CPU of the node for each delivery",
}
