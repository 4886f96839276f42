"""The little of gevent that the load generator uses, with types: gevent has none.

Nothing here patches the standard library. Locust does that when it is imported, before any socket is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import gevent  # type: ignore[import-untyped]
import gevent.event  # type: ignore[import-untyped]

_T = TypeVar("_T")

sleep: Final[Callable[[float], None]] = gevent.sleep
"""Let other greenlets run for some seconds."""


class Greenlet:
    """Something that runs beside its starter; see ``spawn`` and ``later``."""

    __slots__ = ("_greenlet",)

    def __init__(self, greenlet: Any) -> None:
        self._greenlet = greenlet

    def kill(self) -> None:
        """Have it end at its next wait; does not wait for that, and no effect if it has ended."""
        self._greenlet.kill(block=False)

    def finished(self) -> bool:
        """Tell whether it has ended, well or not."""
        return bool(self._greenlet.ready())

    def error(self) -> BaseException | None:
        """Return what it ended with, or None."""
        error: BaseException | None = self._greenlet.exception
        return error

    def join(self, seconds: float | None = None) -> bool:
        """Wait for its end; False if it has not come in time."""
        self._greenlet.join(timeout=seconds)
        return self.finished()


def spawn(work: Callable[..., object], *arguments: object) -> Greenlet:
    """Run something beside the caller, from the next turn of the loop on."""
    return Greenlet(gevent.spawn(work, *arguments))


def later(seconds: float, work: Callable[..., object], *arguments: object) -> Greenlet:
    """Run something after some time; ``kill`` calls it off."""
    return Greenlet(gevent.spawn_later(max(0.0, seconds), work, *arguments))


class Flag:
    """Something that greenlets wait for."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = gevent.event.Event()

    def set(self) -> None:
        """Let everybody who waits go on."""
        self._event.set()

    def clear(self) -> None:
        """Have those who wait from now on wait."""
        self._event.clear()

    def is_set(self) -> bool:
        """Tell whether nobody has to wait."""
        return bool(self._event.is_set())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait; False if the time is over before."""
        return bool(self._event.wait(timeout=seconds))


class Outcome(Generic[_T]):
    """A value, or an error, that will be there once; the first one counts. An ``Answer`` of the shell."""

    __slots__ = ("_result",)

    def __init__(self) -> None:
        self._result = gevent.event.AsyncResult()

    def done(self) -> bool:
        """Tell whether it is there."""
        return bool(self._result.ready())

    def set_result(self, value: _T, /) -> None:
        """Give the value."""
        if not self.done():
            self._result.set(value)

    def set_exception(self, error: Exception, /) -> None:
        """Give an error in its place."""
        if not self.done():
            self._result.set_exception(error)

    def get(self, seconds: float | None = None) -> _T:
        """Wait for it.

        Raises:
            TimeoutError: it did not come in time.
            Exception: the one that was given.
        """
        with limited(seconds):
            value: _T = self._result.get()
            return value


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Limit the time of what is waited for in the block; None for no limit.

    Raises:
        TimeoutError: the time is over.
    """
    timeout = gevent.Timeout(seconds)
    timeout.start()
    try:
        yield
    except gevent.Timeout as over:
        if over is not timeout:
            raise
        raise TimeoutError(f"not within {seconds:g} s") from None
    finally:
        timeout.close()
