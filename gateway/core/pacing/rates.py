"""Rate limits as values: a token bucket that needs no clock of its own."""

from __future__ import annotations

from typing import Final

CLOCK_ROUNDING: Final = 1e-6
"""Seconds of grace in favour of the caller: whoever waited just as long as it was told must not be told to wait for a
rounding error. A double holds 30 years of seconds to within 2e-7."""


class TokenBucket:
    """Grants amounts at a steady rate, with bursts.

    The bucket holds up to ``burst`` tokens and gains ``rate`` of them per second; an amount is granted if its tokens
    are there. An amount above ``burst`` is granted from a full bucket, which then owes the difference, because refusing
    it for ever would help nobody. So in any span of T seconds no more than ``burst + rate * T`` is granted, or, with
    amounts above ``burst``, the largest of them plus ``rate * T``.

    The state is one number, the time at which the bucket will be full. A thousand idle buckets cost nothing.
    """

    __slots__ = ("_burst", "_full_at", "_interval")

    def __init__(self, rate: float, burst: float) -> None:
        """Make a full bucket.

        Args:
            rate: tokens gained per second.
            burst: tokens it can hold.

        Raises:
            ValueError: one of them is not positive.
        """
        if not (rate > 0 and burst > 0):
            raise ValueError(f"a token bucket needs a positive rate and burst, not {rate} and {burst}")
        self._interval = 1 / rate
        self._burst = burst
        self._full_at = float("-inf")

    def is_full(self, now: float) -> bool:
        """Tell whether nothing of what was taken is missing any more: the bucket is as good as a new one."""
        return self._full_at <= now

    def fill(self) -> None:
        """Forget what was taken: the bucket is as good as a new one."""
        self._full_at = float("-inf")

    def charge(self, now: float, amount: float = 1.0) -> float:
        """Take *amount* tokens whether they are there or not: for what has happened already. The bucket owes the rest.

        Whoever then waits as long as it is told, before it causes the next charge, keeps to the rate exactly: in any
        span of T seconds no more than ``burst + rate * T`` and one further amount for each of those who share it.

        Args:
            now: as for ``take``.
            amount: tokens, not negative.

        Returns:
            Seconds until nothing is owed any more; 0 if nothing is.
        """
        self._full_at = max(self._full_at, now) + amount * self._interval
        owed = self._full_at - now - self._burst * self._interval
        return owed if owed > CLOCK_ROUNDING else 0.0

    def give_back(self, amount: float = 1.0) -> None:
        """Take back what ``charge`` took: what it was for has come to nothing.

        Args:
            amount: tokens, no more than were charged and not given back.
        """
        self._full_at -= amount * self._interval

    def owed(self, now: float) -> float:
        """Tell after how many seconds nothing is owed any more; 0 if nothing is."""
        return self.wait(now, 0.0)

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take *amount* tokens if they are there.

        Args:
            now: seconds, of any clock that does not go back; should it, the bucket only fills later.
            amount: tokens, not negative.

        Returns:
            0 if they were taken; else nothing was taken, and after this many seconds they will be there, if nobody
            takes any before.
        """
        wait = self.wait(now, amount)
        if wait == 0:
            self._full_at = max(self._full_at, now) + amount * self._interval
        return wait

    def wait(self, now: float, amount: float = 1.0) -> float:
        """Tell what ``take`` would return, and take nothing."""
        full_at = max(self._full_at, now)
        # How long before being full the bucket holds enough; not more than all of it is ever asked for.
        early = (self._burst - min(amount, self._burst)) * self._interval
        wait = full_at - now - early
        return wait if wait > CLOCK_ROUNDING else 0.0
