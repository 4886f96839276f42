"""Stints: which nodes served a session, one after the other, and what is told of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.sessions import rules
from pipeline.sessions.facts import Fact
from pipeline.sessions.rules import MICROSECONDS


@dataclass(frozen=True, slots=True)
class Stint:
    """One node's service of the session: from a claim to the loss of the connection.

    A node claims a session each time that its client comes, and each claim has an epoch of its own. The incarnation
    stands beside it because a node that is cut off from the grid counts on alone, while another one claims there.

    Attributes:
        epoch: of the claim.
        incarnation: of the node.
        node: the node.
        position: when it began, or the first moment that is known of it.
        beginning: the session was opened here, or its client came back here; None if nobody told.
        ending: the node told that the connection was lost; None if it did not.
        orphaning: survivors told that the node died; None if they did not.
        fenced: whether the node learned from the grid that the next stint had begun.
    """

    epoch: int
    incarnation: str
    node: str | None
    position: int
    beginning: Fact | None
    ending: Fact | None
    orphaning: Fact | None
    fenced: bool

    @property
    def release(self) -> str | None:
        """What the node ran; survivors do not tell."""
        told = self.beginning or self.ending
        return None if told is None else told.release

    @property
    def opening(self) -> Fact | None:
        """That the session was opened here."""
        return self.beginning if self.beginning and self.beginning.type == rules.OPENED else None

    @property
    def comeback(self) -> Fact | None:
        """That the client came back here."""
        return self.beginning if self.beginning and self.beginning.type == rules.RESUMED else None

    @property
    def told_away_ms(self) -> int | None:
        """How long the client says that it was away before; None if it does not, or cannot mean it."""
        comeback = self.comeback
        if comeback is None or comeback.away_ms is None or not 0 <= comeback.away_ms <= rules.LONGEST_AWAY_MS:
            return None
        return comeback.away_ms

    @property
    def cause(self) -> str | None:
        """How the connection ended, if that was told."""
        if self.ending is not None:
            if self.ending.type == rules.SLOW_CLOSED:
                return rules.SLOW
            return self.ending.cause or rules.CONNECTION_LOST
        if self.orphaning is not None:
            return rules.NODE_DIED
        return rules.CUT_OFF if self.fenced else None

    @property
    def clock_began(self) -> int | None:
        """When the window of the session began to run; None if it did not, as far as is known."""
        told = self.ending or self.orphaning
        return None if told is None else told.at

    @property
    def uncertain_ms(self) -> int | None:
        """For how long after its last sign of life a node that died may have lived; None if survivors do not tell."""
        told = self.orphaning
        if told is None or told.since is None or told.until is None:
            return None
        return max(0, told.until - told.since) // MICROSECONDS

    @property
    def deduplicated(self) -> int | None:
        """Publishes that were not repeated: the later count of the connection includes the earlier one."""
        counts = [each.deduplicated for each in (self.beginning, self.ending) if each and each.deduplicated is not None]
        return max(counts, default=None)


def last_lived(orphaning: Fact) -> int:
    """Tell when a node that died lived last, as survivors know."""
    return orphaning.at if orphaning.since is None else orphaning.since


def stints(facts: Iterable[Fact]) -> list[Stint]:
    """Find the stints of a session, in the order of their epochs.

    Args:
        facts: of the session, in any order.
    """
    gathered: defaultdict[tuple[int, str], list[Fact]] = defaultdict(list)
    for each in facts:
        if each.type in _OF_SURVIVORS:
            gathered[each.epoch or 0, each.peer_incarnation or ""].append(each)
        elif each.type in _OF_THE_NODE:
            gathered[each.epoch or 0, each.incarnation].append(each)
    found = (_stint(epoch, incarnation, told) for (epoch, incarnation), told in gathered.items())
    return sorted(filter(None, found), key=lambda each: (each.epoch, each.position, each.incarnation))


_OF_SURVIVORS = frozenset({rules.ORPHANED})
_OF_THE_NODE = frozenset({rules.OPENED, rules.RESUMED, rules.DISCONNECTED, rules.SLOW_CLOSED, rules.FENCED})
_BEGINNINGS = frozenset({rules.OPENED, rules.RESUMED})


def _stint(epoch: int, incarnation: str, told: Sequence[Fact]) -> Stint | None:
    beginning = _first(each for each in told if each.type in _BEGINNINGS)
    later = [each for each in told if beginning is None or each.number > beginning.number]
    # That a client was too slow is told beside the loss of its connection, or alone; the loss says more.
    ending = _first(each for each in later if each.type == rules.DISCONNECTED) or _first(
        each for each in later if each.type == rules.SLOW_CLOSED
    )
    orphaning = min(
        (each for each in told if each.type == rules.ORPHANED),
        key=lambda each: (each.at, each.incarnation, each.number),
        default=None,
    )
    by_node = beginning or ending
    node: str | None
    if by_node is not None:
        node, position = by_node.node, by_node.at
    elif orphaning is not None:
        node, position = orphaning.peer, last_lived(orphaning)
    else:
        return None  # a node that only learns that it has lost the session says nothing of when it had it
    fenced = any(each.type == rules.FENCED for each in told)
    return Stint(epoch, incarnation, node, position, beginning, ending, orphaning, fenced)


def _first(told: Iterable[Fact]) -> Fact | None:
    return min(told, key=lambda each: each.number, default=None)
