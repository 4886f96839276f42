"""Writes what a run gave as Markdown: the reference page and the parts of the explanation that have figures.

Everything comes from the JSON of ``python -m benchmarks --json``, so the same file gives the same text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from benchmarks.cases.base import OURS, Better, Figure, Row
from benchmarks.comparison import is_spread, kept_up, ratio_of
from benchmarks.document import Document, Judged
from benchmarks.plots import PICTURES, series_of

_MANY: Final = 10_000
"""From here on three digits say enough."""
_MILLION: Final = 1_000_000
_THOUSAND: Final = 1_000
_DIGITS: Final = 3

_VERDICTS: Final = {True: "met", False: "**missed**", None: "not measured"}


def stamp(document: Document) -> str:
    """Tell when, what and on what was measured."""
    machine = document.machine
    text = (
        f"Measured {document.date[:10]}, commit {document.commit}, on {machine['processor']}, "
        f"{machine['cores']} cores, {machine['kernel']}, {machine['distribution']}."
    )
    if document.quick:
        text += " **A quick run, to try things: one short round each. Not to be relied on.**"
    if document.failed:
        text += " **In this run something failed; see the tables.**"
    return text


def targets(document: Document) -> str:
    """Write the table of targets."""
    results = document.results
    lines = [("target", "demanded", "reached", "ours", "theirs", "")]
    for each in document.targets:
        theirs = None if each.reference is None else results.median(each.reference)
        verdict = "not judged" if each.met is None and each.reason else _VERDICTS[each.met]
        lines.append((each.text, demanded(each), reached(each), plain(each.ours), plain(theirs), verdict))
    return table(lines)


def reached(target: Judged) -> str:
    """Write what stands against the bound: the ratio, its range if rounds lie far apart, or why there is none."""
    if target.reached is None:
        return target.reason
    if target.least is None or target.most is None:
        return plain(target.reached)
    return f"{plain(target.least)} … {plain(target.most)}"


def demanded(target: Judged) -> str:
    """Write the bound of a target."""
    return f"{'≥' if target.at_least else '≤'} {target.factor:g}"


def plain(value: float | None) -> str:
    """Write a number for a table in which each line has its own unit: three digits; nothing for None."""
    if value is None:
        return ""
    if value >= _MILLION:
        return f"{value / _MILLION:.{_DIGITS}g} M"
    if value >= _MANY:
        return f"{value / _THOUSAND:.{_DIGITS}g} k"
    return f"{value:,.0f}" if value >= _THOUSAND else f"{value:.{_DIGITS}g}"


def missed(document: Document) -> str:
    """Write the list of targets that are missed."""
    lines = [
        f"- {each.text}: {reached(each)}, where {'at least' if each.at_least else 'at most'} "
        f"{each.factor:g} was demanded"
        for each in document.targets
        if each.met is False
    ]
    if not lines:
        return f"In the run of {document.date[:10]} none was missed."
    return "\n".join([f"In the run of {document.date[:10]} these were missed:", "", *lines])


def drawn(document: Document) -> Mapping[str, str]:
    """Tell which pictures the run is enough for: title by file."""
    return {
        each.file: each.title
        for each in PICTURES
        if any(len(line.points) > 1 for line in series_of(each, document.rows))
    }


def pictures(document: Document, folder: str) -> str:
    """Show the pictures of growth, which are in *folder*."""
    shown = [f"![{title}]({folder}/{file})" for file, title in drawn(document).items()]
    return "\n\n".join(shown) or "Growth was not measured in this run."


_HOW_TO_READ: Final = """\
How it is measured and what the columns mean: [benchmarks](../../benchmarks/README.md). How each peer is set up, and \
why: [the peers](../../benchmarks/peers/README.md). Where the microseconds go, and \
why some targets are missed: [Where every microsecond goes](../explanation/performance.md).

* A cell has the median of all rounds, then least … most. A cell with a range alone has rounds that lie too far apart \
for a median (half of the way from least to most is more than 10 % of it); a cell without a range was measured once.
* *Ours / it* divides our median by the other's, for the first figure of which less or more is better: 0.5 under a \
cost is half the cost, 3 under a rate is three times the rate. It is a range where one of both is. There is none with \
a system that could not keep up in most of its rounds. A target is judged at the end of a range that is worse for us.
* *CPU* is user and system time, divided by what was done. *All processes* is the sum over everything that a system \
needs: its server, its Redis, the HAProxy before it. Ratios and targets are made of this sum; the columns behind it \
tell the parts.
* Compare within a table. Figures of different runs do not compare: the machine is another from hour to hour.
* *overloaded*: subscribers received less than 99 % of the deliveries that were asked for. Latencies are then those \
of a queue.
* *the generator was the limit*: the generator, and what shares its core (Redis), used more than 85 % of that core. \
The figure may be the generator's; the system may be faster."""


