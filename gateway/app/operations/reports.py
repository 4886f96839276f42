"""Publishes what the node tells of itself, about once a second, for as long as somebody watches anywhere."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway import __version__
from gateway.app.context import Context
from gateway.app.delivery.watchers import Watchers
from gateway.app.operations.activity import INTERVAL, REFUSED, Activity, Column, Happening
from gateway.app.operations.system_publisher import SystemPublisher
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.core.policy.system_roles import is_of_system
from gateway.core.topics.topics import SYSTEM_ROOT
from gateway.core.types import NodeRef, TopicPath
from gateway.core.wire.codec import json_text
from gateway.core.wire.codes import RECOVERED
from gateway.ports import GridUnavailable, LeaseLost

PERIOD: Final = 1.0
"""Seconds between two reports: people take one change a second for live, and a cluster of a hundred nodes publishes no
more by it than one busy client."""

WATCH_RENEWALS: Final = 3
"""Renewals of a lease for which others remember that somebody watches at this node; so two may fail."""

SLOWEST: Final = 20
"""Slow consumers told of, the worst first: a screenful. Their number is told, too."""

RECENT_PERIOD: Final = 5.0
"""Seconds between two lists of what happened lately: those who come later want them, and they are large."""

RUNGS: Final = (*(each.value for each in RECOVERED), REFUSED)
"""Outcomes of resumes, in the order in which the columns of the history have them."""


class Reports:
    """The reports of one node; see the package for the topics.

    Args:
        context: of the node.
        sessions: the sessions held here.
        activity: what happened to them.
        not_ready: why no new sessions should come here.
        connections: how many are open.
        backup: tells the node that has copies of the sessions, if there is one, of how many, and of how many it is to
            have one; None if this node is to have no backup.
        suspects: the nodes that this one does not hear any more.
        takeovers: what this node takes over at the moment, as it is told.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        activity: Activity,
        *,
        not_ready: Callable[[], Sequence[str]],
        connections: Callable[[], int],
        backup: Callable[[], tuple[NodeRef | None, int, int]] | None = None,
        suspects: Callable[[], Sequence[NodeRef]] = tuple,
        takeovers: Callable[[], Sequence[dict[str, object]]] = tuple,
    ) -> None:
        self._me = context.me
        self._parameters = context.parameters
        self._clock = context.clock
        self._grid = context.grid
        self._sessions = sessions
        self._activity = activity
        self._cluster = context.cluster
        self._lifecycle = context.lifecycle
        self._not_ready = not_ready
        self._connections = connections
        self._backup = backup
        self._suspects = suspects
        self._takeovers = takeovers
        self._publisher = SystemPublisher(context)
        self._watchers: Watchers = sessions.delivery.watchers
        self._started = context.clock.wall()
        self._lag = 0.0
        self._told: dict[TopicPath, bytes] = {}
        """What was told last by the topics that are published only when they change."""
        self._recent_told = 0
        """How many happenings there had been when the recent ones were told last."""
        self._recent_due = 0.0
        self._restored = False

    @property
    def watch(self) -> float:
        """Seconds for which the grid shall remember that somebody watches at this node; 0 if nobody does."""
        return WATCH_RENEWALS * self._parameters.renew if self._watchers.here else 0.0

    async def run(self) -> None:
        """Report for ever, while somebody watches."""
        while True:
            await self._watchers.somebody()
            self._activity.take()  # what is older is in the counts, and among the recent
            self._recent_told, self._recent_due = -1, 0.0
            if self._watchers.here and not self._watchers.elsewhere:
                # The other nodes hear of it with their next renewal, and not one renewal later.
                with suppress(GridUnavailable, LeaseLost):  # whoever keeps the lease sees to that
                    await self._grid.nodes.renew(self._me, lease=self._parameters.lease, watch=self.watch)
            due = self._clock.monotonic()
            while self._watchers.here or self._watchers.elsewhere:
                with suppress(GridUnavailable):  # nobody can be told then; the next report says what has changed
                    await self._restore()
                    await self._publisher.publish(self._changes())
                due = max(due + PERIOD, self._clock.monotonic())
                await asyncio.sleep(due - self._clock.monotonic())
                self._lag = max(0.0, self._clock.monotonic() - due)
            self._told.clear()

    async def mark_expired(self, expired: NodeRef) -> None:
        """Mark a node as gone whose lease has expired, for those who watch, unless it is back by another run."""
        if not (self._watchers.here or self._watchers.elsewhere):
            return
        if any(each.node == expired.node for each in self._cluster.alive):
            return
        await self._mark(expired, "expired")

    async def forget(self, lost: NodeRef) -> None:
        """Remove what a node told of itself that is gone for good, unless it is back by another run.

        Its counts stay, for its next run.

        Raises:
            GridUnavailable: some of it may be there still; to be asked again.
        """
        if any(each.node == lost.node for each in self._cluster.alive):
            return
        for name in ("nodes", "slow", "activity"):
            await self._grid.topics.remove(_topic(name, lost), keep=self._parameters.max_window)

    async def leave(self) -> None:
        """Say that this node has left on purpose, if somebody watches, and leave its counts to its next run.

        Ids of sessions are left only where somebody watches: nothing of one that has ended stays in the grid (P7).
        """
        watched = self._watchers.here or self._watchers.elsewhere
        if watched:
            await self._mark(self._me, "left")
        if not self._activity.resumes:
            return
        with suppress(GridUnavailable):
            await self._restore()
            changes = [(_topic("recoveries", self._me), json_text(self._recoveries()))]
            if watched:
                changes.append((_topic("recent", self._me), json_text(self._recent())))
            await self._publisher.publish(changes)

    async def _mark(self, node: NodeRef, state: str) -> None:
        value = {"node": node.node, "incarnation": node.incarnation, "state": state, "at": self._clock.wall()}
        with suppress(GridUnavailable):
            await self._publisher.publish([(_topic("nodes", node), json_text(value))])

    async def _restore(self) -> None:
        """Go on with what an earlier run of this node told, once, before this one takes its place.

        Raises:
            GridUnavailable: it cannot be read now.
        """
        if self._restored:
            return
        topics = [_topic("recoveries", self._me), _topic("recent", self._me)]
        recoveries, recent = await self._grid.topics.read(topics)
        self._restored = True
        self._activity.restore(
            [] if recoveries is None else read_columns(recoveries.value),
            [] if recent is None else read_happenings(recent.value),
        )

    # --- What is told -------------------------------------------------------------------------------------------------

    def _changes(self) -> list[tuple[TopicPath, bytes]]:
        me, changes = self._me, [(_topic("nodes", self._me), json_text(self._state()))]
        for name, value in (("recoveries", self._recoveries()), ("slow", self._slow())):
            topic, text = _topic(name, me), json_text(value)
            if self._told.get(topic) != text:
                self._told[topic] = text
                changes.append((topic, text))
        if self._activity.happened != self._recent_told and self._clock.monotonic() >= self._recent_due:
            self._recent_told = self._activity.happened
            self._recent_due = self._clock.monotonic() + RECENT_PERIOD
            changes.append((_topic("recent", me), json_text(self._recent())))
        happenings, more = self._activity.take()
        if happenings:
            value = {"node": me.node, "happenings": [each._asdict() for each in happenings], "more": more}
            changes.append((_topic("activity", me), json_text(value)))
        return changes

    def _state(self) -> dict[str, object]:
        sessions, activity = self._sessions, self._activity
        connected = sessions.connected()
        consoles = [each for each in sessions if each.roles and is_of_system(each.roles)]
        watching = sum(each.connection is not None for each in consoles)
        return {
            "node": self._me.node,
            "incarnation": self._me.incarnation,
            "state": "serving",
            "version": __version__,
            "started": self._started,
            "at": self._clock.wall(),
            "sessions": {
                "connected": connected - watching,
                "disconnected": len(sessions) - connected - (len(consoles) - watching),
            },
            "consoles": watching,
            "updates": sessions.delivery.delivered,
            "connections": self._connections(),
            "opened": activity.opened,
            "ended": dict(activity.ended),
            "resumes": {rung: activity.resumes[rung] for rung in RUNGS},
            "slow": {"blocked": sessions.flusher.blocked, "closed": activity.slow_closes},
            "lag": self._lag,
            "grid": {"state": self._grid.state.value, "generation": self._grid.generation},
            "draining": self._lifecycle.draining,
            "reasons": list(self._not_ready()),
            "alive": [str(each) for each in self._cluster.alive],
            "suspects": [str(each) for each in self._suspects()],
            "takeovers": list(self._takeovers()),
            **self._backed_up(),
        }

    def _backed_up(self) -> dict[str, object]:
        """Tell which node has copies; nothing of a node that is to have no backup."""
        if self._backup is None:
            return {}
        node, copied, to_copy = self._backup()
        return {"backup": {"node": None if node is None else node.node, "copied": copied, "to_copy": to_copy}}

    def _recoveries(self) -> dict[str, object]:
        columns = [[each.begins, *(each.counts[rung] for rung in RUNGS)] for each in self._activity.history()]
        return {"node": self._me.node, "interval": INTERVAL, "rungs": RUNGS, "columns": columns}

    def _recent(self) -> dict[str, object]:
        return {"node": self._me.node, "happenings": [each._asdict() for each in self._activity.recent()]}

    def _slow(self) -> dict[str, object]:
        blocked = self._sessions.flusher.blocked_sessions()
        worst = sorted(blocked, key=lambda each: each.machine.waiting_bytes, reverse=True)[:SLOWEST]
        return {"node": self._me.node, "count": len(blocked), "sessions": list(map(_slow_session, worst))}


