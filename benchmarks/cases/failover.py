"""The node is killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Reference, Target
from benchmarks.storm.case import STORE_SHARE, VARIANT, StormCase, all_recovered, at_most

_NAME: Final = "failover"


class FailoverCase(StormCase):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Failover storm"
    about: ClassVar[str] = (
        "The node of 2,000 sessions is killed and two of the three topics of each change; all come back at once "
        "through HAProxy and are served by the other node, whose CPU is counted. Socket.IO (no HAProxy): likewise, by "
        "its adapter."
    )
    targets: ClassVar[Sequence[Target]] = (
        at_most(_NAME, "failover, CPU per session, all processes: at most 2.5 handshakes", 2.5),
        Target(
            "failover: Redis CPU below a fifth of the gateway's",
            Reference(_NAME, VARIANT, OURS, STORE_SHARE.name),
            None,
            factor=20.0,
            at_least=False,
        ),
        all_recovered(_NAME),
    )
