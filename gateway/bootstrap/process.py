"""The process of a node: signals, exit codes, and what its service manager is told."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.adapters.admin import TokensFileError
from gateway.adapters.destination_file import DestinationFileError
from gateway.adapters.logging import capture_standard_library
from gateway.adapters.policy import PolicyFileError
from gateway.adapters.service_manager import Systemd
from gateway.bootstrap.assembly import Gateway
from gateway.bootstrap.descriptors import raise_limit
from gateway.bootstrap.parts import event_log
from gateway.garbage import collect_seldom
from gateway.ports import ServiceManager
from gateway.settings import ConfigurationError, Settings

REPORT_INTERVAL: Final = 5.0
"""Seconds between two looks at the status: what people see need not be newer."""

WATCHDOG_SHARE: Final = 3
"""Signs of life within the time after which the node counts as hung: two may come late."""


async def report(manager: ServiceManager, status: Callable[[], str]) -> None:
    """Report for ever.

    Args:
        manager: who is told.
        status: how the node is, in one line.
    """
    interval = REPORT_INTERVAL if manager.watchdog is None else min(REPORT_INTERVAL, manager.watchdog / WATCHDOG_SHARE)
    told = ""
    while True:
        if manager.watchdog is not None:
            manager.alive()
        text = status()
        if text != told:
            told = text
            manager.status(text)
        await asyncio.sleep(interval)


EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2
"""Exit codes, as of the command line: something failed; something has to be corrected first."""


async def _serve(settings: Settings) -> int:
    log = event_log(settings)
    manager = Systemd(os.environ)
    restore = capture_standard_library(log)
    reload_asked = asyncio.Event()
    # From the first moment on: a node that is asked to read its files again while it starts must not die of it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload_asked.set)
    try:
        gateway = Gateway(settings, log=log, descriptors=raise_limit())
        await gateway.start()
        collect_seldom()
    except (
        ConfigurationError,
        PolicyFileError,
        DestinationFileError,
        TokensFileError,
    ) as error:
        return _complain(error, exit_code=EXIT_CONFIGURATION)
    except OSError as error:
        return _complain(error, exit_code=EXIT_FAILED)
    else:
        await _until_stopped(gateway, manager, reload_asked)
        return 0
    finally:
        restore()
        log.close()


def _complain(error: Exception, *, exit_code: int) -> int:
    for line in str(error).splitlines():
        print(f"gateway: error: {line}", file=sys.stderr)  # noqa: T201 - whoever starts a node looks here, not into a log
    return exit_code


async def _until_stopped(gateway: Gateway, manager: ServiceManager, reload_asked: asyncio.Event) -> None:
    """Serve until the first signal to stop, then drain until that is done or the second signal comes.

    Args:
        gateway: has been started.
        manager: is told how it fares.
        reload_asked: set if a reload was asked for before the node could do it; the files may have been read already.
    """
    loop = asyncio.get_running_loop()
    stop, now = asyncio.Event(), asyncio.Event()

    def on_stop() -> None:
        (now if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_stop)

    def on_reload() -> None:
        manager.reloading()
        gateway.reload()
        manager.ready()

    loop.add_signal_handler(signal.SIGHUP, on_reload)
    manager.ready()
    if reload_asked.is_set():
        on_reload()
    reports = asyncio.create_task(report(manager, gateway.status), name="service-manager")
    await stop.wait()
    manager.stopping()
    drain = asyncio.create_task(gateway.drain())
    impatience = asyncio.create_task(now.wait())
    try:
        await asyncio.wait([drain, impatience], return_when=asyncio.FIRST_COMPLETED)
        for task in (drain, impatience):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    finally:
        # Also when the drain met a bug: clients are told, and what was started for the grid is finished.
        await gateway.close()
        reports.cancel()


def run(settings: Settings) -> int:
    """Run a node until SIGTERM or Ctrl-C, which drain it; a second one stops it at once.

    Returns:
        The exit code of the process.
    """
    if settings.uvloop:
        with suppress(ImportError):
            import uvloop  # noqa: PLC0415 - optional, and only wanted here

            return uvloop.run(_serve(settings))
    return asyncio.run(_serve(settings))
