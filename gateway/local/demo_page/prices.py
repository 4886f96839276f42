"""Prices for the page: values that count, so that whoever reads them can tell if one is missing or came twice."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from typing import Final

from gateway.client import ConnectFailed, GatewayError, Session, SessionEnded, connect

SYMBOLS: Final = {"ACME": 101.0, "GLOBEX": 48.0, "INITECH": 12.5, "UMBRELLA": 230.0}
"""What there are prices of, and about which."""

TOPICS: Final = "demo/prices"
"""The topics of the prices are below it."""

_PRINCIPAL: Final = "demo-prices"
_PUBLISHES_PER_SECOND: Final = 8.0
"""Of all symbols together: two a second of each can be followed by eye, and a cut of a second misses some."""
_SWING: Final = 0.03
"""How far a price goes from its middle, as a share of it."""
_PERIODS: Final = (37.0, 11.0)
"""Steps of the two waves that a price is made of: it looks alive, and needs no chance."""
_PAUSE_SECONDS: Final = 0.5
"""Before what was refused is tried again."""


async def publish_prices(url: str) -> None:
    """Publish prices for ever, whatever breaks meanwhile.

    Each value is ``{"price": …, "number": …, "run": …}``: numbers of one topic count 1, 2, 3, … within a run.

    Args:
        url: where clients connect.
    """
    while True:
        try:
            async with connect(url, principal=_PRINCIPAL) as session:
                await _publish_with(session)
        except (ConnectFailed, SessionEnded):
            await asyncio.sleep(_PAUSE_SECONDS)


async def _publish_with(session: Session) -> None:
    """Publish until the session ends. It may take a request with it, so the next one begins a new run."""
    run = time.time_ns()
    for number in itertools.count(1):
        for place, (symbol, middle) in enumerate(SYMBOLS.items()):
            value = {"price": price(middle, number, place), "number": number, "run": str(run)}
            await _publish(session, f"{TOPICS}/{symbol}", value)
            await asyncio.sleep(1 / _PUBLISHES_PER_SECOND)


async def _publish(session: Session, topic: str, value: object) -> None:
    """Publish one value exactly once: the client sees to what was sent, and what was refused was not executed."""
    while True:
        try:
            await session.publish(topic, value)
        except SessionEnded:
            raise
        except GatewayError:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


def price(middle: float, number: int, place: int) -> float:
    """Return a price, with two digits.

    Args:
        middle: around which it swings.
        number: of the step.
        place: of the symbol, so that not all swing alike.
    """
    waves = (math.sin((number + 7 * place) * math.tau / period) for period in _PERIODS)
    return round(middle * (1 + _SWING * sum(waves) / len(_PERIODS)), 2)