def read_columns(text: bytes) -> list[Column]:
    """Read the resumes that an earlier run told of; nothing, if one of another version told them in another way."""
    try:
        value = json.loads(text)
        rungs = [str(each) for each in value["rungs"]]
        return [
            Column(float(begins), Counter(dict(zip(rungs, map(int, counts), strict=True))))
            for begins, *counts in value["columns"]
        ]
    except (ValueError, TypeError, KeyError):
        return []


def read_happenings(text: bytes) -> list[Happening]:
    """Read the happenings that an earlier run told of, likewise."""
    try:
        return [
            Happening(float(each["at"]), each["what"], each["session"], each["detail"], each["replayed"])
            for each in json.loads(text)["happenings"]
        ]
    except (ValueError, TypeError, KeyError):
        return []


def _slow_session(session: Session) -> dict[str, object]:
    machine = session.machine
    return {
        "session": session.id,
        "principal": session.principal,
        "waiting_packets": machine.waiting,
        "waiting_bytes": machine.waiting_bytes,
        "resend_packets": machine.unacknowledged,
        "resend_bytes": machine.resend_bytes,
        "conflated": machine.conflated,
    }


def _topic(kind: str, node: NodeRef) -> TopicPath:
    return TopicPath(f"{SYSTEM_ROOT}/{kind}/{node.node}")
