"""What holds for every test."""

import asyncio
import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gateway.garbage import uncollected
from gateway.local.processes import ManagedProcess
from tests.support import forked_nodes, times
from tests.support.certificates import Authority

times.scale()  # measured once per run: pytest-xdist starts its workers later, and they find it in their environment


# How long it takes to draw examples says something of the machine, which may be busy with other tests, and not of them.
settings.register_profile("any-machine", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_configure() -> None:
    """Say that the main thread has no event loop until a test makes one.

    Without this, asyncio makes one for whoever asks first (here, a plugin that only wants to put back what was there),
    nobody closes it, and the warning about that fails some later test, at random, when garbage is collected.
    """
    asyncio.set_event_loop(None)


def pytest_sessionstart() -> None:
    """Have nodes forked, and not started anew, where the system can do that."""
    if forked_nodes.can_be():
        ManagedProcess.launcher = forked_nodes.ForkedNodes()


def pytest_sessionfinish() -> None:
    """End what they are forked from."""
    if isinstance(ManagedProcess.launcher, forked_nodes.ForkedNodes):
        ManagedProcess.launcher.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests that are collected, neither then nor later.

    All of them stay until the end. To look through them takes a sixth of the time of collecting them, and half a second
    each time that a test has garbage collected.
    """
    try:
        with uncollected():
            return (yield)
    finally:
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Scale the longest time that a test may take, unless the command line says how long that is."""
    if config.getoption("timeout") is not None:
        return
    usual = float(config.getini("timeout"))
    for item in items:
        own = item.get_closest_marker("timeout")
        seconds = float(own.args[0]) if own is not None else usual
        item.add_marker(pytest.mark.timeout(times.scaled(seconds)), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell the factor, by which a failure may be understood."""
    factor = times.scale(processes=config.getoption("numprocesses", None) or 1)
    terminalreporter.write_line(
        f"Real times in tests were {factor:g} times those of a quiet machine ({times.SCALE_VARIABLE} sets this)"
    )


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Vouch for the certificates of a test run."""
    folder: Path = tmp_path_factory.mktemp("authority")
    return Authority(folder)
