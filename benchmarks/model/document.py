"""Keeps the figures of the documentation those of the file of costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.model import report
from benchmarks.model.costs import BadFile, Calibration
from benchmarks.model.plan import Impossible, plan
from benchmarks.model.predict import compare
from benchmarks.model.workloads import LOST_SHARE, REGION, REGION_NODES, SCENARIOS

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "scaling.md"

_BLOCK: Final = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end of generated -->", re.DOTALL)
_GIB: Final = 1024.0**3


def update(page: Path, calibration: Calibration, *, write: bool) -> bool:
    """Put the figures into the generated parts of a page, and draw its pictures beside it.

    Args:
        page: of Markdown.
        calibration: the figures.
        write: whether to change anything.

    Returns:
        Whether the text was not up to date.

    Raises:
        OSError: the page cannot be read or written.
        BadFile: it has a generated part that is not known, or not all of them.
    """
    text = page.read_text()
    names = _BLOCK.findall(text)
    if sorted(names) != sorted(BLOCKS):
        raise BadFile(f"{page}: has the generated parts {', '.join(names) or 'none'}, not {', '.join(BLOCKS)}")
    fresh = _BLOCK.sub(
        lambda found: f"<!-- generated: {found[1]} -->\n\n{BLOCKS[found[1]](calibration)}\n\n<!-- end of generated -->",
        text,
    )
    if write:
        from benchmarks.model import pictures  # noqa: PLC0415 - matplotlib takes a second and only this needs it

        page.write_text(fresh)
        pictures.draw_all(page.parent / "figures", calibration)
    return fresh != text


def _stamp(calibration: Calibration) -> str:
    machine = calibration.machine
    return (
        f"Measured {calibration.date[:10]}, commit {calibration.commit}: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['kernel']}. One core for the node, one for Redis, HAProxy and the clients."
    )


def _costs(calibration: Calibration) -> str:
    costs = calibration.costs
    deliver = costs.deliver
    micro = report.number

    def kilobytes(size: float) -> str:
        return f"{size / 1024:.1f} KiB"

    rows = [
        ("for each", "node, CPU", "Redis, CPU", "HAProxy, CPU", "memory"),
        *(
            (
                name,
                f"{micro(step.server)} µs",
                f"{micro(step.redis)} µs",
                f"{micro(step.haproxy)} µs",
                "",
            )
            for name, step in (
                ("new session with three selections", costs.connect),
                ("claim by the same node", costs.reattach),
                ("claim by another node", costs.failover),
            )
        ),
        (
            "further selection of one that comes",
            f"{micro(costs.selection_server)} µs",
            "",
            "",
            f"node {costs.selection_node:,.0f} bytes, Redis {costs.selection_grid:,.0f} bytes",
        ),
        (
            "idle session and second",
            f"{micro(costs.idle_server)} µs",
            "0",
            "",
            ", ".join(
                (
                    f"node {kilobytes(costs.session_node)}",
                    f"Redis {costs.session_grid:,.0f} bytes",
                    f"HAProxy {kilobytes(costs.session_haproxy)}",
                )
            ),
        ),
        ("idle node and second", "", f"{micro(costs.idle_redis)} µs", "", ""),
        ("publish", f"{micro(costs.publish.server)} µs", f"{micro(costs.publish.redis)} µs", "", ""),
        ("update and node that reads it", f"{micro(deliver.take)} µs", f"{micro(costs.follow_redis)} µs", "", ""),
        ("turn of a node's loop that brings updates", f"{micro(deliver.wake)} µs", "", "", ""),
        (
            "write to a session, of 100 or 10,000 in turn",
            f"{micro(deliver.write_at(100))} or {micro(deliver.write_at(10_000))} µs",
            "",
            f"{micro(costs.forward)} µs",
            "",
        ),
        ("update that somebody on the node wants", f"{micro(deliver.encode)} µs", "", "", ""),
        ("update in such a write", f"{micro(deliver.packet)} µs", "", "", ""),
        (
            "topic with a value of 100 bytes",
            "",
            "",
            "",
            f"each node that follows {costs.topic_node:,.0f} bytes, Redis {costs.topic_grid:,.0f} bytes",
        ),
    ]
    return report.markdown(rows)


def _check(calibration: Calibration) -> str:
    return report.markdown(report.comparison_rows(compare(calibration)))


def _workloads(calibration: Calibration) -> str:
    rows: list[tuple[str, ...]] = [
        (
            "workload", "nodes", "decided by", "a node's core", "a node's memory", "Redis masters", "Redis memory",
            "Redis egress", "HAProxy cores", "HAProxy memory", "to clients", "a node lost",
        )
    ]  # fmt: skip
    reasons = []
    for each in SCENARIOS:
        try:
            found = plan(calibration.costs, each.workload, each.rules)
        except Impossible as reason:
            rows.append((each.title, "none is enough", *["–"] * 10))  # noqa: RUF001 - a dash in a table
            reasons.append(f"*{each.title}*: {reason}.")
            continue
        rows.append(
            (
                each.title,
                f"{found.nodes:,}",
                found.bottleneck,
                f"{found.node_busy:.0%}",
                f"{found.node_memory:.1f} GiB",
                f"{found.masters}",
                f"{report.number(found.redis_memory)} GiB",
                f"{report.number(found.redis_egress)} Gbit/s",
                f"{found.haproxy_cores:,}",
                f"{report.number(found.haproxy_memory)} GiB",
                f"{report.number(found.client_traffic)} Gbit/s",
                f"{found.recovery.last:.1f} s",
            )
        )
    return "\n\n".join([report.markdown(rows), *reasons])


def _region(calibration: Calibration) -> str:
    rows: list[tuple[str, ...]] = [
        ("nodes", "lost", "sessions lost", "sessions for each survivor", "half are back after", "all after",
         "attempts each", "limited by"),
    ]  # fmt: skip
    for nodes in REGION_NODES:
        lost = round(nodes * LOST_SHARE)
        rules = replace(REGION.rules, nodes_lost=lost)
        try:
            found = plan(calibration.costs, REGION.workload, rules, nodes=nodes)
        except Impossible:
            rows.append((f"{nodes}", f"{lost}", "too few", *["–"] * 5))  # noqa: RUF001 - a dash in a table
            continue
        rows.append(
            (
                f"{nodes}",
                f"{lost}",
                f"{found.lost_sessions:,}",
                f"{found.lost_sessions / (nodes - lost):,.0f}",
                f"{found.recovery.typical:.2f} s",
                f"{found.recovery.last:.2f} s",
                f"{found.recovery.attempts:.2f}",
                found.recovery.bottleneck,
            )
        )
    return report.markdown(rows)


def _limits(calibration: Calibration) -> str:
    """Say where each single resource ends, whatever the rest of the cluster is."""
    costs = calibration.costs
    core = 1e6
    rows = [
        ("limit", "reached at", "of"),
        (
            "a node reads every update of the partitions that it follows",
            f"{core / costs.deliver.take:,.0f} updates/s",
            "its core, with nothing left for anything else",
        ),
        (
            "Redis runs the publish script on one core per master",
            f"{core / costs.publish.redis:,.0f} publishes/s",
            "a master's core, no readers",
        ),
        (
            "each node reads for itself",
            f"{core / costs.follow_redis:,.0f} updates/s, divided by the nodes",
            "a master's core, no publishes",
        ),
        ("one partition is on one master", f"{core / (costs.publish.redis + 10 * costs.follow_redis):,.0f} publishes/s",
         "a master's core, ten nodes reading"),
        (
            "claims go to the grid",
            f"{core / costs.failover.redis:,.0f} claims/s",
            "a master's core",
        ),
        ("a node serves claims", f"{core / costs.failover.server:,.0f} claims/s", "its core"),
        ("HAProxy passes every message on", f"{core / costs.forward:,.0f} messages/s", "one of its cores"),
        ("a node keeps a copy of each value", f"{_GIB / costs.topic_node:,.0f} values", "1 GiB of each node"),
    ]  # fmt: skip
    return report.markdown(rows)


BLOCKS: Final[Mapping[str, Callable[[Calibration], str]]] = {
    "stamp": _stamp,
    "costs": _costs,
    "check": _check,
    "workloads": _workloads,
    "region": _region,
    "limits": _limits,
}
"""What is generated, by the name in the page."""
