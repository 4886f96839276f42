"""Lists that are told part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list.

    Attributes:
        items: those of this page; may be few or none though more follow, because a page also ends after so much work.
        cursor: where the next page begins, opaque; None if this was the last.
    """

    items: Sequence[T]
    cursor: str | None
