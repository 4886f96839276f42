"""Durable subscriptions that an in-memory grid holds, one method per atomic step, as the Lua of the Redis adapter."""

from __future__ import annotations

from typing import Final

from gateway.core.topics.topics import TOPIC_PARTITIONS, principal_partition
from gateway.core.topics.versions import place_of
from gateway.core.types import Epoch, EventId, SessionId
from gateway.ports import (
    MOST_DURABLES,
    MOST_DURABLES_TOGETHER,
    Advance,
    Different,
    Durable,
    DurableName,
    DurableTerms,
    Fenced,
    InUse,
    NotOpened,
    Opened,
    OpenResult,
    Ownership,
)

_MS: Final = 1000
"""Milliseconds in a second."""


class Durables:
    """All durable subscriptions of the grid; *now* is the grid's clock in seconds."""

    def __init__(self) -> None:
        self._partitions: list[dict[DurableName, Durable]] = [{} for _ in range(TOPIC_PARTITIONS)]
        self._epochs: dict[DurableName, Epoch] = {}
        self._being_removed: set[DurableName] = set()

    def open(
        self,
        ownership: Ownership,
        name: DurableName,
        terms: DurableTerms,
        *,
        start: str | None,
        instead_of: SessionId | None,
        now: float,
    ) -> OpenResult:
        """See ``DurableStore.open``; that the session has not ended, others have found out."""
        held = self._of(name)
        each = held.get(name)
        created = each is None
        if name in self._being_removed:
            return NotOpened.REMOVING
        if each is None:
            if start is None:
                return NotOpened.ABSENT
            if sum(other.principal == name.principal for other in held) >= MOST_DURABLES:
                return NotOpened.FULL
            if len(held) >= MOST_DURABLES_TOGETHER:
                return NotOpened.FULL
            each = Durable(name, terms, start, None, int(now * _MS), None)
        if each.terms._replace(life=0.0) != terms._replace(life=0.0):
            return Different(each.terms.selector)
        if terms.shared:
            held[name] = each._replace(terms=terms)
            self._let_go(held[name], now)
            return Opened(each.position, created)
        if each.session == ownership.session:
            self._check(ownership, name)
        elif each.session is not None and each.session != instead_of:
            return InUse(each.session)
        held[name] = each._replace(terms=terms, session=ownership.session, until=None)
        self._epochs[name] = ownership.epoch
        return Opened(each.position, created)

    def advance(self, ownership: Ownership, name: DurableName, position: str) -> Advance:
        """See ``DurableStore.advance``."""
        held = self._of(name)
        each = held.get(name)
        if each is None:
            return Advance.ABSENT
        if each.session != ownership.session:
            return Advance.TAKEN
        self._check(ownership, name)
        self._epochs[name] = ownership.epoch
        held[name] = each._replace(position=_furthest(each.position, position))
        return Advance.DONE

    def release(self, ownership: Ownership, name: DurableName, now: float) -> None:
        """See ``DurableStore.release``."""
        each = self._of(name).get(name)
        if each is not None and each.session == ownership.session:
            self._check(ownership, name)
            self._let_go(each, now)

    def forget(self, session: SessionId, now: float) -> None:
        """A session has ended."""
        for partition in self._partitions:
            for each in [each for each in partition.values() if each.session == session]:
                self._let_go(each, now)

    def remove(self, name: DurableName, by: SessionId | None) -> InUse | bool:
        """See ``DurableStore.remove``."""
        each = self._of(name).get(name)
        if each is None:
            return False
        if by is not None and each.session not in {None, by}:
            return InUse(each.session or by)
        self._delete(name)
        return True

    def due(self, partition: int, limit: int, now: float) -> list[Durable]:
        """See ``DurableStore.due``."""
        held = self._partitions[partition].values()
        return sorted((each for each in held if _is_over(each, now)), key=lambda each: each.until or 0)[:limit]

    def expire(self, name: DurableName, now: float) -> bool:
        """See ``DurableStore.expire``."""
        each = self._of(name).get(name)
        if each is None or not _is_over(each, now):
            return False
        self._delete(name)
        return True

    def begin_removal(self, name: DurableName, now: float, *, over: bool) -> bool:
        """See ``DurableStore.begin_removal``."""
        each = self._of(name).get(name)
        if each is None or not each.terms.shared or (over and not _is_over(each, now)):
            return False
        self._being_removed.add(name)
        self._of(name)[name] = each._replace(until=0)
        return True

    def prolong(self, name: DurableName, used: int | None, now: float) -> None:
        """See ``DurableStore.prolong``."""
        each = self._of(name).get(name)
        if each is not None and _is_over(each, now):
            self._being_removed.discard(name)
            self._let_go(each, now if used is None else used / _MS)

    def find(self, name: DurableName) -> Durable | None:
        """See ``DurableStore.find``."""
        return self._of(name).get(name)

    def page(self, partition: int, after: DurableName | None, count: int) -> list[Durable]:
        """See ``DurableStore.page``."""
        held = self._partitions[partition]
        return [held[name] for name in sorted(held) if after is None or name > after][:count]

    def inventory(self) -> set[str]:
        """Name what is kept of sessions."""
        return {
            f"use of {each.name} by {each.session}"
            for partition in self._partitions
            for each in partition.values()
            if each.session is not None
        }

    def _of(self, name: DurableName) -> dict[DurableName, Durable]:
        return self._partitions[principal_partition(name.principal)]

    def _delete(self, name: DurableName) -> None:
        self._being_removed.discard(name)
        self._epochs.pop(name, None)
        del self._of(name)[name]

    def _check(self, ownership: Ownership, name: DurableName) -> None:
        if self._epochs[name] > ownership.epoch:
            raise Fenced(f"session {ownership.session} has a newer owner than epoch {ownership.epoch}")

    def _let_go(self, each: Durable, now: float) -> None:
        self._epochs.pop(each.name, None)
        self._of(each.name)[each.name] = each._replace(
            session=None, until=int(now * _MS) + round(each.terms.life * _MS)
        )


def _is_over(each: Durable, now: float) -> bool:
    return each.until is not None and each.until <= now * _MS


def _furthest(before: str, after: str) -> str:
    places: dict[int, str] = {}
    for event in [each for text in (before, after) for each in text.split(",") if each]:
        number = int(event.partition("-")[0])
        if number not in places or place_of(EventId(event)) > place_of(EventId(places[number])):
            places[number] = event
    return ",".join(places[number] for number in sorted(places))
