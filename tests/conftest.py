"""What holds for every test."""

import asyncio
from pathlib import Path

import pytest

from tests.support.certificates import Authority


def pytest_configure() -> None:
    """Say that the main thread has no event loop until a test makes one.

    Without this, asyncio makes one for whoever asks first (here, a plugin that only wants to put back what was there),
    nobody closes it, and the warning about that fails some later test, at random, when garbage is collected.
    """
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Vouch for the certificates of a test run."""
    folder: Path = tmp_path_factory.mktemp("authority")
    return Authority(folder)
