"""What models have in common: what goes in is checked by them, what goes out is described by them.

Their docstrings and descriptions are read by users of the API.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

MOST_ITEMS: Final = 1000
"""Most items of a page: some hundred KB of sessions."""

DEFAULT_ITEMS: Final = 100
"""Items of a page if nobody asks for another number."""

Cursor = Annotated[
    str,
    Field(min_length=1, max_length=4096, pattern="^[A-Za-z0-9_-]+$", description="The `cursor` of the page before."),
]


def _plain_number(given: object) -> object:
    """Take numbers as JSON writes them: no blanks, signs or underscores, which the document does not promise."""
    if isinstance(given, str) and not (given.isascii() and given.isdigit()):
        raise PydanticCustomError("number", "must be a number, written in digits alone")
    return given


def _plain_switch(given: object) -> object:
    """Take ``true`` and ``false``, and no other words for it."""
    if isinstance(given, str) and given not in {"true", "false"}:
        raise PydanticCustomError("switch", "must be true or false")
    return given


Switch = Annotated[bool, BeforeValidator(_plain_switch)]
PlainNumber: Final = BeforeValidator(_plain_number)
Limit = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="Most items of the page."), PlainNumber]


class Given(BaseModel):
    """Anything that a caller gives: what is not known is refused, because it would be silently ignored else."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Told(BaseModel):
    """Anything that is answered."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)


class PageQuery(Given):
    """Which page."""

    limit: Limit = DEFAULT_ITEMS
    cursor: Cursor | None = None
