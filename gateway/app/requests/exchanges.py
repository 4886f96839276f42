"""Questions and answers of all sessions of a node: both halves, and what is told of the partitions that they are in."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.asking import Asking
from gateway.app.requests.followed_partitions import FollowedPartitions
from gateway.app.requests.handling import QuestionHandling
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.core.session.pending import Work as Request
from gateway.core.wire.exchange_packets import Answer, Ask, Await, Handle, Unhandle
from gateway.ports import Given, Over


class Exchanges:
    """Does what clients ask of questions and answers.

    Args:
        context: of the node.
        store: where it is written.
        sessions: the sessions held here.
        authorisation: judges it.
    """

    def __init__(self, context: Context, store: FencedStore, sessions: Sessions, authorisation: Authorisation) -> None:
        self._store = store
        self._exchanges = context.grid.exchanges
        self._background = context.background
        self._followed: FollowedPartitions[Given | Over] = FollowedPartitions(context.grid.exchanges)
        self._handling = QuestionHandling(context, store, sessions, authorisation, self._followed)
        self._asking = Asking(context, store, sessions, authorisation, self._followed)
        sessions.tell_of_leaving(self.forget)
        sessions.tell_of_presence(self._handling.presence_changed)
        authorisation.tell_of_change(self._handling.rights_changed)

    async def execute(self, session: Session, run: Sequence[Request]) -> None:
        """Do what one request, or a run of one kind, asks for; see the methods of these.

        Raises:
            RequestRefused: of one that is no run.
            Outdated, SessionLost, GridUnavailable: see ``fencing``.
        """
        match run[0]:
            case Ask():
                await self._asking.ask(session, [work for work in run if isinstance(work, Ask)])
            case Answer():
                await self._handling.answer(session, [work for work in run if isinstance(work, Answer)])
            case Handle() as request:
                await self._handling.handle(session, request)
            case Unhandle() as request:
                await self._handling.unhandle(session, request)
            case Await() as request:
                await self._asking.wait(session, request)
            case _:
                raise AssertionError(f"{type(run[0]).__name__} is not about questions")

    def refused(self, session: Session, run: Sequence[Request]) -> None:
        """Requests have been refused as a whole, of which some may have been executed."""
        self._asking.refused(session, [work for work in run if isinstance(work, Ask)])

    async def run(self) -> None:
        """Take in what happens, for ever."""
        async for item in self._exchanges.exchanges():
            if isinstance(item, Given | Over):
                self._followed.note(item)
                if isinstance(item, Given):
                    self._handling.given(item)
                else:
                    self._asking.over(item)
            else:
                self._background.once(self._lost(item.partition), f"exchanges-{item.partition}")

    async def _lost(self, partition: int) -> None:
        """The grid has lost writes, or this node its place: say and ask again what there is."""
        sessions = self._followed.lost(partition)
        await self._store.until_available()
        for session in sessions:
            if not session.dropped:
                self._handling.lost(session, partition)
                self._asking.lost(session, partition)

    def acknowledged(self, session: Session) -> None:
        """The client of a session that asks or handles has said something."""
        exchange = session.exchange
        if exchange is not None:
            self._asking.acknowledged(session, exchange)
            self._handling.go_on(session, exchange)

    def forget(self, session: Session) -> None:
        """The session is not this node's any more, or its client says again what it waits for."""
        exchange, session.exchange = session.exchange, None
        if exchange is not None:
            self._asking.forget(session, exchange)
            self._handling.forget(session, exchange)
