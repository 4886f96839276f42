"""Writes the tables of our most important figures: beside the peers', five of them in the README, and per path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from benchmarks.cases import fanout, handoff, history, mirror, own_topic, publish, queue, replay, takeover
from benchmarks.cases.base import OURS, Reference
from benchmarks.comparison import GENERATOR_LIMIT, OVERLOADED, has_flag, is_spread, spread
from benchmarks.document import Document, Judged
from benchmarks.markdown import demanded, plain, reached, stamp, table
from benchmarks.publish_cost import AT_ONCE

OVERLOADED_MARK: Final = "\\*"
GENERATOR_MARK: Final = "†"
"""Behind a figure: something is to be said of it, below the table."""

_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "this gateway": (OURS,),
    "nchan": ("nchan",),
    "NATS": ("nats",),
    "mosquitto": ("mosquitto",),
    "JetStream": ("jetstream",),
    "Socket.IO": ("socketio",),
    "bare": ("without history", "c_floor", "redis-py XADD", "C handshake", "bare aiohttp"),
}
"""Columns, and whose figures they hold; of several the one that was measured."""

_SHORT: Final[Mapping[str, str]] = {
    "nchan": "nchan",
    "nats": "NATS",
    "without history": "a publish without",
    "socketio": "Socket.IO",
    "c_floor": "C loop",
    "redis-py XADD": "bare XADD",
    "C handshake": "C handshake",
    "bare aiohttp": "aiohttp's handshake",
}
"""What is multiplied in a target."""

_STORM: Final = "2,000 sessions at once"


def _ours(case: str, variant: str, figure: str) -> Reference:
    return Reference(case, variant, OURS, figure)


HEADLINES: Final[Mapping[Reference, str]] = {
    _ours("fanout", fanout.SATURATED, "deliveries_per_second"): (
        f"one topic, 500 subscribers, {fanout.WINDOW} updates under way: deliveries/s (updates per read)"
    ),
    _ours("fanout", "10,000 subscribers, 100 updates/s", "deliveries_per_second"): (
        "10,000 subscribers, 100 updates/s asked: deliveries/s"
    ),
    _ours("steady", "1,000 subscribers, 50 updates/s", "total_cpu_per_delivery"): (
        "1,000 subscribers, 50 updates/s: CPU per delivery, µs"
    ),
    _ours("steady", "1,000 subscribers, half of nchan's saturation", "p99"): "… at half of nchan's saturation: p99, ms",
    _ours("own_topic", own_topic.VARIANT, "total_cpu_per_delivery"): (
        "2,000 sessions, a topic each, 20,000 updates/s: CPU per update, µs"
    ),
    _ours("own_topic", own_topic.CALM, "total_cpu_per_delivery"): "… 10,000 updates/s: CPU per update, µs",
    **{
        _ours("publish", variant, "per_cpu_second"): (
            "confirmed publishes per second of CPU, " + variant.rpartition(", ")[2]
        )
        for variant in publish.ARRAYS
    },
    _ours("cross_node", "20 publishes/s", "ratio"): "seen on another node, p50, in round trips to Redis",
    _ours("reattach", _STORM, "total_cpu"): "2,000 cut and back at once: CPU each, µs",
    _ours("reattach", _STORM, "recovered"): "… sessions recovered, %",
    _ours("handoff", handoff.VARIANT, "total_cpu"): "2,000 to another node, the first one lives: CPU each, µs",
    _ours("handoff", handoff.VARIANT, "rate"): "… handed over per second",
    _ours("handoff", handoff.VARIANT, "recovered"): "… sessions recovered, %",
    _ours(
        "mirror", mirror.STEADY, "live_ratio"
    ): "a backup, async, steady fan-out: the live node's CPU, times that without",
    _ours("mirror", mirror.OWN, "live_ratio"): "… own topics: the live node's CPU, times that without",
    _ours("failover", _STORM, "total_cpu"): "node killed, 2,000 back at once: CPU each, µs",
    _ours("failover", _STORM, "redis_share"): "… Redis's CPU beside it, %",
    _ours("failover", _STORM, "recovered"): "… sessions recovered, %",
    **{
        key: text
        for missed in replay.MISSED
        for key, text in (
            (
                _ours("replay", replay.variant(missed), "total_cpu"),
                f"… {missed} missed updates of each shared topic replayed: CPU each, µs",
            ),
            (_ours("replay", replay.variant(missed), "recovered"), "… sessions recovered, %"),
        )
    },
    _ours("queue", queue.EACH, "total_cpu"): "a work queue, each message acknowledged by itself: CPU each, µs",
    _ours("queue", queue.GRID_ALONE, "redis_cpu"): "… the grid alone, in batches: Redis's CPU, µs",
    **{
        _ours("history", history.publishing(at_once), "times"): (
            f"a publish to a topic with history, {at_once}: Redis's CPU, times one without"
        )
        for at_once in AT_ONCE
    },
    _ours("history", history.READ, "per_core"): "… 100,000 events read: events/s and core of the node",
    _ours("takeover", takeover.VARIANT, "total_cpu"): "a node of 2,000 sessions taken over: CPU in all, s",
    _ours("takeover", takeover.VARIANT, "longest"): "… the latest update of others meanwhile, ms",
    _ours("memory", "10,000 idle sessions", "resident"): "10,000 idle sessions: memory each, KiB",
    _ours("memory", "10,000 idle sessions", "idle_total"): "… CPU, pings included, % of a core",
}
"""Lines of the table of the reference page, by our figure: each that has a target, and what else one asks first."""

IN_README: Final[Sequence[Reference]] = (
    _ours("fanout", fanout.SATURATED, "deliveries_per_second"),
    _ours("steady", "1,000 subscribers, 50 updates/s", "total_cpu_per_delivery"),
    _ours("failover", _STORM, "total_cpu"),
    _ours("failover", _STORM, "recovered"),
    _ours("memory", "10,000 idle sessions", "resident"),
)
"""Lines that the README has of it: one for each question that a newcomer asks first. They are not our five best."""

PARTS: Final[Mapping[str, Sequence[str]]] = {
    "total_cpu_per_delivery": ("cpu_per_delivery", "redis_cpu_per_delivery"),
    "total_cpu": ("server_cpu", "redis_cpu", "haproxy_cpu"),
    "idle_total": ("idle", "idle_redis"),
}
"""Sums over all processes, and the figures of server, Redis and HAProxy that they are made of."""

_NOTE: Final = (
    "Medians of rounds in turn; ± is half the way from least to most, and where that is more than 10 % the range "
    "stands in place of the median. CPU is the sum of all processes that a system needs; in brackets what of it is "
    "the server's, Redis's and HAProxy's."
)

_BARE: Final = (
    "*Bare* is the least that the work costs: a loop in C that keeps nothing, redis-py pipelining `XADD`, a WebSocket "
    "handshake alone, aiohttp's idle connection."
)

_JOINED: Final = (
    "*Updates per read* is how many updates one `recv()` of a subscriber brought, which is what a server joins: "
    "without it, and without the number of updates under way, a rate of a fan-out says nothing."
)

_SUMMARY_NOTE: Final = (
    f"{_NOTE} {_JOINED} {_BARE} ✓ is a target that is met, ✗ one that is missed, both at the worse end of a range."
)


_ELSEWHERE: Final = (
    "[Benchmark results](docs/reference/benchmarks.md) has all figures of all peers, versions and settings. [Where "
    "every microsecond goes](docs/explanation/performance.md) says why targets are missed."
)


def summary(document: Document) -> str:
    """Write the summary of the reference page: figures beside the peers', and what became of the targets."""
    lines = [("", *_COLUMNS, "demanded")]
    for reference in dict.fromkeys([*HEADLINES, *(each.subject for each in document.targets)]):
        demands = _demands(document, reference)
        cells = _cells(document, reference)
        if any(cells) or demands:
            label = HEADLINES.get(reference, f"{reference.case}, {reference.variant}: {reference.figure}")
            lines.append((label, *cells, "; ".join(map(_demand, demands))))
    return "\n\n".join((f"{_score(document)}.", _SUMMARY_NOTE, *_with_marks(lines, text=(0, len(lines[0]) - 1))))


