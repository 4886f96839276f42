"""Flame graphs: stacks that a sampling profiler counted, drawn as SVG without scripts.

Each box is a function, on top of the one that called it. Its width is its share of the samples, so of CPU time. Left
and right mean nothing: neighbours are in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 1200
"""Units of the picture; a page shows it at about half of that or more."""
_ROW: Final = 17
"""Height of a box."""
_FONT: Final = 11
_LETTER: Final = 6.7
"""Width of a letter of that size in a monospaced font."""
_LEAST_LETTERS: Final = 3
"""A box with less room stays without text."""
_HEAD: Final = 56
"""Room for title and legend."""
_MARGIN: Final = 8
LEAST_SHARE: Final = 0.004
"""What is narrower is left out; it could not be seen, and would be most of the file."""

COLOURS: Final[Mapping[str, str]] = {
    "gateway.core": "#f0a53c",
    "gateway.app": "#f6d55c",
    "gateway.adapters": "#ed6a4a",
    "other code of the gateway": "#f2c6a0",
    "Redis client": "#8fb8de",
    "system calls": "#b58fce",
    "everything else": "#d5d5d5",
}
"""By what a function belongs to."""

_INSIDE: Final = re.compile(r"(?:.*/)?(?:site-packages|lib/python[\d.]+|lib-dynload)/(.+)")
_OURS: Final = re.compile(r"(?:.*/)?(gateway/.+)")
_FRAME: Final = re.compile(r"(.+?) \((.+?)(?::\d+)?\)")
_PYTHON: Final = re.compile(r"\((?:[^()]*\.py|<[^()]*>)\)$")
_TELLING: Final = re.compile(r"(?!0x)\w+ \(libc\.|gc_collect_main ")
"""Functions in C that are shown: calls of the system, by way of the C library, and Python's collector."""
_LOOP: Final = "Runner.run "
_WAITING: Final = ("epoll_wait ", "epoll_pwait ")
_WAITING_THREAD: Final = "Condition.wait "


@dataclass
class Flame:
    """A function at one place of the stacks.

    Attributes:
        name: with its file, such as ``send (gateway/adapters/websocket/connection.py)``.
        samples: in it and in what it called.
        callees: by name.
    """

    name: str
    samples: int = 0
    callees: dict[str, Flame] = field(default_factory=dict)

    def depth(self, least: float) -> int:
        """Tell how many boxes stand on each other here, counting those of at least *least* samples."""
        return 1 + max((each.depth(least) for each in self.callees.values() if each.samples >= least), default=0)


def without_place(frame: str) -> str:
    """Leave out of a frame where on the machine a file lies, and the line.

    ``send (/srv/x/gateway/adapters/connection.py:7)`` becomes ``send (gateway/adapters/connection.py)``; a file of the
    standard library or of a package begins with the name of that. What has no known beginning is cut to its last name.
    """
    match = _FRAME.fullmatch(frame)
    if match is None:
        return frame.rpartition("/")[2]
    function, file = match.groups()
    inside = _INSIDE.fullmatch(file) or _OURS.fullmatch(file)
    if inside is not None:
        file = inside[1]
    elif file.startswith(("/", ".")):
        file = file.rpartition("/")[2]
    return f"{function} ({file})"


def simplified(stack: Sequence[str]) -> Sequence[str]:
    """Take from a stack what tells something: functions in Python, system calls, the collector of garbage.

    Other functions in C count for the one that called them. What called the event loop is left out.

    Args:
        stack: outermost first, without places.

    Returns:
        Nothing if the thread only waited.
    """
    if stack[-1].startswith(_WAITING) or any(each.startswith(_WAITING_THREAD) for each in stack):
        return ()
    begin = next((place for place, each in enumerate(stack) if each.startswith(_LOOP)), 0)
    return [each for each in stack[begin:] if _PYTHON.search(each) or _TELLING.match(each)]


def parse(lines: Iterable[str]) -> Flame:
    """Build the tree from folded stacks: ``outermost;inner;innermost 12``, as ``py-spy record --format raw`` writes.

    Raises:
        ValueError: a line is not of that form, or nothing but waiting was seen.
    """
    root = Flame("all")
    for line in lines:
        text, _, count = line.rstrip("\n").rpartition(" ")
        if not text or not count.isdigit():
            raise ValueError(f"not a folded stack: {line!r}")
        stack = simplified([without_place(frame) for frame in text.split(";")])
        if not stack:
            continue
        root.samples += int(count)
        flame = root
        for name in stack:
            flame = flame.callees.setdefault(name, Flame(name))
            flame.samples += int(count)
    if not root.samples:
        raise ValueError("there are no samples")
    return root


def draw(root: Flame, title: str) -> str:
    """Write the picture.

    Args:
        root: of the tree.
        title: above it.

    Returns:
        SVG, the same for the same tree.
    """
    least = max(1.0, root.samples * LEAST_SHARE)
    height = _HEAD + root.depth(least) * _ROW + _MARGIN
    size = f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="{_FONT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_legend(),
        *_boxes(root, root.samples, least, float(_MARGIN), height - _MARGIN - _ROW),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend() -> Iterator[str]:
    left = float(_MARGIN)
    for name, colour in COLOURS.items():
        yield f'<rect x="{left:.1f}" y="32" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 16:.1f}" y="42">{name}</text>'
        left += 36 + len(name) * _LETTER


def _boxes(flame: Flame, total: int, least: float, left: float, top: float) -> Iterator[str]:
    share = flame.samples / total
    width = share * (WIDTH - 2 * _MARGIN)
    colour = COLOURS[_owner(flame.name)]
    yield (
        f'<g><title>{escape(flame.name)}: {share:.1%}</title><rect x="{left:.1f}" y="{top:.0f}" '
        f'width="{width:.1f}" height="{_ROW - 1}" fill="{colour}" stroke="#ffffff" stroke-width="0.5"/>'
    )
    if text := _fitting(flame.name, share, width):
        yield f'<text x="{left + 3:.1f}" y="{top + _FONT + 1:.0f}">{escape(text)}</text>'
    yield "</g>"
    for _, callee in sorted(flame.callees.items()):
        if callee.samples >= least:
            yield from _boxes(callee, total, least, left, top - _ROW)
        left += callee.samples / total * (WIDTH - 2 * _MARGIN)


def _fitting(name: str, share: float, width: float) -> str:
    """Write as much of a name as the box holds: function and share if both fit."""
    room = int((width - 4) / _LETTER)
    function = name.partition(" (")[0]
    if room < _LEAST_LETTERS:
        return ""
    for text in (f"{name} {share:.1%}", f"{function} {share:.1%}", function):
        if len(text) <= room:
            return text
    return function[: room - 1] + "…"


def _owner(name: str) -> str:
    file = name.rpartition(" (")[2]
    for layer in ("core", "app", "adapters"):
        if file.startswith(f"gateway/{layer}/"):
            return f"gateway.{layer}"
    if file.startswith("gateway/"):
        return "other code of the gateway"
    if file.startswith("libc."):
        return "system calls"
    return "Redis client" if file.startswith(("redis/", "hiredis/")) else "everything else"
