"""How often somebody without a valid token may try: at the API and at the consoles' WebSocket together."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.core.rates import TokenBucket

FAILURES: Final = 10
"""Attempts without a valid token that one address may make at once; a person who mistypes one needs three."""

FAILURES_PER_SECOND: Final = 0.2
"""How fast it may go on: a log keeps readable, and a new token comes through within seconds."""

ADDRESSES: Final = 4096
"""Addresses whose failures are remembered; the ones that failed last."""


class FailedTokens:
    """Counts attempts without a valid token by address.

    To be told of failures only: a valid token is accepted however many came before it, so that nobody can lock an
    administrator out by failing from his address.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def failed(self, address: str) -> float:
        """Count an attempt.

        Returns:
            Seconds for which the address is told to wait; 0 if it has not failed too often.
        """
        bucket = self._buckets.pop(address, None) or TokenBucket(FAILURES_PER_SECOND, FAILURES)
        self._buckets[address] = bucket
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return bucket.take(self._clock())
