"""When an event was published, of a stream that does not say so.

An entry of a stream has no time: most clusters have no links, and those pay nothing for what only links ask. Where
there are links, it is noted now and then how far a stream has come. An event that lies before a place so noted was
published no later than then. That is what values are stamped with (``stamps``), however late they leave.

Notes get sparser as they get older: of an event that was published some time ago the time is too late by a small part
of its age, or by the time between two notes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from gateway.core.zones.stamps import StreamPlace

MOST_TIMES: Final = 128
"""Notes of a stream: 3 KiB. An event is dated too late by a tenth of its age then, or by some seconds."""


class StreamTimes:
    """Of one stream."""

    def __init__(self) -> None:
        self._notes: list[tuple[StreamPlace, int]] = []
        """Places and times, both rising."""

    def note(self, place: StreamPlace, now: int) -> None:
        """Note how far the stream has come.

        If there are too many notes then, the one is dropped that is missed least: the shorter the time between its
        neighbours beside their age. The oldest one stays, as all before it has its time from there.

        Args:
            place: of the last event; nothing is noted if it is the last one noted.
            now: in milliseconds since 1970.
        """
        notes = self._notes
        if notes and place <= notes[-1][0]:
            return
        notes.append((place, max(now, notes[-1][1]) if notes else now))
        if len(notes) > MOST_TIMES:
            now = notes[-1][1]
            del notes[min(range(1, len(notes) - 1), key=lambda at: _missed(notes[at - 1][1], notes[at + 1][1], now))]

    def time_of(self, place: StreamPlace, now: int) -> int:
        """Tell the time by which an event had been published, in milliseconds since 1970.

        It does not fall: as notes are dropped, it may rise, and never beyond *now*.

        Args:
            place: of the event.
            now: the time for an event that is behind all notes.
        """
        at = bisect_left(self._notes, place, key=lambda each: each[0])
        return self._notes[at][1] if at < len(self._notes) else now


def _missed(before: int, after: int, now: int) -> float:
    return (after - before) / (now - before + 1)
