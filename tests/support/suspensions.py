"""Something happens where a coroutine waits: how a node is killed at every await of a use case."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Watched(Generic[T]):
    """Awaits a coroutine, and tells each time that it is about to wait.

    Args:
        coroutine: what is awaited, by the task that awaits this.
        about_to_wait: called each time, before others get their turn.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], about_to_wait: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._about_to_wait = about_to_wait

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._coroutine.__await__()
        step: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731 - it is exchanged below
        while True:
            try:
                waited_for = step()
            except StopIteration as done:
                result: T = done.value
                return result
            self._about_to_wait()
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001 - whatever is thrown in is the coroutine's
                thrown = error
                step = lambda: steps.throw(thrown)  # noqa: B023, E731 - called before the next turn
            else:
                step = lambda: steps.send(None)  # noqa: E731


class Suspensions:
    """Counts where coroutines wait, and does something at one of these places.

    Args:
        at: which, from 1; 0 for none, so that they are only counted.
        act: what is done there, once.

    Attributes:
        count: how often they have waited.
    """

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self._at = at
        self._act = act
        self.count = 0

    def watched(self, function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Awaitable[T]]:
        """Return a function like another one, whose coroutines are watched."""

        async def call(*arguments: Any, **named: Any) -> T:
            return await Watched(function(*arguments, **named), self._about_to_wait)

        return call

    def _about_to_wait(self) -> None:
        self.count += 1
        if self.count == self._at:
            self._act()


class Places:
    """Notes at which places of the code coroutines wait, and does something when the first of them waits at one.

    What polls waits a hundred times at one place, and how often depends on the machine; the places do not.

    Args:
        at: the place; None for none, so that they are only noted.
        act: what is done there, once.

    Attributes:
        seen: the places, in the order in which somebody first waited there: functions and lines, the inner ones last.
        has_acted: whether it was done.
    """

    def __init__(self, at: str | None, act: Callable[[], None]) -> None:
        self._at = at
        self._act = act
        self.seen: dict[str, None] = {}
        self.has_acted = False

    def watched(self, function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """Return a function like another one, whose coroutines are watched."""

        async def call(*arguments: Any, **named: Any) -> T:
            coroutine = function(*arguments, **named)
            return await Watched(coroutine, lambda: self._about_to_wait(place_of(coroutine)))

        return call

    def _about_to_wait(self, place: str) -> None:
        self.seen.setdefault(place)
        if place == self._at and not self.has_acted:
            self.has_acted = True
            self._act()


def place_of(coroutine: object) -> str:
    """Tell where a coroutine waits: its function and line, and those of the coroutines that it awaits."""
    found: list[str] = []
    while inspect.iscoroutine(coroutine):
        frame = coroutine.cr_frame
        if frame is not None:
            found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return " > ".join(found)
