"""Where and when a client connects next, and when it gives up: decisions only, without I/O, clock or randomness.

```text
                 next ──► NextAttempt(delay, url) ──► tried ──► connected ──► … ──► lost ─┐
                  ▲                                      └────► failed ─┐                 │
                  └─────────────────────────────────────────────────────┴─────────────────┘
                 next ──► an error: the session, or the opening of one, has failed for good
```

* Delays come from ``core.pacing.backoff``: full jitter, also before the first retry.
* URLs are tried in turn, beginning with the one that worked last. Those that the user gave come first, then those that
  the cluster lists, which come and go. Who is asked to go to a node that is listed goes straight there.
* The route hint (the node that served the session last) goes into the URL, so that a load balancer finds the node that
  still holds the buffers; behind it the node that has a copy of them, if there is one. Both are left out after the node
  asked to go away. Once a node did not answer at all, its hint is left out: nobody waits until a load balancer has
  noticed that a node hangs. First that is the node that served the session, then its backup.
* The window counts from the moment the connection was lost, and is the shorter one of the client's and the node's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.core.client.endings import Ending
from gateway.core.client.errors import (
    ConnectFailed,
    GatewayError,
    SessionClosed,
    SessionEnded,
    SessionExpired,
    SessionFailed,
    SessionRefused,
    Unauthenticated,
)
from gateway.core.client.urls import discovered_urls, with_hints
from gateway.core.pacing.backoff import LEAST_BOUND, ReconnectBackoff
from gateway.core.types import NodeId
from gateway.core.wire.codes import (
    GOING_AWAY,
    MESSAGE_TOO_BIG,
    NORMAL,
    PROTOCOL_ERROR,
    REVOKED,
    SESSION_CLOSED,
    SESSION_EXPIRED,
    UNAUTHENTICATED,
    ErrorCode,
    Reconnect,
)
from gateway.core.wire.packets import Backoff
from gateway.core.wire.topology_packets import MOST_REDIRECTS, Cluster, ListedNode

MAX_VIOLATIONS: Final = 2
"""Connections in a row that end with a broken protocol until the session is given up (protocol 8.2). One may be a
proxy's doing; two are a bug, and going on for ever would hide it."""

_NODE_SAYS_BUG: Final = frozenset({PROTOCOL_ERROR.code, MESSAGE_TOO_BIG.code, 1002, 1003, 1007})
"""Close codes with which a node says that this client broke the protocol; the session is kept for its window."""


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """Try to connect.

    Attributes:
        delay: seconds to wait before.
        url: where to, with the route hints.
    """

    delay: float
    url: str


