"""Who goes first of two kinds that wait, and how often the others go all the same: pure, no I/O and no clock."""

from __future__ import annotations

from typing import Final

NEW_ONE_IN: Final = 8
"""Of so many that are served one is new, if somebody new waits. Whoever likes can say that it comes back; a crowd that
does come back is served an eighth later, and who is new is not shut out for as long as it lasts (P20)."""


class Precedence:
    """Lets those who come back go before those who are new, but for one in ``NEW_ONE_IN``."""

    __slots__ = ("_passed",)

    def __init__(self) -> None:
        self._passed = 0
        """How many have been served since somebody new waits."""

    def is_for_new(self, *, returning: bool, new: bool) -> bool:
        """Tell who is next, without taking note of it.

        Args:
            returning: whether somebody waits who comes back.
            new: whether somebody waits who is new.
        """
        return new and (not returning or self._passed >= NEW_ONE_IN - 1)

    def served(self, *, new: bool, waits: bool) -> None:
        """Take note of one who is served.

        Args:
            new: whether it is new.
            waits: whether somebody new waits.
        """
        self._passed = 0 if new or not waits else self._passed + 1
