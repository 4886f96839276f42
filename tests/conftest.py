"""What holds for every test."""

import asyncio


def pytest_configure() -> None:
    """Say that the main thread has no event loop until a test makes one.

    Without this, asyncio makes one for whoever asks first (here, a plugin that only wants to put back what was there),
    nobody closes it, and the warning about that fails some later test, at random, when garbage is collected.
    """
    asyncio.set_event_loop(None)