class ReconnectPlan:
    """The plan of one session; see the module.

    Args:
        urls: as ``check_urls`` returned them.
        connect_timeout: seconds within which the session must be opened.
        window: seconds without a connection after which this client gives up, or None to leave that to the node.
        now: the time at which opening begins.
        discover: whether to use the URLs that the cluster lists.

    Attributes:
        attempts: connections tried since the last loss, or since the beginning.
        urls: where to connect: as given, and as the cluster lists them.
        redirects: times in a row that it was sent to the master, and did not get there; the most, if that was not to be
            reached.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        connect_timeout: float,
        window: float | None,
        now: float,
        discover: bool = True,
    ) -> None:
        self._discover = discover
        self._configured = self.urls = tuple(urls)
        self._nodes: dict[str, str] = {}
        self.redirects = 0
        self._window = window
        self._granted = window
        self._opened = False
        self._index = 0
        self._hint: str | None = None
        self._backup: str | None = None
        self._backoff = ReconnectBackoff()
        self._deadline: float | None = now + connect_timeout
        self._connect_timeout = connect_timeout
        self._useless: set[int] = set()
        self._violations = 0
        self._at_once = True
        self._last: Ending | None = None
        self._over: GatewayError | None = None
        self.attempts = 0

    # --- What happened --------------------------------------------------------------------------------------------

    def connected(
        self,
        *,
        node: str,
        backup: str | None = None,
        cluster: Cluster | None = None,
        window: float,
        backoff: Backoff,
        now: float,
    ) -> None:
        """A node has welcomed the session; the arguments are from its welcome."""
        self.listed(cluster)
        self._opened = True
        self.redirects = 0
        self._hint, self._backup = node, backup
        self._granted = window if self._window is None else min(window, self._window)
        self._backoff = self._backoff.connected(now, backoff)
        self._deadline = None
        self._last = None

    def advised(self, backoff: Backoff) -> None:
        """The node gives new advice on an open connection."""
        self._backoff = self._backoff.advised(backoff)

    def listed(self, cluster: Cluster | None) -> None:
        """The cluster lists its nodes; None if it lists none, so that those it has listed before are forgotten."""
        if not self._discover:
            return
        current = self.urls[self._index]
        self._nodes = {} if cluster is None else discovered_urls(cluster, self._configured)
        self.urls = self._configured + tuple(url for url in self._nodes if url not in self._configured)
        self._index = self.urls.index(current) if current in self.urls else 0

    def _go_on(self, node: str | None = None) -> None:
        """Turn to the next URL, or to that of a node if it is listed."""
        self._index = (self._index + 1) % len(self.urls)
        self._turn_to(node)

    def _turn_to(self, node: str | None) -> None:
        for url, listed in self._nodes.items():
            if listed == node:
                self._index = self.urls.index(url)
                return

    def _redirected(self, ending: Ending) -> None:
        """A node has said who the master is: go there at once, unless that has led nowhere before."""
        self.redirects += 1
        self._at_once = self.redirects <= MOST_REDIRECTS
        self._hint, self._backup = ending.node, None
        if ending.node is not None and self._discover:
            told = Cluster("", (ListedNode(NodeId(ending.node), ending.urls),))
            self._nodes |= discovered_urls(told, self._configured)
            self.urls = self._configured + tuple(url for url in self._nodes if url not in self._configured)
            self._turn_to(ending.node)

    def lost(self, ending: Ending, now: float) -> None:
        """The connection ended at *now*: the window begins."""
        self.attempts = 0
        self._deadline = None if self._granted is None else now + self._granted
        if ending.planned or ending.code == GOING_AWAY.code:
            self._hint, self._backup = ending.node, None
            self._go_on(ending.node)
        # Whoever left on request has spread its move already.
        self._at_once = ending.planned
        self._ended(ending, now)
        if ending.violation:
            self._count_violation(ending)

    def failed(self, ending: Ending, now: float) -> None:
        """An attempt ended without a welcome."""
        if ending.permanent:
            self._useless.add(self._index)
        if ending.hung:
            if self._hint is None:
                self._backup = None
            self._hint = None
        self._go_on()
        self._at_once = False
        if ending.error is ErrorCode.NOT_MASTER:
            self._redirected(ending)
        elif self.redirects:
            # Whoever cannot get there is served by whoever is there meanwhile.
            self.redirects = MOST_REDIRECTS
        self._ended(ending, now)
        if not self._opened and len(self._useless) == len(self.urls):
            self._over = ConnectFailed(ending.message, retryable=False)

    def _ended(self, ending: Ending, now: float) -> None:
        self._last = ending
        before = self._backoff
        lasted = before.connected_at is not None and now - before.connected_at >= before.advice.stable_after
        if lasted or ending.excused is not None:
            self._violations = 0
        reconnect = ending.reconnect
        if reconnect is Reconnect.NEVER:
            if self._opened and ending.code in _NODE_SAYS_BUG and not ending.violation:
                self._count_violation(ending)
            elif not ending.violation:
                self._over = _session_over(ending) if self._opened else _opening_over(ending)
            reconnect = Reconnect.LATER
        self._backoff = before.disconnected(now, reconnect, retry_after=ending.retry_after)

    def _count_violation(self, ending: Ending) -> None:
        self._violations += 1
        if self._violations >= MAX_VIOLATIONS:
            self._over = SessionFailed(
                f"the session is given up, because connections in a row broke the protocol; the last one: "
                f"{ending.message}",
                code=ending.error or ErrorCode.PROTOCOL_ERROR,
            )

    # --- What to do -----------------------------------------------------------------------------------------------

    def next(self, now: float, random: float) -> NextAttempt | GatewayError:
        """Decide what comes next.

        Args:
            now: the time.
            random: uniform in [0, 1).

        Returns:
            The next attempt, or the error with which the session, or the opening of one, has failed.
        """
        if self._over is not None:
            return self._over
        remaining = None if self._deadline is None else self._deadline - now
        if remaining is not None and remaining <= 0:
            return self._too_late()
        delay = 0.0
        if not self._at_once:
            delay, self._backoff = self._backoff.delay(random)
        if remaining is not None and delay >= remaining:
            if remaining <= LEAST_BOUND:
                return self._too_late()
            # A bound beyond the end would mean not to try at all; so it is drawn from what is left.
            delay = random * remaining
        self._at_once = False
        self.attempts += 1
        return NextAttempt(delay, with_hints(self.urls[self._index], self._hint, self._backup))

    def remaining(self, now: float) -> float | None:
        """Tell how many seconds are left to get a connection; None for no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - now)

    def _too_late(self) -> GatewayError:
        last = "" if self._last is None else f"; last: {self._last.message}"
        if not self._opened:
            code = None if self._last is None else self._last.error
            return ConnectFailed(f"no session within {self._connect_timeout:g} s{last}", code=code)
        return SessionExpired(f"no node took the session back within its window of {self._granted:g} s{last}")


def _opening_over(ending: Ending) -> ConnectFailed:
    if ending.error is ErrorCode.UNAUTHENTICATED or ending.code == UNAUTHENTICATED.code:
        return Unauthenticated(ending.message)
    return ConnectFailed(ending.message, code=ending.error, retryable=False)


def _session_over(ending: Ending) -> SessionEnded:
    kind: type[SessionEnded] = SessionRefused
    if ending.error is ErrorCode.SESSION_EXPIRED or ending.code == SESSION_EXPIRED.code:
        kind = SessionExpired
    elif ending.error is ErrorCode.SESSION_CLOSED or ending.code in {NORMAL.code, SESSION_CLOSED.code}:
        kind = SessionClosed
    # A connection that is closed while it is in use tells by its close code alone.
    error = ErrorCode.REVOKED if ending.code == REVOKED.code else ending.error
    return kind(ending.message, code=error)
