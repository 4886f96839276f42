"""The event log: structlog behind the port, without anything global, so that two nodes fit into one process."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.adapters.logging.line_writer import LineWriter
from gateway.adapters.logging.redaction import redact_fields
from gateway.catalogue.log_event import Level, LogEvent
from gateway.catalogue.log_events import LOG_EVENTS, LOG_LINES_DROPPED

Format = Literal["auto", "console", "json"]

_CATALOGUE: Final = frozenset(LOG_EVENTS)

URGENT: Final = Level.WARNING
"""From this severity on an event is written at once: it may be the last thing that a process says."""

_BUG: Final = "_bug"
"""Marks events whose error deserves a traceback; removed before rendering."""

_LEVELS: Final = {level: level.name.lower() for level in Level}

_INVISIBLE: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters beyond ASCII, separators of lines, and what turns the direction of text."""

_CONTROL: Final = re.compile(rf"[\x00-\x1f{_INVISIBLE}]")
"""What a terminal may obey."""

_CONTROL_IN_LINES: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_INVISIBLE}]")
"""The same of a text of several lines."""

_UNESCAPED: Final = re.compile(rf"[{_INVISIBLE}]")
"""What JSON may hold as it is, and viewers of logs take for the end of a line or obey."""

_BAR: Final = "  | "
"""Before each line of a traceback: whatever a message says in its second line, it is no event of its own."""


class StructuredEventLog:
    """Writes events of the catalogue; implements ``gateway.ports.EventLog``.

    Each event is one line: ``time`` (RFC 3339, UTC, microseconds), ``level``, ``event`` (its name), ``node``, and the
    event's own fields. Secrets are masked whatever the field (P8).
    """

    def __init__(
        self,
        *,
        node: str,
        format: Format = "auto",  # noqa: A002 - the word of the setting
        level: Level = Level.INFO,
        stream: TextIO | None = None,
        strict: bool = False,
    ) -> None:
        """Start writing.

        Args:
            node: bound to every event.
            format: console for people, json for machines, auto for console on a terminal.
            level: the least severe events that are written.
            stream: where to; standard output by default.
            strict: for tests: raise on an event or field that the catalogue does not declare.
        """
        stream = sys.stdout if stream is None else stream
        self._level = level
        self._strict = strict
        self._writer = LineWriter(stream)
        terminal = stream.isatty()
        console = format == "console" or (format == "auto" and terminal)
        render: Iterable[Processor] = (
            (_stamp_text, _escape_controls, _render_console(colours=terminal)) if console else (_stamp, _render_json)
        )
        # The empty fields take the first places in each line, so that logs are easy on the eye even raw.
        places = {"time": "", "level": "", "node": node, "event": ""}
        self._renderer = _Renderer(None, [_explain_error, redact_fields, *render], places)

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """Log *event* with its fields; never raises and never blocks (unless ``strict``: then misuse raises).

        Raises:
            ValueError: only if ``strict``: the catalogue does not declare the event or exactly these fields.
        """
        if self._strict:
            _check(event, fields)
        if event.level < self._level:
            return
        if dropped := self._writer.take_dropped():
            self._write(LOG_LINES_DROPPED, {"lines": dropped})
        self._write(event, fields)

    @property
    def dropped_lines(self) -> int:
        """Lines that are missing in all, because whoever reads the log was too slow."""
        return self._writer.dropped

    def close(self) -> None:
        """Write what is left; bounded in time even if nobody reads."""
        self._writer.close()

    def _write(self, event: LogEvent, fields: dict[str, object]) -> None:
        try:
            line = self._renderer.render(event, fields)
        except Exception as error:  # noqa: BLE001 - a value that cannot be shown must not hurt whoever logs it
            line = self._renderer.render(event, {"unloggable": f"{type(error).__name__} in {sorted(fields)}"})
        self._writer.write(line, urgent=event.level >= URGENT)


class _Renderer(structlog.BoundLoggerBase):
    """Runs an event through the processors and returns its line."""

    def render(self, event: LogEvent, fields: Mapping[str, object]) -> str:
        level = _LEVELS[event.level]
        (line,), _ = self._process_event(level, event.name, {"level": level, _BUG: event.bug, **fields})
        return str(line)


def _explain_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turn an exception into its type and message, with its traceback if it is a bug."""
    bug = event.pop(_BUG, False)
    error = event.get("error")
    if isinstance(error, BaseException):
        event["error"] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if bug:
            event["exception"] = "".join(traceback.format_exception(error)).rstrip()
    return event


def _stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Note the time, for a renderer that knows how to write it."""
    event["time"] = datetime.now(UTC)
    return event


def _stamp_text(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Note the time as text."""
    event["time"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return event


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    line = orjson.dumps(event, option=orjson.OPT_UTC_Z).decode("utf-8")
    # Only texts can hold such characters, and there \u means what it says.
    return line if line.isascii() and "\x7f" not in line else _UNESCAPED.sub(_as_json, line)


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def _escape_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep what clients send from steering a terminal or forging lines."""
    for name, value in event.items():
        if not isinstance(value, str):
            continue  # written as Python writes it, with escapes
        if name == "exception":
            lines = _CONTROL_IN_LINES.sub(_as_escape, value).split("\n")
            event[name] = "\n".join(f"{_BAR}{line}" for line in lines)
        else:
            event[name] = _CONTROL.sub(_as_escape, value)
    return event


def _as_escape(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")


def _render_console(*, colours: bool) -> Processor:
    return structlog.dev.ConsoleRenderer(colors=colours, timestamp_key="time", sort_keys=False, pad_event_to=24)


def _check(event: LogEvent, fields: dict[str, object]) -> None:
    if event not in _CATALOGUE:
        raise ValueError(f"the event {event.name} is not in the catalogue")
    if set(fields) != set(event.fields):
        raise ValueError(f"{event.name} carries {sorted(event.fields)}, not {sorted(fields)}")
