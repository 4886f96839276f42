"""Where things are in bronze, and under which hour an event is filed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pipeline.bronze.files import write_whole

SECOND: Final = 1_000_000
"""Microseconds."""

HOUR: Final = 3600 * SECOND

DAY: Final = 24 * HOUR

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of bronze.

    Attributes:
        root: ``<lake>/bronze``.
    """

    root: Path

    @property
    def log(self) -> Path:
        """One file for each commit."""
        return self.root / "_log"

    @property
    def rejected(self) -> Path:
        """What could not be an event."""
        return self.root / "_rejected"

    def staging(self, job: str) -> Path:
        """Where a job prepares files: on the same file system, so that they can be moved in one step."""
        return self.root / "_staging" / job

    @property
    def _kept_from(self) -> Path:
        return self.log / "kept-from"

    def kept_from(self) -> int:
        """Tell the hour from which on all is kept, in hours since 1970; 0 if nothing was ever removed.

        Of earlier ones retention may have removed some.
        """
        try:
            return int(self._kept_from.read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def keep_from(self, hour: int) -> None:
        """Note from which hour on all is kept, before any earlier one is removed; it never goes back.

        Args:
            hour: in hours since 1970.
        """
        if hour > self.kept_from():
            write_whole(self._kept_from, str(hour).encode())

    def whole_from(self) -> date:
        """Tell the first day (UTC) of which retention has removed nothing."""
        hours = self.kept_from()
        return (_EPOCH + timedelta(days=-(-hours // 24))).date() if hours else date.min

    def is_kept(self, folder: Path) -> bool:
        """Tell whether nothing can have been removed of an hour by retention."""
        hour = hour_of(folder)
        return hour is None or hour >= self.kept_from()

    def hours(self) -> list[Path]:
        """The folders of all hours that there are, in order."""
        return sorted(self.root.glob("date=*/hour=*"))


def bronze_of(lake: Path) -> Layout:
    """Tell where bronze is in a lake."""
    return Layout(lake.absolute() / "bronze")


def no_events(lake: Path) -> str:
    """Say that a lake has no bronze, and what to do."""
    return f"there are no events in {bronze_of(lake).root}; run `pipeline ingest` first, or name another lake"


def hour_folder(hour: int) -> str:
    """Name the folder of an hour.

    Args:
        hour: hours since 1970.
    """
    at = _EPOCH + timedelta(hours=hour)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"


def hour_of(folder: Path) -> int | None:
    """Read the hour, in hours since 1970, that a folder is named after; None if it is not so named."""
    day, hour = folder.parent.name.removeprefix("date="), folder.name.removeprefix("hour=")
    try:
        at = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC) + timedelta(hours=int(hour))
    except ValueError:
        return None
    return int((at - _EPOCH) // timedelta(hours=1))


def day_of(instant: int) -> str:
    """Write the day (UTC) of an instant.

    Args:
        instant: microseconds since 1970.
    """
    return f"{_EPOCH + timedelta(microseconds=instant):%Y-%m-%d}"
