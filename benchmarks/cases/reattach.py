"""All sockets are cut, the node lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import Target
from benchmarks.storm.case import StormCase, all_recovered, at_most

_NAME: Final = "reattach"


class ReattachCase(StormCase):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Reattach storm"
    about: ClassVar[str] = (
        "All sockets of 2,000 sessions are cut and two of the three topics of each change; all come back at once "
        "through HAProxy to the node that keeps their buffers. Socket.IO (no HAProxy) recovers what it has saved in "
        "Redis."
    )
    targets: ClassVar[Sequence[Target]] = (
        at_most(_NAME, "reattach, CPU per session, all processes: at most 2 handshakes", 2.0),
        all_recovered(_NAME),
    )
