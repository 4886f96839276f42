"""What one session sees of topics (P2, P6). A publisher counts 1, 2, 3, … on each topic, so that every fault shows.

Within a generation of the grid the versions of a topic follow without a hole. So a jump of versions is a hole, and an
update that is no snapshot must account for exactly its own by ``folded`` (protocol 6.4), over all connections of a
numbering:

```text
version    how                                   judged
one more   any                                   fine
more       a snapshot                            declared by what brings values: a failover that is not replayed, a
                                                 subscription, a notice; else updates are missing (P13), as
                                                 many as the values tell of
more       folded by as many                     declared by the mark
more       folded by fewer                       declared if a notice about it is nearby, else a silent loss
any        folded by more                        the mark tells of updates that there are not
the same   a snapshot                            fine
the same   no snapshot                           delivered twice
less       any                                   went back
```

The first update of a topic that the session has never seen follows none: unless it is a snapshot, versions before it
were folded. For a session that opens while the grid has lost a topic, that topic begins anew in the generation whose
loss others are told of: nothing of its own was lost. Between generations versions say nothing of how many came; values
do, unless some publishes were refused.

A generation may begin with an older value, as a snapshot, if a notice declares what is lost. A value that nodes have
put back may come once more under a higher version, as a snapshot with the event of its publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.account.folds import Folds, Welcome
from tests.chaos.account.violation import Violation, generation_of, of_generation

DECLARING: Final = frozenset({"grid_lost_writes", "values_reread"})
"""Notices that declare holes."""

NEAR: Final = 8.0
"""Seconds between a hole and the notice that declares it: values of many partitions are read again before and after."""


REFUSED: Final = 2
"""Publishes of a topic that may have been refused before the first that a session sees of it."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Updates that did not come.

    Attributes:
        at: when the one behind them came.
        since: from when on a notice may have declared them.
        topic: of which topic.
        missing: how many that no mark tells of.
        what: the versions around them.
        begins: whether the one behind them is the first of its topic, for this session and in its generation.
    """

    at: float
    since: float
    topic: str
    missing: int
    what: str
    begins: bool = False


@dataclass(slots=True)
class Seen:
    """The last that was seen of a topic.

    Attributes:
        value: the count.
        version: of it.
        event: of its publish.
        at: when it was read.
        fresh: whether the next one may come after a hole, as the topic was not selected meanwhile.
    """

    value: int
    version: int
    event: str = ""
    at: float = 0.0
    fresh: bool = False


class SessionUpdates:
    """Everything one session was sent.

    Args:
        who: for violations.
        slack: seconds by which an update may be read later than a notice that came with it; 0 on the wire, where one
            place sees both.

    Attributes:
        violations: found so far; ``finish`` completes them.
        delivered: updates.
        folds: what marks tell.
        holes: that no mark declares.
    """

    def __init__(self, who: str, *, slack: float = 0.0) -> None:
        self.who = who
        self.violations: list[Violation] = []
        self.delivered = 0
        self.folds = Folds(who)
        self.holes = 0
        self._slack = slack
        self._seen: dict[str, Seen] = {}
        self._open: list[Hole] = []
        self._older: list[Hole] = []
        self._again: list[tuple[str, int, Violation]] = []
        self._notices: list[float] = []
        self._jumps: list[Hole] = []
        self._shown: list[float] = []
        # When something came last.
        self._latest = -NEAR

    def last(self) -> dict[str, tuple[int, int]]:
        """Return the last value and version of every topic seen."""
        return {topic: (seen.value, seen.version) for topic, seen in self._seen.items()}

    def update(
        self,
        at: float,
        topic: str,
        value: int,
        version: int,
        *,
        snapshot: bool,
        event: str = "",
        folded: int = 0,
        number: int = 0,
    ) -> None:
        """Take one update in, in the order of arrival.

        Args:
            at: when it was read.
            topic: of it.
            value: the count.
            version: of the topic.
            snapshot: its flag.
            event: id of its publish.
            folded: how many updates it says that it took the place of.
            number: of its packet; 0 if that is not known.
        """
        self.delivered += 1
        self._latest = at
        self.folds.update(number, folded)
        seen = self._seen.get(topic)
        if seen is None:
            if not snapshot:
                self._compare_first(at, topic, Seen(value, version), folded)
            self._seen[topic] = Seen(value, version, event, at)
            return
        came = f"{topic}: value {value} version {version} after value {seen.value} version {seen.version}"
        if version < seen.version:
            # The newest stays what the next one is compared with.
            self._violated("P6", at, f"went back: {came}")
            return
        if version == seen.version:
            self._compare_same(at, value, seen, came, snapshot=snapshot)
            return
        if value < seen.value:
            begins = snapshot and generation_of(version) > generation_of(seen.version)
            self._older_value(Hole(at, at - NEAR, topic, seen.value - value, came), declarable=begins)
        elif value == seen.value and not (snapshot and event and event == seen.event):
            again = Violation("P5", at, self.who, f"a value got a second version: {came}")
            self._again.append((topic, value, again))
        elif not seen.fresh:
            now = Seen(value, version)
            if snapshot:
                self._compare_snapshot(at, topic, seen, now, folded)
            else:
                self._compare_with_mark(at, topic, seen, now, folded)
        self._seen[topic] = Seen(value, version, event, at)

    def deselected(self, topics: Iterable[str]) -> None:
        """Note that topics were not selected for a time, so that holes in them mean nothing."""
        for topic in topics:
            if topic in self._seen:
                self._seen[topic].fresh = True

    def shown(self, at: float) -> None:
        """Note that current values may come: as a subscription began, or after a failover that is not replayed."""
        self._shown.append(at)

    def notice(self, at: float, code: str) -> None:
        """Take a notice in."""
        self._latest = at
        if code in DECLARING:
            self._notices.append(at)

    def welcomed(self, welcome: Welcome) -> None:
        """Take the welcome of a recovery in: it counts what was folded on the connection before.

        What a notice near the end of that connection declared comes now, if the numbering goes on: the time in which
        nothing can come does not count.
        """
        self.violations += self.folds.welcomed(welcome)
        if welcome.kept and any(self._latest - notice <= NEAR for notice in self._notices):
            self._notices.append(welcome.at)

    def finish(
        self,
        may_be_repeated: Callable[[str, int], bool] = lambda topic, value: False,
        losses: Sequence[float] = (),
    ) -> None:
        """Judge holes, sums and repetitions; once, after everything was taken in.

        Args:
            may_be_repeated: tells of a topic and a value whether it may have been published twice.
            losses: when sessions, whichever, were told that the grid has lost writes.
        """
        self.violations += [found for topic, value, found in self._again if not may_be_repeated(topic, value)]
        self.violations += self.folds.settle()
        undeclared = [
            hole
            for hole in self._open
            if not self._noticed(hole) and not (hole.begins and any(abs(hole.at - lost) <= NEAR for lost in losses))
        ]
        if undeclared:
            missing = sum(hole.missing for hole in undeclared)
            what = f"{missing} updates in {len(undeclared)} holes were lost in silence; first {undeclared[0].what}"
            self._violated("P2", undeclared[0].at, what)
        self._open.clear()
        for hole in self._older:
            if not self._noticed(hole):
                self._violated("P5", hole.at, f"an older value came back, and nothing declares it: {hole.what}")
        self._older.clear()
        jumps = [jump for jump in self._jumps if not self._noticed(jump) and not self._is_shown(jump)]
        if jumps:
            what = f"{len(jumps)} current values came in place of updates, unasked; first {jumps[0].what}"
            self._violated("P13", jumps[0].at, what)
        self._jumps.clear()

    def _compare_same(self, at: float, value: int, seen: Seen, came: str, *, snapshot: bool) -> None:
        """Compare an update with the one before it, which had the same version."""
        if value != seen.value:
            self._violated("P6", at, f"one version with two values: {came}")
        elif not snapshot and not seen.fresh:
            self._violated("P2", at, f"delivered twice: {came}")
        seen.at, seen.fresh = at, False

    def _compare_first(self, at: float, topic: str, now: Seen, folded: int) -> None:
        """Compare what is missing before the first update of a topic with what the update says of it."""
        begins = folded == of_generation(now.version) - 1
        # A topic that began in this generation; one or two of what was asked for may never have been executed.
        if begins and now.value - 1 - folded <= REFUSED:
            return
        # As if the first generation had shown nothing: what was folded may be of several.
        self._compare_with_mark(at, topic, Seen(0, 0, at=at), now, folded, begins=begins)

    def _compare_with_mark(
        self, at: float, topic: str, before: Seen, now: Seen, folded: int, *, begins: bool = False
    ) -> None:
        """Compare a hole in front of an update with what the update says of it."""
        came = (
            f"{topic}: value {now.value} version {now.version} folded {folded} "
            f"after value {before.value} version {before.version}"
        )
        since = at - NEAR
        if generation_of(now.version) != generation_of(before.version):
            missing = max(now.value - before.value - 1, folded)
            # The notice comes before everything of the new generation, however long the client then reads nothing.
            since = min(since, before.at)
        else:
            missing = now.version - before.version - 1
        if folded > missing:
            self._violated("P2", at, f"the mark tells of updates that there are not: {came}")
        elif folded < missing:
            self.holes += 1
            self._open.append(Hole(at, since, topic, missing - folded, came, begins))

    def _compare_snapshot(self, at: float, topic: str, before: Seen, now: Seen, folded: int) -> None:
        """Note a current value that takes the place of updates; between generations versions say nothing of them.

        What nodes put back takes a version as well, so that only those are missing which values tell of, too.
        """
        missing = min(now.version - before.version, now.value - before.value) - 1
        if missing > folded and generation_of(now.version) == generation_of(before.version):
            came = (
                f"{topic}: value {now.value} version {now.version} folded {folded} "
                f"after value {before.value} version {before.version}"
            )
            # Values that are due come when the grid can tell that they are new enough, however long it is away.
            self._jumps.append(Hole(at, min(at - NEAR, before.at), topic, missing - folded, came))

    def _is_shown(self, jump: Hole) -> bool:
        return any(jump.since - self._slack <= shown <= jump.at + NEAR for shown in self._shown)

    def _older_value(self, lost: Hole, *, declarable: bool) -> None:
        if declarable:
            # Everybody who knew the newer value died with the part of the grid that held it.
            self._older.append(lost)
        else:
            self._violated("P5", lost.at, f"an old value got a new version: {lost.what}")

    def _noticed(self, hole: Hole) -> bool:
        return any(hole.since - self._slack <= notice <= hole.at + NEAR for notice in self._notices)

    def _violated(self, promise: str, at: float, what: str) -> None:
        self.violations.append(Violation(promise, at, self.who, what))
