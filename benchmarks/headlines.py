"""Writes the tables of our most important figures: the README's, beside the peers', and what each path costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from benchmarks.cases.base import OURS, Reference
from benchmarks.document import Document, Judged
from benchmarks.markdown import demanded, plain, stamp, table

_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "this gateway": (OURS,),
    "nchan": ("nchan",),
    "Socket.IO": ("socketio",),
    "bare": ("c_floor", "redis-py XADD", "bare aiohttp"),
}
"""Columns, and whose figures they hold; of several the one that was measured."""

_SHORT: Final[Mapping[str, str]] = {
    "nchan": "nchan",
    "socketio": "Socket.IO",
    "c_floor": "C loop",
    "redis-py XADD": "bare XADD",
    "bare aiohttp": "bare handshake",
}
"""What is multiplied in a target."""

_STORM: Final = "2,000 sessions at once"


def _ours(case: str, variant: str, figure: str) -> Reference:
    return Reference(case, variant, OURS, figure)


HEADLINES: Final[Mapping[Reference, str]] = {
    _ours("fanout", "500 subscribers, as fast as it goes", "deliveries_per_second"): (
        "one topic, 500 subscribers, as fast as it goes: deliveries/s"
    ),
    _ours("fanout", "10,000 subscribers, 100 updates/s", "deliveries_per_second"): (
        "10,000 subscribers, 100 updates/s asked: deliveries/s"
    ),
    _ours("steady", "1,000 subscribers, 50 updates/s", "cpu_per_delivery"): (
        "1,000 subscribers, 50 updates/s: CPU per delivery, µs"
    ),
    _ours("steady", "1,000 subscribers, half of nchan's saturation", "p99"): "… at half of nchan's saturation: p99, ms",
    _ours("own_topic", "2,000 sessions, 20,000 updates/s", "cpu_per_delivery"): (
        "2,000 sessions, a topic each: CPU per update, µs"
    ),
    _ours("publish", "32 publishers, 64 open requests each, 100-byte values", "per_core"): (
        "confirmed publishes per second of CPU"
    ),
    _ours("cross_node", "20 publishes/s", "ratio"): "seen on another node, p50, in round trips to Redis",
    _ours("reattach", _STORM, "server_cpu"): "2,000 cut and back at once: CPU each, µs",
    _ours("reattach", _STORM, "recovered"): "… sessions recovered, %",
    _ours("failover", _STORM, "server_cpu"): "node killed, 2,000 back at once: CPU each, µs",
    _ours("failover", _STORM, "redis_share"): "… Redis's CPU beside it, %",
    _ours("failover", _STORM, "recovered"): "… sessions recovered, %",
    _ours("memory", "10,000 idle sessions", "resident"): "10,000 idle sessions: memory each, KiB",
    _ours("memory", "10,000 idle sessions", "idle"): "… CPU, pings included, % of a core",
}
"""Lines of the README's table, by our figure: each that has a target, and what else one asks first."""

_README_NOTE: Final = (
    "Medians of rounds in turn; ± is half the way from least to most. CPU is that of the server's processes on one "
    "core. *Bare* is the least that the work costs: a loop in C with one `send()` per delivery, redis-py pipelining "
    "`XADD`, aiohttp's WebSocket handshake or idle connection. ✓ is a target that is met, ✗ one that is missed. "
    "All figures, p50 to p99.9, python-socketio, versions and settings: "
    "[Benchmark results](docs/reference/benchmarks.md). Where the time goes, and what holds what is missed: "
    "[Where every microsecond goes](docs/explanation/performance.md)."
)


def readme_block(document: Document) -> str:
    """Write the part of the README: figures beside the peers', and what became of the targets."""
    met = [each.met for each in document.targets]
    lines = [("", *_COLUMNS, "demanded")]
    for reference in dict.fromkeys([*HEADLINES, *(each.subject for each in document.targets)]):
        demands = [each for each in document.targets if each.subject == reference]
        cells = [_headline(document, reference, names, demands) for names in _COLUMNS.values()]
        if any(cells):
            label = HEADLINES.get(reference, f"{reference.case}, {reference.variant}: {reference.figure}")
            lines.append((label, *cells, "; ".join(map(_demand, demands))))
    text = table(lines)
    if "\\*" in text:
        text += "\n\n\\* It could not keep up with the rate that was asked for."
    return "\n\n".join(
        (stamp(document), f"{met.count(True)} of {len(met)} targets are met.", text, _README_NOTE),
    )


def _demand(target: Judged) -> str:
    if target.met is None:
        return f"{demanded(target)}: not measured"
    if target.reference is None:
        return f"{demanded(target)} {'✓' if target.met else '✗'}"
    other = _SHORT.get(target.reference.contestant, target.reference.contestant)
    # The multiplication sign is what is meant.
    return f"{plain(target.reached)} × {other} ({demanded(target)}) {'✓' if target.met else '✗'}"  # noqa: RUF001


def _headline(document: Document, ours: Reference, names: Sequence[str], demands: Sequence[Judged]) -> str:
    results = document.results
    for name in names:
        demanded_of = [each.reference for each in demands if each.reference and each.reference.contestant == name]
        reference = demanded_of[0] if demanded_of else Reference(ours.case, ours.variant, name, ours.figure)
        values = results.values(reference)
        if not values:
            continue
        middle = median(values)
        text = plain(middle)
        if len(values) > 1 and middle and max(values) > min(values):
            text += f" ±{(max(values) - min(values)) / 2 / middle:.0%}"
        rows = [
            each
            for each in document.rows
            if (each.case, each.variant, each.contestant) == (reference.case, reference.variant, name)
        ]
        if any(flag.startswith("overloaded") for row in rows for flag in row.flags):
            text += " \\*"
        if any(row.failures for row in rows):
            text += " **failed**"
        return text
    return ""


_PATHS: Final = (
    ("a delivery in a burst: 500 subscribers, 256 updates under way", "fanout", "500 subscribers, as fast as it goes"),
    ("a delivery alone: 1,000 subscribers, 50 updates/s", "steady", "1,000 subscribers, 50 updates/s"),
    ("a publish and its only delivery: 2,000 topics", "own_topic", "2,000 sessions, 20,000 updates/s"),
    ("a publish, confirmed", "publish", "32 publishers, 64 open requests each, 100-byte values"),
    ("a new session with three selections and their values", "connect", _STORM),
    ("a reattach, until the last value is there", "reattach", _STORM),
    ("a failover, likewise", "failover", _STORM),
)
"""Paths of the explanation: what is done once, the case and the variant that tell what it costs."""

_COSTS: Final[Mapping[str, Sequence[str]]] = {
    "the node": ("cpu_per_delivery", "server_cpu"),
    "Redis": ("redis_cpu_per_delivery", "redis_cpu"),
    "HAProxy": ("haproxy_cpu",),
    "the least, with none of it": ("cpu_per_delivery", "server_cpu"),
}
"""Columns, and the figures that they hold; cases name the same thing differently."""


def path_costs(document: Document) -> str:
    """Write the table of what each path costs."""
    lines = [("µs of CPU", *_COSTS)]
    for label, case, variant in _PATHS:
        cells = []
        for column, figures in _COSTS.items():
            contestants = (OURS,) if column in {"the node", "Redis", "HAProxy"} else _COLUMNS["bare"]
            found = [
                document.results.median(Reference(case, variant, contestant, figure))
                for contestant in contestants
                for figure in figures
            ]
            cells.append(plain(next((each for each in found if each is not None), None)))
        if any(cells):
            lines.append((label, *cells))
    return f"{stamp(document)}\n\n{table(lines, text=(0,))}"
