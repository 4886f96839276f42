"""All that is known of one session, in a form that a state store can keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from pipeline.sessions.facts import Fact

_FORMAT: Final = 1
"""The first item of what is kept. Facts only ever gain values at their end, which needs no new number."""


class SessionState:
    """The set of facts that are known of one session.

    To add is commutative, associative and idempotent: in which order, how often and in how many pieces facts arrive
    makes no difference. It grows with the row that is made of it, by one fact for each way in which a connection begins
    or ends, and one for each refused resume.
    """

    __slots__ = ("_facts",)

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._facts: dict[tuple[str, int], Fact] = {}
        for each in facts:
            self.add(each)

    def __len__(self) -> int:
        return len(self._facts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def add(self, new: Fact) -> bool:
        """Take a fact in.

        Returns:
            Whether it was not known.
        """
        known = len(self._facts)
        self._facts.setdefault((new.incarnation, new.number), new)
        return len(self._facts) > known

    def encode(self) -> bytes:
        """Write it for a state store; the same facts are the same bytes."""
        return orjson.dumps([_FORMAT, *(_shorten(each) for _, each in sorted(self._facts.items()))])

    @classmethod
    def decode(cls, kept: bytes) -> SessionState:
        """Read what ``encode`` wrote, of this release or an older one.

        Raises:
            ValueError: it is of a newer one.
        """
        form, *facts = orjson.loads(kept)
        if form != _FORMAT:
            raise ValueError(
                f"the state of a session was written in format {form}, and this release reads {_FORMAT}: run the "
                "release that wrote it, or remove the checkpoint and run `pipeline backfill`"
            )
        return cls(Fact(*values) for values in facts)


def _shorten(known: Fact) -> list[object]:
    values: list[object] = list(known)
    while values[-1] is None:
        values.pop()
    return values
