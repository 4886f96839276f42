"""All sockets are cut, the node lives, and another one serves the sessions from now on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Target
from benchmarks.storm.case import BARE, SESSIONS, StormCase, all_recovered
from benchmarks.storm.scenarios import HANDED_OVER_AT_ONCE

_NAME: Final = "handoff"
VARIANT: Final = f"{SESSIONS:,} sessions, {HANDED_OVER_AT_ONCE} at once"


class HandoffCase(StormCase):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Handoff storm"
    about: ClassVar[str] = (
        "All sockets of 2,000 sessions are cut and two of the three topics of each change; all come through HAProxy to "
        "the other node, some at a time, which takes each session, with its buffers, from the one that has served it, "
        "over a link with TLS. The CPU of both nodes is counted."
    )
    variant: ClassVar[str] = VARIANT
    contestants: ClassVar[Sequence[str]] = (OURS, BARE)
    apart: ClassVar[str] = "the published run is older than it"
    targets: ClassVar[Sequence[Target]] = (all_recovered(_NAME, VARIANT),)