def readme_block(document: Document) -> str:
    """Write the part of the README: five figures beside the peers', and where the others are."""
    lines = [("", *_COLUMNS)]
    for reference in IN_README:
        cells = _cells(document, reference)
        if any(cells):
            lines.append((HEADLINES[reference].replace("… ", "the same: "), *cells))
    return "\n\n".join(
        (
            stamp(document),
            "\n".join(f"* {each}" for each in (_NOTE, _JOINED, _BARE)),
            *_with_marks(lines, text=(0,)),
            f"{_score(document)}: {_ELSEWHERE}",
        )
    )


def _demands(document: Document, reference: Reference) -> list[Judged]:
    return [each for each in document.targets if each.subject == reference]


def _cells(document: Document, reference: Reference) -> list[str]:
    demands = _demands(document, reference)
    return [_headline(document, reference, names, demands) for names in _COLUMNS.values()]


def _with_marks(lines: Sequence[Sequence[str]], *, text: Sequence[int]) -> list[str]:
    """Explain the marks of a table, and write it without empty columns, as of peers that a run knows nothing of.

    Args:
        lines: the headings first.
        text: columns that hold no figures.
    """
    kept = [place for place in range(len(lines[0])) if any(line[place] for line in lines[1:]) or not lines[1:]]
    places = [kept.index(each) for each in text if each in kept]
    written = table([[line[place] for place in kept] for line in lines], text=places)
    marks: list[str] = []
    if OVERLOADED_MARK in written:
        marks.append(f"{OVERLOADED_MARK} It could not keep up with what was asked for, in one round or more.")
    if GENERATOR_MARK in written:
        marks.append(
            f"{GENERATOR_MARK} The generator's core was more than 85 % busy, in one round or more: the system may be "
            "faster."
        )
    return [*marks, written]


