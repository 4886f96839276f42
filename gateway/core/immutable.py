"""Values that nobody changes, as the type checker sees to it, and that are made fast.

``@dataclass(frozen=True)`` sees to it while the program runs, too: each field is then set by a call of its own, past
what forbids it, and a value of twenty fields takes more than twice as long to make. Some values are made for every
client that comes back, ten thousand at once after a node's death. For those it is enough that mypy refuses whoever
changes one (ADR 0148).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def immutable(cls: type[T], /) -> type[T]: ...


@overload
def immutable(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a dataclass with slots, equality and a hash, whose fields the type checker keeps from being set.

    Args:
        cls: the class.
        kw_only: whether its fields are given by name alone.
    """
    make = dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
    return make if cls is None else make(cls)
