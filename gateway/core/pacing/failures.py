"""Who failed often recently, in bounded memory: whose credentials were refused, clients' and administrators'.

Nothing here reads a clock; times are seconds of one that does not go back.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.core.pacing.rates import TokenBucket

FORGIVEN: Final = 10
"""Failures that count as mistakes: a person who mistypes a secret, or a program that starts with an old one, has
fewer."""

FORGIVEN_PER_SECOND: Final = 0.2
"""How fast failures are forgotten: after a minute nothing is left, and an address that goes on failing stays known."""

MOST_REMEMBERED: Final = 4096
"""Names that are remembered, those that failed last: some 1 MB. Each of them has cost a verification."""


class Failures:
    """Counts failures by name, which is an address or a principal. What becomes of a known one, its user decides.

    A success forgives nothing: whoever has one good secret could fail as often as it likes in between. What was failed
    beyond the forgiven ones is not counted either, so that everybody is forgiven a minute after the last failure.
    """

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def failed(self, name: str, now: float) -> float:
        """Somebody of this name has failed.

        Args:
            name: whose failure it is.
            now: seconds of a clock that does not go back.

        Returns:
            0 if it is forgiven; else seconds until one would be.
        """
        bucket = self._buckets.pop(name, None) or TokenBucket(FORGIVEN_PER_SECOND, FORGIVEN)
        self._buckets[name] = bucket
        if len(self._buckets) > MOST_REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket.take(now)

    def often(self, name: str, now: float) -> bool:
        """Tell whether one more failure would not be forgiven."""
        bucket = self._buckets.get(name)
        return bucket is not None and bucket.wait(now) > 0

    def count(self, name: str, now: float) -> float:
        """Tell how many failures of a name are not forgotten yet, at most ``FORGIVEN``; the last may be so in part."""
        bucket = self._buckets.get(name)
        return 0.0 if bucket is None else bucket.wait(now, FORGIVEN) * FORGIVEN_PER_SECOND
