"""Faults of the network for tests, and waiting for what comes of them without ever sleeping.

```python
async with faulty(stack.url) as (url, proxy):
    session = await connect(url)
    proxy.cut()
    await eventually(lambda: session.state == "connected", "the session is back")
```

``gateway.local.proxy.FaultProxy`` says what the proxy can do: ``cut``, ``cut_after``, ``stall``, ``delay``, ``limit``,
``refuse``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from urllib.parse import urlsplit, urlunsplit

from gateway.local.proxy import FaultProxy, Way
from tests.support.times import PATIENCE, scaled

DEADLINE = PATIENCE
"""Seconds, on a quiet machine, until a condition must hold, where a test says nothing else."""

_POLL = 0.01
"""Seconds between looks at a condition."""


async def eventually(condition: Callable[[], bool | Awaitable[bool]], what: str, *, within: float = DEADLINE) -> None:
    """Wait until a condition holds.

    Args:
        condition: a function or coroutine function; looked at again and again.
        what: said in the failure: what should have become true.
        within: the deadline, in seconds on a quiet machine.

    Raises:
        AssertionError: it did not in time.
    """
    loop = asyncio.get_running_loop()
    longest = scaled(within)
    deadline = loop.time() + longest
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert loop.time() < deadline, f"not within {longest:g} s: {what}"
        await asyncio.sleep(_POLL)


@asynccontextmanager
async def faulty(url: str) -> AsyncIterator[tuple[str, FaultProxy]]:
    """Put a fault proxy before a server; yields the URL that leads through it, and the proxy."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with FaultProxy(parts.hostname, parts.port) as proxy:
        yield urlunsplit(parts._replace(netloc=f"127.0.0.1:{proxy.port}")), proxy


async def cut_at_random_bytes(proxy: FaultProxy, random: Random, *, times: int, most: int) -> None:
    """Cut connections again and again, each time after a random number of bytes in a random direction.

    Cuts so fall into handshakes, resumes and frames alike. There must be traffic in both directions, or a cut waits.

    Args:
        proxy: whose connections.
        random: seeded, so that a failure can be repeated.
        times: how many cuts.
        most: bytes that may pass before a cut.

    Raises:
        AssertionError: a cut did not happen in time, for lack of traffic.
    """
    for number in range(times):
        way = random.choice((Way.UP, Way.DOWN))
        before = proxy.cuts
        proxy.cut_after(random.randrange(most), way)
        await eventually(lambda before=before: proxy.cuts > before, f"cut {number + 1} on the way {way}")  # type: ignore[misc]
