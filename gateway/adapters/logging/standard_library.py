"""Brings what libraries log through ``logging`` into the event log, so that a node writes one kind of line."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from gateway.catalogue.log_events import LIBRARY_FAILED, LIBRARY_WARNED
from gateway.ports import EventLog


class _Bridge(logging.Handler):
    """Turns log records into events of the catalogue."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._format = logging.Formatter("%(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        """Log *record*; its traceback, if any, goes along."""
        event = LIBRARY_FAILED if record.levelno >= logging.ERROR else LIBRARY_WARNED
        try:
            message = self._format.format(record)
        except Exception:  # noqa: BLE001 - a library's malformed record is no reason to raise in whoever logs it
            message = str(record.msg)
        self._log.emit(event, logger=record.name, message=message)


def capture_standard_library(log: EventLog) -> Callable[[], None]:
    """Send warnings and errors of libraries (asyncio, aiohttp, redis) to *log* instead of standard error.

    This touches the process's root logger, so it belongs into the main program of a node and nowhere else.

    Returns:
        A function that puts everything back.
    """
    root = logging.getLogger()
    before_handlers, before_level = root.handlers[:], root.level
    bridge = _Bridge(log)
    root.handlers[:] = [bridge]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    show = warnings.showwarning

    def restore() -> None:
        if warnings.showwarning is show:
            logging.captureWarnings(capture=False)
        root.handlers[:] = before_handlers
        root.setLevel(before_level)

    return restore
