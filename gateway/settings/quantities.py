"""Kinds of settings that are amounts: numbers, durations, bytes, rates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from gateway.settings.errors import Unfit
from gateway.settings.kinds import Kind, text_of

T = TypeVar("T")

SECONDS_PER_HOUR: Final = 3600


def _between(low: float | None, high: float | None, show: str) -> str:
    if low is not None and high is not None:
        return f" between {low:{show}} and {high:{show}}"
    if low is not None:
        return f", at least {low:{show}}"
    return "" if high is None else f", at most {high:{show}}"


def _check_range(value: float, low: float | None, high: float | None) -> None:
    if low is not None and value < low:
        raise Unfit("is too small")
    if high is not None and value > high:
        raise Unfit("is too large")


@dataclass(frozen=True, slots=True)
class Whole(Kind[int]):
    """A whole number.

    Attributes:
        counted: what is counted.
        low: least value.
        high: greatest value.
    """

    counted: str
    low: int = 1
    high: int | None = None
    metavar: ClassVar[str] = "NUMBER"

    @property
    def unit(self) -> str:
        """See the base class."""
        return self.counted

    @property
    def domain(self) -> str:
        """See the base class."""
        return f"{self.counted}{_between(self.low, self.high, ',')}"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return f"a whole number{_between(self.low, self.high, ',')}"

    def read(self, raw: object) -> int:
        """See the base class."""
        if isinstance(raw, int) and not isinstance(raw, bool):
            value = raw
        else:
            match = re.fullmatch(r"[+-]?[0-9]{1,18}", text_of(raw).replace("_", "")) if isinstance(raw, str) else None
            if match is None:
                raise Unfit("is not a whole number")
            value = int(match.group())
        _check_range(value, self.low, self.high)
        return value


class _Scaled(Kind[T]):
    """A number that may carry one of several units."""

    __slots__ = ()
    units: ClassVar[dict[str, int | float]]
    complaint: ClassVar[str]

    @classmethod
    def measure(cls, raw: object) -> float:
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            number, unit = float(raw), ""
        else:
            match = re.fullmatch(
                r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", raw.strip() if isinstance(raw, str) else ""
            )
            if match is None or match.group(2) not in cls.units:
                raise Unfit(cls.complaint)
            number, unit = float(match.group(1)), match.group(2)
        if not math.isfinite(number):
            raise Unfit(cls.complaint)
        return number * cls.units[unit]


@dataclass(frozen=True, slots=True)
class Seconds(_Scaled[float]):
    """A duration; plain numbers are seconds.

    Attributes:
        low: least value, in seconds.
        high: greatest value, in seconds.
    """

    low: float = 0.0
    high: float | None = None
    metavar: ClassVar[str] = "SECONDS"
    units: ClassVar[dict[str, int | float]] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": SECONDS_PER_HOUR, "d": 86400}
    complaint: ClassVar[str] = "is not a duration"

    @property
    def unit(self) -> str:
        """See the base class."""
        return "seconds"

    @property
    def domain(self) -> str:
        """See the base class."""
        return f"seconds{_between(self.low, self.high, ',.10g')}"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return f'{self.domain}, or a text such as "250ms", "90s", "5m" or "24h"'

    def read(self, raw: object) -> float:
        """See the base class."""
        value = self.measure(raw)
        _check_range(value, self.low, self.high)
        return value

    def show(self, value: float) -> str:
        """See the base class."""
        if value > SECONDS_PER_HOUR and value % SECONDS_PER_HOUR == 0:
            return f"{value / SECONDS_PER_HOUR:.10g} h"
        return f"{value * 1000:.10g} ms" if 0 < value < 1 else f"{value:.10g} s"


@dataclass(frozen=True, slots=True)
class Bytes(_Scaled[int]):
    """An amount of memory.

    Attributes:
        low: least value, in bytes.
        high: greatest value, in bytes.
    """

    low: int = 1
    high: int | None = None
    metavar: ClassVar[str] = "BYTES"
    units: ClassVar[dict[str, int | float]] = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
    complaint: ClassVar[str] = "is not an amount of bytes"

    @property
    def unit(self) -> str:
        """See the base class."""
        return "bytes"

    @property
    def domain(self) -> str:
        """See the base class."""
        return f"bytes{_between(self.low, self.high, ',')}"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return f'{self.domain}, or a text such as "64KiB" or "1MiB"'

    def read(self, raw: object) -> int:
        """See the base class."""
        value = self.measure(raw)
        if value % 1:
            raise Unfit("is not a whole number of bytes")
        _check_range(value, self.low, self.high)
        return int(value)

    def show(self, value: int) -> str:
        """See the base class."""
        for suffix in ("GiB", "MiB", "KiB"):
            size = int(self.units[suffix])
            if value and value % size == 0:
                return f"{value // size} {suffix}"
        return str(value)


@dataclass(frozen=True, slots=True)
class Rate(Kind[float]):
    """How many of something per second.

    Attributes:
        counted: what is counted.
        low: least value.
    """

    counted: str
    low: float = 0.0
    metavar: ClassVar[str] = "RATE"

    @property
    def unit(self) -> str:
        """See the base class."""
        return f"{self.counted} per second"

    @property
    def domain(self) -> str:
        """See the base class."""
        return f"{self.unit}{_between(self.low, None, ',.10g')}"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return f"a number{_between(self.low, None, ',.10g')}"

    def read(self, raw: object) -> float:
        """See the base class."""
        if isinstance(raw, bool):
            raise Unfit("is not a number")
        try:
            value = float(raw if isinstance(raw, (int, float)) else text_of(raw))
        except ValueError:
            raise Unfit("is not a number") from None
        if not math.isfinite(value):
            raise Unfit("is not a finite number")
        _check_range(value, self.low, None)
        return value

    def show(self, value: float) -> str:
        """See the base class."""
        return f"{value:.10g}"
