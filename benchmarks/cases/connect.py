"""New sessions, all at once."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.storm.case import StormCase


class ConnectCase(StormCase):
    """See ``about``."""

    name: ClassVar[str] = "connect"
    title: ClassVar[str] = "Connect storm"
    about: ClassVar[str] = (
        "2,000 new sessions at once through HAProxy: hello, three selections, their snapshots. For Socket.IO (no "
        "HAProxy) connect and three subscriptions."
    )
