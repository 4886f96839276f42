"""All that was noted of one run, and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gateway.core.topics.selectors import Selector, matches, parse_selector
from gateway.core.types import TopicPath
from tests.chaos.account.folds import Welcome
from tests.chaos.account.forgotten import NodeEnd
from tests.chaos.account.messages import Messages
from tests.chaos.account.publishes import Publishes, Snapshot
from tests.chaos.account.readers import Readers
from tests.chaos.account.recoveries import GRID, KEPT, Recoveries, Recovery, Trouble
from tests.chaos.account.sessions import Sessions
from tests.chaos.account.shared import SharedReading
from tests.chaos.account.transactions import Transactions
from tests.chaos.account.updates import NEAR, SessionUpdates
from tests.chaos.account.violation import Violation, shown_as


class Account:
    """Everything that clients were told and that Redis held.

    Attributes:
        publishes: of all clients.
        sessions: of all clients.
        updates: what was sent, by session.
        generations: when the reader first saw each generation of the grid.
        snapshots: what the logs held at moments of the run; the last one is of its end.
        recoveries: of all sessions.
        messages: of all queues.
        transactions: that pass messages on.
        readers: of topics with history.
        shared: durable subscriptions that several sessions share, by name.
        node_ends: when processes of nodes ended.
        found: violations that no part of the account has noted by itself.
    """

    def __init__(self) -> None:
        self.publishes = Publishes()
        self.sessions = Sessions()
        self.updates: dict[str, SessionUpdates] = {}
        self.generations: list[tuple[float, int]] = []
        self.snapshots: list[Snapshot] = []
        self.recoveries = Recoveries()
        self.messages = Messages()
        self.transactions = Transactions()
        self.readers = Readers()
        self.shared: dict[str, SharedReading] = {}
        self.node_ends: list[NodeEnd] = []
        self.found: list[Violation] = []
        self._selectors: dict[str, list[tuple[Selector, float]]] = {}
        self._subscribed: dict[str, list[float]] = {}

    def opened(self, at: float, session: str, who: str, *, window: float, slack: float = 0.0) -> SessionUpdates:
        """A session was created; returns what takes its updates."""
        self.sessions.opened(at, session, who, window)
        updates = self.updates[session] = SessionUpdates(who, slack=slack)
        return updates

    @property
    def outcomes(self) -> Counter[str]:
        """Recoveries by rung; those that were replayed apart."""
        return Counter(f"{each.outcome} with replay" if each.replayed else each.outcome for each in self.recoveries.all)

    def recovered(self, recovery: Recovery, welcome: Welcome | None = None) -> None:
        """A session got a connection again.

        Args:
            recovery: what its welcome says.
            welcome: what it says of folded updates; None where packets have no numbers, so that it cannot be judged.
        """
        self.recoveries.all.append(recovery)
        updates = self.updates[recovery.session]
        if recovery.shows_values:
            updates.shown(recovery.at)
        if welcome is not None:
            updates.welcomed(welcome)

    def notice(self, at: float, session: str, code: str) -> None:
        """A session was sent a notice."""
        self.updates[session].notice(at, code)
        if code == "grid_lost_writes":
            self.sessions.told(at, session)

    def selected(self, at: float, session: str, selector: str) -> None:
        """A session has selected topics: the reply has come."""
        self._selectors.setdefault(session, []).append((parse_selector(selector), at))
        self._subscribed.setdefault(session, []).append(at)
        self.updates[session].shown(at)

    def deselected(self, session: str, selector: str) -> None:
        """A session asks to have a selector taken out."""
        gone = parse_selector(selector)
        self._selectors[session] = [each for each in self._selectors.get(session, []) if each[0] != gone]
        updates = self.updates[session]
        updates.deselected([topic for topic in updates.last() if matches(gone, TopicPath(topic))])

    def selects(self, session: str) -> tuple[str, ...]:
        """Tell which selectors a session has."""
        return tuple(selector.text for selector, _ in self._selectors.get(session, ()))

    def behind(self, values: Mapping[str, tuple[int, int]], sessions: Sequence[str]) -> dict[str, list[str]]:
        """Compare what living sessions hold with what the grid holds, when nothing is published (P6).

        Args:
            values: value and version of every topic in the grid.
            sessions: which.

        Returns:
            What is not as it should be, by session.
        """
        wrong: dict[str, list[str]] = {}
        for session in sessions:
            last = self.updates[session].last()
            for topic, wanted in values.items():
                if self._interest(session, topic) is None or last.get(topic) == wanted:
                    continue
                value, version = last.get(topic, (None, 0))
                # The version of a publish rises when nodes put it back. Who has the publish is not sent it again.
                newest = max((shown_as(wanted[1], number) for _, number in self.generations), default=wanted[1])
                if value != wanted[0] or version > newest:
                    wrong.setdefault(session, []).append(f"{topic} at {last.get(topic)} instead of {wanted}")
        return wrong

    def readers_behind(self, values: Mapping[str, tuple[int, int]]) -> dict[str, list[str]]:
        """Tell what readers of histories lack, when nothing is published; as ``behind``, by client."""
        forgotten = self.publishes.forgotten
        readers = (*self.readers.all, *self.readers.durables, *self.shared.values())
        found = {each.who: each.behind(values, self.publishes, forgotten) for each in readers}
        return {who: wrong for who, wrong in found.items() if wrong}

    def judge(self) -> list[Violation]:
        """Judge the run, once; in the order of time."""
        for updates in self.updates.values():
            updates.finish(self.publishes.may_be_repeated, self.sessions.losses)
        self.sessions.judge_ends(self.publishes.forgotten)
        self.sessions.judge_deaths(self.node_ends, self.publishes.forgotten)
        opened = {life.id: life.opened for life in self.sessions.lives.values()}
        self.recoveries.judge(self._subscribed, self._grid_troubles(), opened)
        self.publishes.judge_receipts()
        lost = []
        for snapshot in self.snapshots:
            lost = self.publishes.judge_log(snapshot)
        restarts = self._restarts()
        lost += self.messages.judge(self.publishes.forgotten, restarts)
        lost += self.transactions.judge(self.messages, self.publishes.forgotten, self.generations)
        self.readers.judge(self.publishes, self.publishes.forgotten)
        shared = [each.judge(self.publishes, self.publishes.forgotten, restarts) for each in self.shared.values()]
        interested = {each.topic: self._interested(each.topic) for each in lost}
        self.sessions.judge_losses(lost, self.generations, interested)
        violations = [
            *self.found,
            *self.publishes.violations,
            *self.sessions.violations,
            *self.recoveries.violations,
            *self.messages.violations,
            *self.transactions.violations,
            *self.readers.violations,
            *(violation for violations in shared for violation in violations),
            *(violation for updates in self.updates.values() for violation in updates.violations),
        ]
        return sorted(dict.fromkeys(violations), key=lambda violation: violation.at)

    def _restarts(self) -> dict[str, list[float]]:
        """List, by session, when it went on without its buffers."""
        restarts: dict[str, list[float]] = {}
        for each in self.recoveries.all:
            if each.outcome not in KEPT:
                restarts.setdefault(each.session, []).append(each.at)
        return restarts

    def _grid_troubles(self) -> list[Trouble]:
        """List when the grid lost something, or was another one, whether or not a fault was struck then."""
        return [
            *(Trouble(each.began, each.ended, GRID) for each in self.publishes.forgotten),
            *(Trouble(at - NEAR, at, GRID) for at, _ in self.generations[1:]),
        ]

    def _interested(self, topic: str) -> list[tuple[str, float]]:
        found = [(session, self._interest(session, topic)) for session in self._selectors]
        return [(session, since) for session, since in found if since is not None]

    def _interest(self, session: str, topic: str) -> float | None:
        return next(
            (at for selector, at in self._selectors.get(session, ()) if matches(selector, TopicPath(topic))), None
        )
