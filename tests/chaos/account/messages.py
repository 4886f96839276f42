"""What became of each message of a queue (P15): one place at any time, settled once, given again only with a reason.

A message is known by its value, which nobody else sends. The account has when it was asked for, each time that an
application was given it, and each settlement that was asked for; and what the grid held of the queue whenever somebody
looked. What the grid was made to forget excuses what follows from it, and nothing else does:

```text
seen                                                            is a violation, unless
two places at a time, or none                                   never else
one value under two ids                                         the receipt of its sending was forgotten
confirmed as accepted twice; given after that                   the first acceptance was forgotten
given twice and not marked                                      the first time was forgotten
given to one session while another one holds it                 the assignment to that one was forgotten
given twice to one session that lost nothing (rungs 1 to 3)     likewise; or it had released the message; or it had
                                                                accepted it, and that was forgotten
"not held", and the session had not settled or lost it          likewise
not there in the end, and accepted by nobody                    the sending was forgotten, which must be declared
a dead letter for no reason, or rejected and none               the rejection was forgotten
```
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from tests.chaos.account.forgotten import Forgotten, undone
from tests.chaos.account.publishes import Lost
from tests.chaos.account.violation import Violation, generation_of

NAMED: Final = 3
"""Messages of a queue that are named."""

SLACK: Final = 2.0
"""Seconds by which a client may tell of a recovery and of the messages around it in another order than they came."""


TRANSACTION: Final = "~"
"""In the name of who holds a message: a session, and the transaction of it that is being committed."""


class Way(StrEnum):
    """How a message is settled."""

    ACCEPT = "accept"
    REJECT = "reject"
    RELEASE = "release"


class Answer(StrEnum):
    """What became of a settlement; one without an answer may have been executed, once, or not."""

    NONE = "none"
    DONE = "done"
    NOT_HELD = "not held"


@dataclass(slots=True)
class Settling:
    """Somebody settles a message.

    Attributes:
        at: when it was asked for.
        session: by whom.
        way: how.
        answer: so far.
        answered: when; without an answer never.
    """

    at: float
    session: str
    way: Way
    answer: Answer = Answer.NONE
    answered: float = inf


@dataclass(frozen=True, slots=True)
class Given:
    """An application was given a message.

    Attributes:
        at: when.
        session: whose.
        message: its id.
        marked: whether it said that somebody may have received it before.
    """

    at: float
    session: str
    message: int
    marked: bool


@dataclass(slots=True)
class Sending:
    """A message from its sender's side, and what came of it.

    Attributes:
        queue: where to.
        session: who sent it.
        asked: when it was asked for.
        expires: whether it had an end.
        sent: when its receipt came; without one it may have been sent, once, or not.
        message: its id by the receipt; 0 if the receipt was no longer known.
        given: in the order of time.
        settlings: likewise.
    """

    queue: str
    session: str
    asked: float
    expires: bool
    sent: float = inf
    message: int = 0
    given: list[Given] = field(default_factory=list)
    settlings: list[Settling] = field(default_factory=list)

    def has(self, way: Way, *answers: Answer) -> bool:
        """Tell whether somebody settled it like that, with one of these answers."""
        return any(each.way is way and each.answer in answers for each in self.settlings)

    def released(self, session: str, since: float, until: float) -> bool:
        """Tell whether a session has given it back, or to the dead letters, in a time."""
        return any(each.way is not Way.ACCEPT for each in self._settled_by(session, since, until))

    def is_held_again(self, session: str, since: float, until: float, forgotten: Sequence[Forgotten]) -> bool:
        """Tell whether a session has accepted it in a time, and the grid forgot that: it holds it again, unasked."""
        return any(
            each.way is Way.ACCEPT and undone(forgotten, each.at, each.answered, until=until)
            for each in self._settled_by(session, since, until)
        )

    def told_settlings(self, session: str) -> str:
        """Tell how a session settled it."""
        told = [
            f"{each.way} asked at {each.at:.1f} s, {each.answer} at {each.answered:.1f} s"
            for each in self.settlings
            if each.session == session
        ]
        return "; ".join(told) or "it was not settled there"

    def _settled_by(self, session: str, since: float, until: float) -> list[Settling]:
        return [each for each in self.settlings if each.session == session and since <= each.at <= until]


@dataclass(frozen=True, slots=True)
class QueueLook:
    """What the grid held of a queue, at one moment.

    Attributes:
        at: when.
        queue: which.
        values: of all messages, by id; also of dead letters.
        ready: ids of those that wait.
        delayed: likewise, of those that wait for their time.
        held: session and id of those that somebody holds.
        dead: why each dead letter is one, by id.
        counts: how many each consumer holds, as is written beside its credit.
    """

    at: float
    queue: str
    values: Mapping[int, int]
    ready: Sequence[int] = ()
    delayed: Sequence[int] = ()
    held: Sequence[tuple[str, int]] = ()
    dead: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def left(self) -> str:
        """Where the messages are that are not settled, some of them."""
        places = [f"{message} held by {session}" for session, message in self.held]
        places += [f"{message} is ready" for message in self.ready] + [
            f"{message} is delayed" for message in self.delayed
        ]
        return f"{self.unsettled}, {'; '.join(places[:NAMED]) or 'in no place'}"

    @property
    def unsettled(self) -> int:
        """How many messages are not settled, dead letters aside."""
        return len(self.values) - len(self.dead)


class Messages:
    """All messages of a run.

    Attributes:
        sendings: by value.
        looks: what the grid held of each queue at the end.
        violations: found so far.
    """

    def __init__(self) -> None:
        self.sendings: dict[int, Sending] = {}
        self.looks: dict[str, QueueLook] = {}
        self.violations: list[Violation] = []
        self._left: dict[str, float] = {}

    @property
    def figures(self) -> str:
        """Tell how many there were, and what became of them."""
        all_ = self.sendings.values()
        accepted = sum(each.has(Way.ACCEPT, Answer.DONE) for each in all_)
        again = sum(len(each.given) > 1 for each in all_)
        dead = Counter(reason for look in self.looks.values() for reason in look.dead.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dead.items()))
        return f"{len(all_)} sent, {accepted} accepted, {again} given more than once; dead letters: {reasons or 'none'}"

    # --- What is noted ----------------------------------------------------------------------------------------------

    def ask(self, at: float, queue: str, session: str, *, expires: bool = False) -> int:
        """Begin to send; returns the value to send."""
        value = len(self.sendings) + 1
        self.sendings[value] = Sending(queue, session, at, expires)
        return value

    def sent(self, at: float, value: int, message: int) -> None:
        """The receipt has come."""
        sending = self.sendings[value]
        sending.sent, sending.message = at, message

    def given(self, at: float, queue: str, value: object, given: Given) -> bool:
        """An application was given a message; False if that means nothing, or nobody sent it."""
        if self._left.get(given.session, inf) <= at:
            return False  # it was under way when its consumer left
        sending = self.sendings.get(value) if type(value) is int else None
        if sending is None or sending.queue != queue:
            self._violated("P15", at, queue, f"session {given.session} was given {value!r}, which nobody sent there")
            return False
        sending.given.append(given)
        return True

    def settle(self, at: float, value: int, session: str, way: Way) -> Settling:
        """An application asks for a settlement; returns what takes the answer."""
        settling = Settling(at, session, way)
        self.sendings[value].settlings.append(settling)
        return settling

    def left(self, at: float, session: str) -> None:
        """A session does not consume from now on, or may not have since then."""
        self._left[session] = min(at, self._left.get(session, inf))

    def look(self, look: QueueLook) -> None:
        """Judge what the grid holds of a queue: each message in one place, and held by who is said to hold it."""
        places = [*look.ready, *look.delayed, *(message for _, message in look.held), *look.dead]
        twice = sorted({message for message in places if places.count(message) > 1}) if _repeats(places) else []
        nowhere = sorted(look.values.keys() - set(places))
        nothing = sorted(set(places) - look.values.keys())
        named = {"in two places": twice, "in no place": nowhere, "in a place and do not exist": nothing}
        for what, which in named.items():
            if which:
                self._violated("P15", look.at, look.queue, f"{len(which)} messages are {what}, such as {which[0]}")
        holding: dict[str, int] = defaultdict(int)
        for session, _ in look.held:
            if TRANSACTION not in session:  # what is being committed counts for nobody
                holding[session] += 1
        for session in holding.keys() | look.counts.keys():
            if holding[session] != look.counts.get(session, 0):
                told = look.counts.get(session)
                what = f"session {session} holds {holding[session]} messages, and is said to hold {told}"
                self._violated("P15", look.at, look.queue, what)
        self.looks[look.queue] = look

    # --- The verdict ------------------------------------------------------------------------------------------------

    def judge(self, forgotten: Sequence[Forgotten], restarts: Mapping[str, Sequence[float]]) -> list[Lost]:
        """Judge all messages, once.

        Args:
            forgotten: what the grid was made to forget.
            restarts: by session, when it went on without its buffers, so that what it held came again.

        Returns:
            Messages that were lost with the grid; that must have been declared to who sent them.
        """
        ids: dict[int, set[int]] = defaultdict(set)
        for look in self.looks.values():
            for message, value in look.values.items():
                ids[value].add(message)
        lost = []
        for value, sending in self.sendings.items():
            self._judge_sending(value, sending, ids[value], forgotten)
            self._judge_given(value, sending, forgotten, restarts)
            self._judge_settlings(value, sending, forgotten)
            lost += self._judge_end(value, sending, ids[value], forgotten)
        for value in ids.keys() - self.sendings.keys():
            self._violated("P15", 0.0, "a queue", f"holds {value!r}, which nobody sent")
        return lost

    def _judge_sending(self, value: int, sending: Sending, ids: Iterable[int], forgotten: Sequence[Forgotten]) -> None:
        known = {*ids, *(each.message for each in sending.given), *([sending.message] if sending.message else [])}
        if len(known) > 1 and not undone(forgotten, sending.asked, sending.sent):
            self._of("P5", sending.asked, sending, value, f"was sent once, and is there as {sorted(known)}")

    def _judge_given(
        self,
        value: int,
        sending: Sending,
        forgotten: Sequence[Forgotten],
        restarts: Mapping[str, Sequence[float]],
    ) -> None:
        for number, now in enumerate(sending.given):
            for before in sending.given[:number]:
                if undone(forgotten, sending.asked, before.at, until=now.at):
                    continue
                if not now.marked and not before.marked:
                    self._of("P15", now.at, sending, value, f"was given twice unmarked, first at {before.at:.1f} s")
                elif not now.marked:
                    self._of("P15", now.at, sending, value, f"was given marked at {before.at:.1f} s, now unmarked")
                if sending.released(before.session, before.at, now.at):
                    continue
                if before.session != now.session and self._left.get(before.session, inf) > now.at:
                    what = f"was given to session {now.session} while session {before.session} held it"
                    self._of("P15", now.at, sending, value, f"{what} since {before.at:.1f} s")
                if before.session == now.session and not any(
                    before.at - SLACK <= at <= now.at + SLACK for at in restarts.get(now.session, ())
                ):
                    if sending.is_held_again(now.session, before.at, now.at, forgotten):
                        continue
                    what = f"came twice to session {now.session}, which lost nothing, first at {before.at:.1f} s"
                    self._of("P15", now.at, sending, value, f"{what}; {sending.told_settlings(now.session)}")

    def _judge_settlings(self, value: int, sending: Sending, forgotten: Sequence[Forgotten]) -> None:
        accepted = [each for each in sending.settlings if each.way is Way.ACCEPT and each.answer is Answer.DONE]
        for first in accepted:
            if any(
                other.at > first.answered and not undone(forgotten, first.at, first.answered, until=other.answered)
                for other in accepted
            ):
                self._of("P15", first.answered, sending, value, "was accepted twice")
            for given in sending.given:
                if (
                    given.session != first.session
                    and given.at > first.answered
                    and not undone(forgotten, first.at, first.answered, until=given.at)
                ):
                    what = f"was given to session {given.session} after session {first.session} had accepted it"
                    self._of("P15", given.at, sending, value, what)
        for number, each in enumerate(sending.settlings):
            if each.answer is not Answer.NOT_HELD or self._left.get(each.session, inf) <= each.answered:
                continue
            had_it = any(given.session == each.session for given in sending.given)
            asked_before = any(other.session == each.session for other in sending.settlings[:number])
            if had_it and not asked_before and not undone(forgotten, sending.asked, each.answered):
                what = f"session {each.session} had it, and was told that it does not hold it"
                self._of("P15", each.answered, sending, value, what)

    def _judge_end(
        self, value: int, sending: Sending, ids: Iterable[int], forgotten: Sequence[Forgotten]
    ) -> list[Lost]:
        look = self.looks.get(sending.queue)
        if look is None:
            return []
        reasons = {look.dead[message] for message in ids if message in look.dead}
        if reasons:
            self._judge_dead(value, sending, reasons)
        done = next(
            (each for each in sending.settlings if each.way is not Way.RELEASE and each.answer is Answer.DONE), None
        )
        if done is not None:
            if undone(forgotten, done.at, done.answered):
                return []
            if done.way is Way.ACCEPT and ids:
                self._of("P15", look.at, sending, value, f"was accepted at {done.answered:.1f} s, and is there")
            if done.way is Way.REJECT and "rejected" not in reasons:
                self._of("P15", look.at, sending, value, "was rejected, and is no dead letter")
            return []
        if ids or sending.sent >= look.at or sending.has(Way.ACCEPT, Answer.NONE, Answer.NOT_HELD):
            return []
        if not undone(forgotten, sending.asked, sending.sent):
            self._of("P15", look.at, sending, value, "was sent, is nowhere, and was accepted by nobody")
        elif sending.message:
            generation = generation_of(sending.message)
            return [Lost(sending.queue, value, generation, sending.sent, sending.session)]
        return []

    def _judge_dead(self, value: int, sending: Sending, reasons: Iterable[str]) -> None:
        at = sending.asked
        for reason in reasons:
            match reason:
                case "rejected":
                    has_one = any(each.way is Way.REJECT for each in sending.settlings)
                case "expired":
                    has_one = sending.expires
                case "deliveries":
                    has_one = bool(sending.given)
                case _:
                    has_one = False
            if not has_one:
                self._of("P15", at, sending, value, f"is a dead letter for {reason!r}, and nothing of that happened")

    def _of(self, promise: str, at: float, sending: Sending, value: int, what: str) -> None:
        self._violated(promise, at, sending.queue, f"message {sending.message} with {value} {what}")

    def _violated(self, promise: str, at: float, who: str, what: str) -> None:
        self.violations.append(Violation(promise, at, who, what))


def _repeats(places: Sequence[int]) -> bool:
    return len(set(places)) != len(places)
