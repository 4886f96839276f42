"""What became of sessions (P1, P3, P7), and who was told of losses (P2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.account.forgotten import LAG, Forgotten, NodeEnd
from tests.chaos.account.publishes import Lost, by_generation
from tests.chaos.account.violation import Violation

EARLY: Final = 0.9
"""Part of its window for which a session must be kept at least; the rest is for clocks that are read at two places."""

BEFORE: Final = 2.0
"""Seconds by which the notice of a loss may come before the reader has a look at the new generation."""

RESTORED: Final = 6.0
"""Seconds after the grid has forgotten in which nodes write back what they hold."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not change in a session's life, as a welcome tells it.

    Attributes:
        id: of the session.
        principal: whose it is.
        properties: user-defined ones.
        selections: as on the wire; None where the client looks after them by itself.
    """

    id: str
    principal: str
    properties: Mapping[str, str]
    selections: tuple[str, ...] | None = None


@dataclass(slots=True)
class Life:
    """One session from its first welcome to its end.

    Attributes:
        id: of the session.
        who: which client had it.
        opened: when.
        window: seconds without a connection that it survives.
        told: when it was told of lost writes.
        selects: topics or roots that it has selected since a time, for who must be told: (since, root).
        ended: when it ended; None while it lives.
        confirmed: whether a bye was answered by 1000.
    """

    id: str
    who: str
    opened: float
    window: float
    told: list[float] = field(default_factory=list)
    ended: float | None = None
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """A session was lost, and its client had not asked for it.

    Attributes:
        at: when its client learned of it.
        life: the session.
        why: what the client was told.
        heard: when it had last heard of its node.
        owner: incarnation of the node that owned it last; empty if it did not live until somebody looked.
    """

    at: float
    life: Life
    why: str
    heard: float
    owner: str

    def had_nobody(self, node_ends: Sequence[NodeEnd], forgotten: Sequence[Forgotten]) -> bool:
        """Tell whether nobody had it: its node ended while its client was away, and the grid forgot.

        That is the limit of what is promised (P7): two copies, in the memory of its node and in the grid.
        """
        node = self.owner.partition(":")[0]
        return any(
            node in {end.node, ""}
            and self.heard <= end.at <= loss.ended + RESTORED
            and end.at - RESTORED <= loss.ended
            and loss.began <= self.at
            and self.life.opened >= loss.kept - LAG
            for end in node_ends
            for loss in forgotten
        )


class Sessions:
    """All sessions of a run.

    Attributes:
        lives: by id.
        violations: found so far.
    """

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.violations: list[Violation] = []
        self._resumed: list[tuple[float, str]] = []
        self._deaths: list[Death] = []
        self._last_owner: dict[str, str] = {}
        self._owners: dict[tuple[str, str, int], str] = {}

    def opened(self, at: float, session: str, who: str, window: float) -> Life:
        """A session was created."""
        if session in self.lives:
            self._violated("P1", at, who, f"the new session {session} has the id of one of {self.lives[session].who}")
        self.lives[session] = Life(session, who, at, window)
        return self.lives[session]

    def compare(self, at: float, who: str, allowed: Sequence[Identity], now: Identity) -> None:
        """Compare what a welcome says with what it may say (P1).

        Args:
            at: when it came.
            who: to which client.
            allowed: what was promised, and after it what requests without an answer may have made of it.
            now: what the welcome says.
        """
        if now not in allowed:
            self._violated("P1", at, who, f"became {now}, should be {' or '.join(map(str, allowed))}")

    @property
    def losses(self) -> list[float]:
        """When any of them was told of lost writes."""
        return [told for life in self.lives.values() for told in life.told]

    def told(self, at: float, session: str) -> None:
        """A session was told of lost writes."""
        self.lives[session].told.append(at)

    def left(self, at: float, session: str, *, confirmed: bool) -> None:
        """A client has ended its session by bye, or has given it up to its window."""
        life = self.lives[session]
        life.ended = at
        life.confirmed = confirmed

    def died(self, at: float, session: str, why: str, *, heard: float, expired: bool, excused: bool = False) -> None:
        """A session ended, and its client had not asked for it (P7); ``judge_deaths`` tells whether that may be.

        Args:
            at: when the client learned of it.
            session: which.
            why: what it was told.
            heard: when it had last heard of its node.
            expired: whether it was told that its window had ended.
            excused: whether nobody can tell if its window had ended.
        """
        life = self.lives[session]
        life.ended = at
        away = at - heard
        if excused or (expired and away >= EARLY * life.window):
            return
        self._deaths.append(Death(at, life, why, heard, self._last_owner.get(session, "")))

    def judge_deaths(self, node_ends: Sequence[NodeEnd], forgotten: Sequence[Forgotten]) -> None:
        """See that no session was lost that a node or the grid had.

        Args:
            node_ends: when processes of nodes ended.
            forgotten: what the grid was made to forget.
        """
        for death in self._deaths:
            if not death.had_nobody(node_ends, forgotten):
                life, away = death.life, death.at - death.heard
                what = f"the session {life.id}, window {life.window:g} s, was lost after {away:.1f} s: {death.why}"
                self._violated("P7", death.at, life.who, what)

    def resumed_after_end(self, at: float, session: str) -> None:
        """A session was resumed whose end had been confirmed (P7); ``judge_ends`` tells whether that may be."""
        self._resumed.append((at, session))

    def judge_ends(self, forgotten: Sequence[Forgotten]) -> None:
        """See that what was closed stayed closed, unless the grid forgot just that.

        Args:
            forgotten: what the grid was made to forget.
        """
        for at, session in self._resumed:
            life = self.lives[session]
            if life.ended is None or not any(each.began - LAG <= life.ended <= each.ended for each in forgotten):
                what = f"the session {session} was closed with a confirmed 1000, and was resumed"
                self._violated("P7", at, life.who, what)

    def wrong_close(self, at: float, session: str, code: int | None) -> None:
        """A bye was answered by another code than 1000 (protocol 4.7)."""
        self._violated("P7", at, self.lives[session].who, f"the bye of session {session} was answered by close {code}")

    def owned(self, at: float, lineage: str, session: str, epoch: int, owner: str) -> None:
        """Redis says who owns a session (P3).

        Args:
            at: when it was read.
            lineage: which data of Redis it was read from; what another lineage says is no contradiction.
            session: which.
            epoch: of the claim.
            owner: incarnation of a node.
        """
        self._last_owner[session] = owner or self._last_owner.get(session, "")
        first = self._owners.setdefault((lineage, session, epoch), owner)
        if first != owner:
            self._owners[lineage, session, epoch] = owner
            self._violated("P3", at, session, f"in epoch {epoch} it is owned by {owner}, and was by {first}")

    def judge_losses(
        self,
        lost: Sequence[Lost],
        generations: Sequence[tuple[float, int]],
        interested: Mapping[str, Sequence[tuple[str, float]]],
    ) -> None:
        """See that lost publishes were declared to whom they concern (P2): who published them and who listened.

        Args:
            lost: acknowledged publishes that the grid has not got any more.
            generations: when the reader first saw each generation, in order.
            interested: by topic, the sessions that have it selected, and since when.
        """
        for generation, publishes in by_generation(lost).items():
            seen = next((at for at, number in generations if number > generation), None)
            undeclared: dict[str, list[Lost]] = {}
            for each in publishes:
                sessions = [each.session]
                sessions += [name for name, since in interested.get(each.topic, ()) if since < each.acknowledged]
                for session in dict.fromkeys(sessions):
                    life = self.lives.get(session)
                    # Who has gone cannot be told, and who came later did not lose anything.
                    if life is None or life.ended is not None or life.opened > each.acknowledged:
                        continue
                    if seen is None or not any(told >= seen - BEFORE for told in life.told):
                        undeclared.setdefault(session, []).append(each)
            for session, missed in undeclared.items():
                at = missed[-1].acknowledged if seen is None else seen
                what = (
                    f"session {session} was not told that {len(missed)} acknowledged publishes of generation "
                    f"{generation} were lost, the first of them value {missed[0].value} of {missed[0].topic}"
                )
                self._violated("P2", at, self.lives[session].who, what)

    def _violated(self, promise: str, at: float, who: str, what: str) -> None:
        self.violations.append(Violation(promise, at, who, what))
