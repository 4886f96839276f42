"""Leases of things with names, each of which one node has, with terms: links to other clusters, and hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import TERMS_OF_A_GENERATION

Name = TypeVar("Name", bound=str)
Holder = TypeVar("Holder")


@dataclass(slots=True)
class _Lease:
    node: NodeRef
    term: int
    until: float


class NamedLeases(Generic[Name, Holder]):
    """Who has what of one kind. *now* is the grid's clock in seconds.

    Args:
        most: leases that there may be.
        holder: makes what is told of a lease: its node, its term, and the seconds until somebody else may take it.
    """

    def __init__(self, *, most: int, holder: Callable[[NodeRef, int, float], Holder]) -> None:
        self._most = most
        self._holder = holder
        self._held: dict[Name, _Lease] = {}
        self._term = 0

    def __iter__(self) -> Iterator[Name]:
        """List what somebody has, or had last."""
        return iter(self._held)

    def take(
        self, node: NodeRef, names: Collection[Name], lease: float, generation: GridGeneration, now: float
    ) -> Mapping[Name, Holder] | None:
        """Have a node take what nobody has, and keep what it has.

        Returns:
            Who has each of them then; None if there would be more leases than there may be, and nothing was done.
        """
        self._held = {name: each for name, each in self._held.items() if each.until > now or name in names}
        if len(self._held.keys() | set(names)) > self._most:
            return None
        for name in names:
            held = self._held.get(name)
            if held is None or (held.node != node and held.until <= now):
                self._term = max(self._term, (generation - 1) * TERMS_OF_A_GENERATION) + 1
                self._held[name] = _Lease(node, self._term, now + lease)
            elif held.node == node:
                held.until = now + lease
        return {name: each for name, each in self.holders(now).items() if name in names}

    def release(self, node: NodeRef, names: Collection[Name]) -> None:
        """Have a node give back what it has of these."""
        for name in names:
            held = self._held.get(name)
            if held is not None and held.node == node:
                del self._held[name]

    def holders(self, now: float) -> Mapping[Name, Holder]:
        """Tell who has what."""
        return {
            name: self._holder(each.node, each.term, each.until - now)
            for name, each in self._held.items()
            if each.until > now
        }

    def forget(self, name: Name) -> None:
        """Forget who has something."""
        self._held.pop(name, None)
