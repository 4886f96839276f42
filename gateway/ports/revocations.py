"""What is revoked in the whole cluster. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gateway.core.policy.revocations import Revocation


@dataclass(frozen=True, slots=True)
class Unblocked:
    """A revocation is no more.

    Attributes:
        name: of the revocation.
    """

    name: str


@dataclass(frozen=True, slots=True)
class AllRevocations:
    """Everything the grid holds.

    Attributes:
        revocations: each name once, in no order.
        lost_writes: the grid may have lost writes since the item before, so that what is missing here need not have
            been unblocked.
    """

    revocations: tuple[Revocation, ...]
    lost_writes: bool = False


@dataclass(frozen=True, slots=True)
class RevocationChanges:
    """What has changed since the item before, in the order in which it changed.

    Attributes:
        changes: at least one.
    """

    changes: tuple[Revocation | Unblocked, ...]


RevocationNews: TypeAlias = AllRevocations | RevocationChanges


class RevocationStore(Protocol):
    """Revocations in the grid; one of each name at most. Whether one is over, nodes judge by their clocks.

    What a call has written is with every follower within a second, and mostly within some milliseconds.
    """

    async def add(self, revocation: Revocation) -> None:
        """Write a revocation, in the place of an earlier one of the same name; also when the grid's memory is full.

        Raises:
            GridUnavailable: see the module.
        """

    async def unblock(self, name: str) -> None:
        """Delete a revocation; one that is not there is no error.

        Raises:
            GridUnavailable: see the module.
        """

    async def restore(self, revocations: Sequence[Revocation]) -> int:
        """Put back those that a grid which lost writes holds not at all, or as they were made earlier.

        Returns:
            How many were written.

        Raises:
            GridUnavailable: some may have been written; asking again does no harm.
        """

    async def forget(self, revocations: Sequence[Revocation]) -> None:
        """Delete revocations that are over, each only if it is exactly as given: it may have been made anew meanwhile.

        Raises:
            GridUnavailable: some may have been deleted; asking again does no harm.
        """

    def follow(self) -> AsyncIterator[RevocationNews]:
        """Yield everything, then every change, for ever; for one listener.

        Everything comes again whenever a change may have been missed, and after each time that the grid may have lost
        writes. While the grid is unreachable it waits.
        """