def reference_page(document: Document, summary: str = "") -> str:
    """Write the page with everything: all figures of all rounds, versions and settings.

    Args:
        document: the results.
        summary: the most important figures beside the peers' (``benchmarks.headlines``), for the top of the page.
    """
    parts = [
        "<!-- Generated by `python -m benchmarks.publish`; not to be edited. -->",
        "# Benchmark results",
        stamp(document),
        *(["## In short", summary] if summary else []),
        "## How to read it",
        _HOW_TO_READ,
        "## Targets",
        targets(document),
    ]
    for name, case in document.cases.items():
        rows = [each for each in document.rows if each.case == name]
        parts += [f"## {case.title}", case.about]
        for variant in dict.fromkeys(each.variant for each in rows):
            parts += [f"**{variant}**", _variant(document, [each for each in rows if each.variant == variant])]
        if any(name == each.case for each in PICTURES):
            parts.append(pictures(document, "../explanation/figures"))
    parts += ["## Versions and settings", *_surroundings(document)]
    if document.broken:
        parts += ["## Broken", "\n".join(f"- {each}" for each in document.broken)]
    return "\n\n".join(parts) + "\n"


def _variant(document: Document, rows: Sequence[Row]) -> str:
    """Write the table of one workload, a line for each contestant."""
    contestants = list(dict.fromkeys(each.contestant for each in rows))
    figures = [each for each in document.figures[rows[0].case] if any(each.name in row.values for row in rows)]
    compared = [each for each in figures if each.better != Better.NEITHER][: len(contestants) > 1]
    lines = [
        (
            "",
            *(f"{each.title}, {each.unit}".rstrip(" ,") for each in figures),
            *(f"ours / it, {each.title}" for each in compared),
            "remarks",
        )
    ]
    ours = [each for each in rows if each.contestant == OURS]
    for contestant in contestants:
        mine = [each for each in rows if each.contestant == contestant]
        remarks = [*(f"FAILED {each}" for row in mine for each in row.failures[:1])]
        remarks += [flag for row in mine for flag in row.flags]
        lines.append(
            (
                document.title(contestant),
                *(_cell(_values(mine, each), each.digits) for each in figures),
                *("" if contestant == OURS else _ratio(ours, mine, each) for each in compared),
                "; ".join(dict.fromkeys(remarks)),
            )
        )
    return table(lines)


def _values(rows: Sequence[Row], figure: Figure) -> list[float]:
    return [each.values[figure.name] for each in rows if figure.name in each.values]


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    middle = f"{median(values):,.{digits}f}"
    if len(values) == 1:
        return middle
    bounds = f"{min(values):,.{digits}f} … {max(values):,.{digits}f}"
    return bounds if is_spread(values) else f"{middle} ({bounds})"


def _ratio(ours: Sequence[Row], others: Sequence[Row], figure: Figure) -> str:
    """Divide ours by another's, unless one of both could not keep up with what was asked."""
    if not kept_up(ours) or not kept_up(others):
        return ""
    found = ratio_of(_values(ours, figure), _values(others, figure))
    if found is None:
        return ""
    return f"{found.least:.2f} … {found.most:.2f}" if found.is_range else f"{found.middle:.2f}"


def _surroundings(document: Document) -> Iterator[str]:
    yield f"Memory of the machine: {document.machine['memory']}."
    lines = [("", "versions", "settings that are not its defaults")]
    for each in document.systems.values():
        if each.unavailable:
            lines.append((each.title, "not measured", each.unavailable))
        elif each.versions:
            versions = ", ".join(f"{name} {version}" for name, version in each.versions.items())
            settings = "; ".join(f"{name}: {value}" for name, value in each.settings.items())
            lines.append((each.title, versions, settings))
    yield table(lines, text=(0, 1, 2))


def table(lines: Sequence[Sequence[str]], *, text: Collection[int] = (0, -1)) -> str:
    """Write a table.

    Args:
        lines: the first is its head.
        text: columns that do not hold numbers; -1 is the last.
    """
    head, *rest = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    left = {place % len(head) for place in text}
    rule = ["---" if place in left else "--:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rest))
