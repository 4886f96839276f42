"""What became of each transaction (P16): an input is passed on as a whole, once, or it is not.

Each input is accepted, sent to the output and published, in one transaction; one that is rolled back is tried again.
The account has when each commit was asked for and what its client was told; and the output as it is stored and the logs
of the topics, of the end and of moments before the grid was made to forget. Then what is under way is left aside.

```text
seen                                                  is a violation, unless
a message of the output that was no input             never else
a message of the output is held by a transaction      never else
an input twice, in the output or among the events     the grid may have forgotten a commit of it, or its sending
in the output or among the events alone               likewise
in neither, and its sending was confirmed             likewise; then the loss must have been declared
an event of a transaction that was refused            likewise
```
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from tests.chaos.account.forgotten import Forgotten, undone
from tests.chaos.account.messages import Messages, QueueLook, Sending
from tests.chaos.account.publishes import Lost, Snapshot
from tests.chaos.account.violation import Violation, generation_of

INPUT: Final = "c4/input"
"""What is consumed from this queue is passed on in transactions."""

OUTPUT: Final = "c5/output"
"""Where to; nobody consumes from it."""


class Ending(StrEnum):
    """What the client of a transaction was told of its commit."""

    UNKNOWN = "unknown"
    """Nothing: it was executed as a whole, or not at all."""
    DONE = "done"
    REFUSED = "refused"


@dataclass(slots=True)
class Commit:
    """A transaction whose commit was asked for.

    Attributes:
        session: whose.
        publishes: topic and count that it publishes, by input.
        asked: when its commit was asked for.
        answered: when that was answered; without an answer never.
        ending: what was answered.
    """

    session: str
    publishes: dict[int, tuple[str, int]] = field(default_factory=dict)
    asked: float = inf
    answered: float = inf
    ending: Ending = Ending.UNKNOWN


@dataclass(frozen=True, slots=True)
class Look:
    """What the grid held of what was passed on, read while it was asked for more, or at the end.

    Attributes:
        began: when the reading began.
        ended: when it had ended.
        output: what was in the output.
        snapshot: what the logs held.
        is_final: whether nothing is under way any more.
    """

    began: float
    ended: float
    output: QueueLook
    snapshot: Snapshot
    is_final: bool = False


class Transactions:
    """All transactions of a run.

    Attributes:
        commits: in the order in which they were asked for.
        looks: what the grid held, before it was made to forget and at the end.
        violations: found by ``judge``.
    """

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.looks: list[Look] = []
        self.violations: list[Violation] = []

    @property
    def figures(self) -> str:
        """Tell how many there were, and what became of them."""
        count = Counter(each.ending for each in self.commits)
        output = len(self.looks[-1].output.values) if self.looks else 0
        return (
            f"{len(self.commits)} commits, {count[Ending.DONE]} done, {count[Ending.REFUSED]} refused, "
            f"{count[Ending.UNKNOWN]} without an answer; {output} messages are in the output, "
            f"looked at {len(self.looks)} times"
        )

    def judge(
        self, messages: Messages, forgotten: Sequence[Forgotten], generations: Sequence[tuple[float, int]]
    ) -> list[Lost]:
        """Judge all inputs, once.

        Args:
            messages: their account.
            forgotten: what the grid was made to forget.
            generations: when each generation of the grid was first seen.

        Returns:
            Inputs of which the grid lost all that was confirmed; that must have been declared.
        """
        lost: list[Lost] = []
        for look in self.looks:
            known = [each for each in forgotten if each.began <= look.ended]
            lost = self._judge_look(look, messages, known, generations)
        return lost

    def _judge_look(
        self,
        look: Look,
        messages: Messages,
        forgotten: Sequence[Forgotten],
        generations: Sequence[tuple[float, int]],
    ) -> list[Lost]:
        output = look.output
        if output.held and look.is_final:
            self._violated(output.at, output.queue, f"is left with messages held by {output.held[0][0]}")
        sent = Counter(output.values.values())
        logged = {(topic, value) for topic, log in look.snapshot.logs.items() for value in {each.value for each in log}}
        commits: dict[int, list[Commit]] = defaultdict(list)
        for commit in self.commits:
            if commit.asked <= look.ended:
                for value in commit.publishes:
                    commits[value].append(commit)
        lost: list[Lost] = []
        inputs = {value: sending for value, sending in messages.sendings.items() if sending.queue == INPUT}
        for value in sent.keys() - inputs.keys():
            self._violated(output.at, output.queue, f"holds {value!r}, which was no input")
        for value, sending in inputs.items():
            mine = commits[value]
            if not look.is_final and (not mine or any(each.answered >= look.began for each in mine)):
                continue  # it is yet to be passed on, or just being
            published = [each for each in mine if each.publishes[value] in logged]
            if not self._is_undone(sending, mine, forgotten):
                is_due = look.is_final or any(each.ending is Ending.DONE for each in mine)
                self._judge_input(value, sending, mine, sent[value], published, is_due=is_due)
            elif not sent[value] and not published:
                lost += _lost(value, sending, mine, generations)
        return lost

    @staticmethod
    def _is_undone(sending: Sending, commits: Iterable[Commit], forgotten: Sequence[Forgotten]) -> bool:
        return undone(forgotten, sending.asked, sending.sent) or any(
            undone(forgotten, each.asked, each.answered) for each in commits
        )

    def _judge_input(
        self,
        value: int,
        sending: Sending,
        commits: Sequence[Commit],
        sent: int,
        published: Sequence[Commit],
        *,
        is_due: bool,
    ) -> None:
        at = max((each.asked for each in commits), default=sending.asked)
        who = f"input {value}"
        told = ", ".join(f"{each.ending} at {each.asked:.1f} s" for each in commits) or "none"
        if sent > 1 or len(published) > 1:
            what = f"was passed on {sent} times and published {len(published)} times; commits: {told}"
            self._violated(at, who, what)
        elif sent != len(published):
            what = f"is {sent} times in the output and {len(published)} times among the events; commits: {told}"
            self._violated(at, who, what)
        elif not sent and is_due and (sending.sent < inf or any(each.ending is Ending.DONE for each in commits)):
            self._violated(at, who, f"was passed on by nobody; commits: {told}")
        if any(each.ending is Ending.REFUSED for each in published):
            self._violated(at, who, f"was published by a commit that was refused; commits: {told}")

    def _violated(self, at: float, who: str, what: str) -> None:
        self.violations.append(Violation("P16", at, who, what))


def _lost(
    value: int,
    sending: Sending,
    commits: Iterable[Commit],
    generations: Sequence[tuple[float, int]],
) -> list[Lost]:
    """Tell what was confirmed of an input of which nothing is left."""
    done = [each for each in commits if each.ending is Ending.DONE]
    if done:
        last = done[-1]
        generation = max((number for at, number in generations if at <= last.answered), default=0)
        return [Lost(OUTPUT, value, generation, last.answered, last.session)]
    if sending.message:
        return [Lost(INPUT, value, generation_of(sending.message), sending.sent, sending.session)]
    return []
