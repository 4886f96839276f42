"""What the marks of folded updates tell in sum, against what welcomes count (protocol 4.3, 6.4).

Every fold is told twice: by ``folded`` on the update that took the place of others, and in sum by ``conflated`` of the
next welcome. Packet numbers part the sums, as what one connection has numbered may arrive on the next:

```text
packets    1 ──── folded 2 ──── lost │ folded 1 (resent) ─── through │ folded 4 ────
                                  welcome: conflated 3                 the next welcome counts these
```
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.chaos.account.violation import Violation


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the welcome of a recovery says of folded updates.

    Attributes:
        at: when it came.
        kept: whether the numbering goes on; else everything that waited was dropped.
        conflated: updates folded on the connection before; None if the server does not know.
        through: number of the last packet that had its number before this welcome: ``received`` of the resume, and
            ``resent``. 0 if the numbering is restarted.
        only: whether this is the welcome of the first resume since the welcome before. A resume without an answer may
            have been served, and its welcome, which counted too, was lost.
    """

    at: float
    kept: bool
    conflated: int | None
    through: int = 0
    only: bool = True


class Folds:
    """The marks that one session was sent.

    Attributes:
        updates: that were folded, by the marks.
        marks: updates with a mark.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self.updates = 0
        self.marks = 0
        self._marks: list[tuple[int, int]] = []
        self._newest = 0
        self._welcomes: list[Welcome] = []

    def update(self, number: int, folded: int) -> None:
        """Take the mark of an update in.

        Args:
            number: of its packet; 0 where the client does not tell, and then sums are not compared.
            folded: how many updates it took the place of.
        """
        self._newest = max(self._newest, number)
        if folded:
            self.updates += folded
            self.marks += 1
            self._marks.append((number, folded))

    def welcomed(self, welcome: Welcome) -> list[Violation]:
        """Take a welcome in.

        Returns:
            Violations in the numbering that it ends, if it ends one.
        """
        if welcome.kept:
            self._welcomes.append(welcome)
            return []
        return self.settle()

    def settle(self) -> list[Violation]:
        """Compare sums, at the end of a numbering: the connection that was lost last is counted by nobody."""
        violations = []
        low = 0
        for welcome in self._welcomes:
            told = sum(folded for number, folded in self._marks if low < number <= welcome.through)
            low = welcome.through
            if welcome.conflated is None:
                continue
            # Of a part that did not arrive there may be more; beside a welcome that was lost, too.
            too_many = told > welcome.conflated and welcome.only
            if too_many or (told < welcome.conflated and self._newest >= welcome.through):
                what = (
                    f"the welcome counts {welcome.conflated} folded updates, the marks up to packet "
                    f"{welcome.through} tell of {told}"
                )
                violations.append(Violation("P2", welcome.at, self._who, what))
        self._marks.clear()
        self._welcomes.clear()
        self._newest = 0
        return violations
