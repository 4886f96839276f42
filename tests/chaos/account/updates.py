"""What one session sees of topics (P2, P6). A publisher counts 1, 2, 3, … on each topic, so that every fault shows.

Within a generation of the grid the versions of a topic follow without a hole. So a jump of versions is a hole, and each
hole must be declared:

```text
version    how                                   judged
one more   any                                   fine
more       a snapshot                            declared by the flag
more       and then a welcome                    declared if it says failed_over, or counts enough as conflated
more       and a notice about it nearby          declared
more       and nothing of it until the end       a silent loss
the same   a snapshot                            fine
the same   no snapshot                           delivered twice
less       any                                   went back
```

A value that nodes have put back may come once more under a higher version, as a snapshot with the event of its publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tests.chaos.account.violation import Violation, generation_of

DECLARING: Final = frozenset({"grid_lost_writes", "values_reread"})
"""Notices that declare holes."""

NEAR: Final = 8.0
"""Seconds between a hole and the notice that declares it: values of many partitions are read again before and after."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Updates that did not come.

    Attributes:
        at: when the one behind them came.
        topic: of which topic.
        missing: how many.
        what: the versions around them.
    """

    at: float
    topic: str
    missing: int
    what: str


@dataclass(slots=True)
class Seen:
    """The last that was seen of a topic.

    Attributes:
        value: the count.
        version: of it.
        event: of its publish.
        fresh: whether the next one may come after a hole, as the topic was not selected meanwhile.
    """

    value: int
    version: int
    event: str = ""
    fresh: bool = False


class SessionUpdates:
    """Everything one session was sent.

    Args:
        who: for violations.
        slack: seconds by which a welcome may be heard of before an update that came ahead of it; 0 on the wire, where
            one place sees both.

    Attributes:
        violations: found so far; ``finish`` completes them.
        delivered: updates.
        folded: updates in holes that a welcome declared.
        holes: of all kinds, declared or not.
    """

    def __init__(self, who: str, *, slack: float = 0.0) -> None:
        self.who = who
        self.violations: list[Violation] = []
        self.delivered = 0
        self.folded = 0
        self.holes = 0
        self._slack = slack
        self._seen: dict[str, Seen] = {}
        self._open: list[Hole] = []
        self._again: list[tuple[str, int, Violation]] = []
        self._notices: list[float] = []
        self._welcomes: list[tuple[float, int | None]] = []

    def last(self) -> dict[str, tuple[int, int]]:
        """Return the last value and version of every topic seen."""
        return {topic: (seen.value, seen.version) for topic, seen in self._seen.items()}

    def update(self, at: float, topic: str, value: int, version: int, *, snapshot: bool, event: str = "") -> None:
        """Take one update in, in the order of arrival."""
        self.delivered += 1
        seen = self._seen.get(topic)
        if seen is None:
            self._seen[topic] = Seen(value, version, event)
            return
        came = f"{topic}: value {value} version {version} after value {seen.value} version {seen.version}"
        if version < seen.version:
            # The newest stays what the next one is compared with.
            self._violated("P6", at, f"went back: {came}")
            return
        if version == seen.version:
            if value != seen.value:
                self._violated("P6", at, f"one version with two values: {came}")
            elif not snapshot and not seen.fresh:
                self._violated("P2", at, f"delivered twice: {came}")
            seen.fresh = False
            return
        if value < seen.value:
            self._violated("P5", at, f"an old value got a new version: {came}")
        elif value == seen.value and not (snapshot and event and event == seen.event):
            again = Violation("P5", at, self.who, f"a value got a second version: {came}")
            self._again.append((topic, value, again))
        elif not snapshot and not seen.fresh:
            self._look_for_hole(at, topic, seen, Seen(value, version), came)
        self._seen[topic] = Seen(value, version, event)

    def deselected(self, topics: Iterable[str]) -> None:
        """Note that topics were not selected for a time, so that holes in them mean nothing."""
        for topic in topics:
            if topic in self._seen:
                self._seen[topic].fresh = True

    def notice(self, at: float, code: str) -> None:
        """Take a notice in."""
        if code in DECLARING:
            self._notices.append(at)

    def welcomed(self, at: float, *, outcome: str, conflated: int | None) -> None:
        """Take the welcome of a recovery in: it declares what was folded since the last one."""
        declared = None if outcome == "failed_over" else conflated
        self._welcomes.append((at, declared))

    def finish(self, may_be_repeated: Callable[[str, int], bool] = lambda topic, value: False) -> None:
        """Judge holes and repetitions; once, after everything was taken in.

        Args:
            may_be_repeated: tells of a topic and a value whether it may have been published twice.
        """
        self.violations += [found for topic, value, found in self._again if not may_be_repeated(topic, value)]
        before = float("-inf")
        for at, declared in self._welcomes:
            of_it = [hole for hole in self._open if before < hole.at <= at + self._slack and not self._noticed(hole)]
            missing = sum(hole.missing for hole in of_it)
            if declared is not None and missing > declared:
                self._undeclared(of_it, f"the welcome at {at:.1f} s declares {declared}")
            self.folded += missing
            before = at + self._slack
        left = [hole for hole in self._open if hole.at > before and not self._noticed(hole)]
        self._undeclared(left, "nothing declares them")
        self._open.clear()

    def _look_for_hole(self, at: float, topic: str, before: Seen, now: Seen, came: str) -> None:
        if generation_of(now.version) != generation_of(before.version):
            # Versions say nothing of how many; values do, unless some were refused.
            missing = now.value - before.value - 1
        else:
            missing = now.version - before.version - 1
        if missing > 0:
            self.holes += 1
            self._open.append(Hole(at, topic, missing, came))

    def _noticed(self, hole: Hole) -> bool:
        return any(abs(notice - hole.at) <= NEAR for notice in self._notices)

    def _undeclared(self, holes: list[Hole], why: str) -> None:
        if holes:
            missing = sum(hole.missing for hole in holes)
            what = f"{missing} updates in {len(holes)} holes were lost in silence, {why}; first {holes[0].what}"
            self._violated("P2", holes[0].at, what)

    def _violated(self, promise: str, at: float, what: str) -> None:
        self.violations.append(Violation(promise, at, self.who, what))