def _score(document: Document) -> str:
    met = [each.met for each in document.targets]
    text = f"{met.count(True)} of {len(met)} targets are met, {met.count(False)} missed"
    return text + (f", {met.count(None)} not judged" if None in met else "")


def _demand(target: Judged) -> str:
    sign = {True: "✓", False: "✗", None: "not judged"}[target.met]
    other = "" if target.reference is None else _SHORT.get(target.reference.contestant, target.reference.contestant)
    if target.reason:
        name = "" if target.reference is None else target.reference.contestant
        reason = target.reason.replace(name, other) if name else target.reason
        return f"{demanded(target)}: no ratio, {reason}: {sign}"
    if target.met is None:
        return f"{demanded(target)}: not measured"
    if target.reference is None:
        return f"{demanded(target)} {sign}"
    # The multiplication sign is what is meant.
    return f"{reached(target)} × {other} ({demanded(target)}) {sign}"  # noqa: RUF001


def _headline(document: Document, ours: Reference, names: Sequence[str], demands: Sequence[Judged]) -> str:
    results = document.results
    for name in names:
        demanded_of = [each.reference for each in demands if each.reference and each.reference.contestant == name]
        reference = demanded_of[0] if demanded_of else Reference(ours.case, ours.variant, name, ours.figure)
        values = results.values(reference)
        if not values:
            continue
        rows = results.of(reference)
        text = _middle(values) + _apart(document, reference)
        if has_flag(rows, OVERLOADED):
            text += f" {OVERLOADED_MARK}"
        if has_flag(rows, GENERATOR_LIMIT):
            text += f" {GENERATOR_MARK}"
        if any(row.failures for row in rows):
            text += " **failed**"
        return text
    return ""


def _middle(values: Sequence[float]) -> str:
    """Write the median and how far rounds lie apart; where that is too far, the range alone."""
    if is_spread(values):
        return f"{plain(min(values))} … {plain(max(values))}"
    text = plain(median(values))
    if max(values) > min(values):
        text += f" ±{spread(values):.0%}"
    return text


def _apart(document: Document, reference: Reference) -> str:
    """Write what a figure is made of, or what it cannot be read without."""
    results = document.results
    if reference.figure == "deliveries_per_second":
        joined = results.median(replace(reference, figure="deliveries_per_read"))
        return "" if joined is None else f" ({plain(joined)})"
    parts = [results.median(replace(reference, figure=each)) for each in PARTS.get(reference.figure, ())]
    found = [plain(each) for each in parts if each is not None]
    return f" ({' + '.join(found)})" if len(found) > 1 else ""


_PATHS: Final = (
    ("a delivery in a burst: 500 subscribers, 256 updates under way", "fanout", fanout.SATURATED),
    ("a delivery alone: 1,000 subscribers, 50 updates/s", "steady", "1,000 subscribers, 50 updates/s"),
    ("a publish and its only delivery: 2,000 topics", "own_topic", own_topic.VARIANT),
    *((f"a publish, confirmed, {variant.rpartition(', ')[2]}", "publish", variant) for variant in publish.ARRAYS),
    ("a new session with three selections and their values", "connect", _STORM),
    ("a reattach, until the last value is there", "reattach", _STORM),
    ("a handoff, likewise", "handoff", handoff.VARIANT),
    ("a failover, likewise", "failover", _STORM),
)
"""Paths of the explanation: what is done once, the case and the variant that tell what it costs."""

_LEAST: Final = "the least, with none of it"

_COSTS: Final[Mapping[str, Sequence[str]]] = {
    "all": ("total_cpu_per_delivery", "total_cpu"),
    "the node": ("cpu_per_delivery", "server_cpu"),
    "Redis": ("redis_cpu_per_delivery", "redis_cpu"),
    "HAProxy": ("haproxy_cpu",),
    _LEAST: ("total_cpu_per_delivery", "total_cpu"),
}
"""Columns, and the figures that they hold; cases name the same thing differently."""


def path_costs(document: Document) -> str:
    """Write the table of what each path costs."""
    lines = [("µs of CPU", *_COSTS)]
    for label, case, variant in _PATHS:
        cells = []
        for column, figures in _COSTS.items():
            contestants = _COLUMNS["bare"] if column == _LEAST else (OURS,)
            found = [
                document.results.median(Reference(case, variant, contestant, figure))
                for contestant in contestants
                for figure in figures
            ]
            cells.append(plain(next((each for each in found if each is not None), None)))
        if any(cells):
            lines.append((label, *cells))
    return f"{stamp(document)}\n\n{table(lines, text=(0,))}"
