"""JSON of strangers, read without benefit of the doubt."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

MOST_DEPTH: Final = 32
"""Arrays and objects within each other: more than any token or answer has, and far from the interpreter's limit."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _no_constant(_text: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def read_object(data: bytes | str) -> dict[str, Any]:
    """Read one JSON object.

    Two readers of the same bytes must not see different values: a name that occurs twice, ``NaN`` and ``Infinity`` are
    refused, and so is what nests too deeply.

    Raises:
        ValueError: it is none; the message repeats nothing of it.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        # What the standard library says may quote the text.
        raise ValueError("it is not JSON, or has a name twice in an object") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - the text is wrong, and no argument
    _check_depth(found)
    return found


def _check_depth(found: dict[str, Any]) -> None:
    level: list[Any] = [found]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it nests more than {MOST_DEPTH} deep")
