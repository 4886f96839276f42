"""What clients ask for: subscribe, unsubscribe, publish, history, values, properties, authenticate, bye (protocol 5.2).

Each session's requests go through a *lane*, one after the other, so that they take effect in the order in which the
client sent them. A run of publishes goes to the grid as one step, so a lane is not a bottleneck. Lanes take turns: a
run is bounded, and what all of them begin in one turn of the loop is, too, also what they repeat (P20).

A request whose step fails because the grid became unreachable may have been executed. It stays in the lane and is
repeated when the grid is back; each step is idempotent. A request that comes while the grid is unreachable is refused
at once, because nothing has been done for it yet (P10), unless the client says that it has sent it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.history_pages import HistoryPages
from gateway.app.delivery.value_pages import ValuePages
from gateway.app.journal.session_events import PropertiesChanged
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Outdated, SessionLost
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.durables import DurableSubscriptions
from gateway.app.requests.exchanges import Exchanges
from gateway.app.requests.history import HistoryReading
from gateway.app.requests.publish import Publishing
from gateway.app.requests.queueing import Queueing
from gateway.app.requests.subscribe import Selecting
from gateway.app.requests.transacting import Transacting
from gateway.app.requests.turns import Turns
from gateway.app.requests.values import ValuesReading
from gateway.app.requests.wills import WillSetting
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.request_lane import RequestLane, Workforce
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.workload import Workload
from gateway.core.session.pending import Work, maybe_executed
from gateway.core.wire.codes import NORMAL, ErrorCode
from gateway.core.wire.durable_packets import AdvanceDurable, OpenDurable, ReleaseDurable, RemoveDurable
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.exchange_packets import Answer, Ask, Await, Handle, Unhandle
from gateway.core.wire.packets import (
    Authenticate,
    Bye,
    Malformed,
    Publish,
    ReadHistory,
    Reply,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from gateway.core.wire.properties import SERVERS_PREFIX, check_properties
from gateway.core.wire.queue_packets import (
    Cancel,
    Consume,
    Declare,
    Send,
    Settle,
)
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import SetWills
from gateway.ports import (
    GridRefused,
    GridUnavailable,
    SessionChanges,
)

MEMORY_RETRY: Final = 0.5
"""Seconds after which a request is executed again for which there was no memory: load is being shed meanwhile."""

MEMORY_PATIENCE: Final = 10
"""Times that it is."""

OUT_OF_MEMORY: Final = "the node has no memory for this request; ask for less at once, or later"


def _may_be_asked_anew(run: Iterable[Work]) -> bool:
    """Tell whether requests can be refused as retryable; not if another node may have executed one (protocol 5.2.4)."""
    return not any(isinstance(work, Bye | Malformed) or work.resubmitted for work in run)


class Requests:
    """Executes the requests of all sessions of a node.

    Args:
        context: of the node.
        store: where sessions are changed.
        sessions: the sessions held here.
        authorisation: judges what is asked for.
        authentication: tells who shows fresh credentials.

    Attributes:
        pages: where history is found.
        values: where the values of many topics are.
        consumers: of the sessions held here.
        exchanges: questions and answers of these.
        durables: what is asked of durable subscriptions.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        authorisation: Authorisation,
        authentication: Authentication,
    ) -> None:
        self._authorisation = authorisation
        self._authentication = authentication
        self._log = context.log
        self._memory = context.memory
        self._limits = context.limits
        self._announce = context.announce
        self._store = store
        self._sessions = sessions
        limits = context.parameters
        self._turns = Turns()
        self._workforce = Workforce(
            self._execute,
            requests=limits.limits.requests,
            request_bytes=limits.request_bytes,
            workload=Workload(limits.node_request_bytes),
        )
        context.metrics.watch(catalogue.REQUEST_BYTES, lambda: self._workforce.workload.bytes)
        self._selecting = Selecting(context, store, sessions.delivery, authorisation, self._turns)
        self.pages = pages = HistoryPages(context, sessions.delivery.replicas, context.destinations.history)
        self._history = HistoryReading(context, pages, authorisation, self._turns)
        self.values = ValuePages(context, sessions.delivery.replicas, sessions.delivery.watchers.presence)
        self._reading = ValuesReading(context, self.values, authorisation, self._turns)
        self._publishing = Publishing(context, store, sessions.delivery, authorisation)
        self._queueing = Queueing(context, store, sessions, authorisation, pages)
        self.durables = DurableSubscriptions(context, store, pages, authorisation, self._turns)
        self.consumers = self._queueing.consumers
        self.exchanges = Exchanges(context, store, sessions, authorisation)
        self._wills = WillSetting(context, store, authorisation)
        self._transacting = Transacting(context, store, self._publishing, self._queueing)

    def lane(self, session: Session) -> RequestLane[Session]:
        """Make the lane in which the pending requests of a session are executed."""
        return RequestLane(self._workforce, session.pending)

    def accept(self, session: Session, work: Work) -> None:
        """Take a request in; its reply comes when it has been executed."""
        if session.admit(work, grid_available=self._store.available or session.from_copy):
            session.lane.put(session, work)
        else:
            self._sessions.flusher.mark(session)

    def forget(self, session: Session) -> None:
        """The client of a session asks again for all that is given to it: messages, questions, answers."""
        self.consumers.forget(session)
        self.exchanges.forget(session)

    def acknowledged(self, session: Session) -> None:
        """The client of a session has said something: go on with what waits for that."""
        if session.consumers:
            self.consumers.acknowledged(session)
        if session.exchange is not None:
            self.exchanges.acknowledged(session)

    # --- Execution ----------------------------------------------------------------------------------------------------

    async def _execute(self, session: Session, run: Sequence[Work], size: int) -> bool:
        """Answer a request, or a run of publishes, of so many bytes.

        Returns:
            False if the session was lost meanwhile, so that there is nobody here to answer.
        """
        if self._turns.left > 0:
            self._turns.left -= size
        else:
            await self._turns.turn(size, session.principal)
        try:
            if not await self._until_known(session, run, size):
                return False
        except GridRefused as why:
            for work in run:
                if not isinstance(work, Bye):
                    session.decline_for_now(work.request, str(why))
        except RequestRefused as refused:
            self._refuse_all(session, run, refused)
        except SessionLost:
            return False
        except MemoryError:
            self._refuse_all(session, run, RequestRefused(OUT_OF_MEMORY, code=ErrorCode.INTERNAL))
        except Exception as error:  # noqa: BLE001 - one request must not take the session or the node down
            self._log.emit(events.REQUEST_FAILED, session=session.id, error=repr(error))
            failure = RequestRefused("the node failed on this request; its log says why", code=ErrorCode.INTERNAL)
            self._refuse_all(session, run, failure)
        self._sessions.flusher.mark(session)
        return True

    async def _step(self, session: Session, run: Sequence[Work]) -> None:  # noqa: C901 - a case for each kind
        match run[0]:
            case Publish():
                await self._publishing.publish(session, [work for work in run if isinstance(work, Publish)])
            case Subscribe() | Unsubscribe() as request:
                await self._selecting.select(session, request)
            case ReadHistory() | ReadValues() as request:
                await self._read(session, request)
            case OpenDurable() | AdvanceDurable() | ReleaseDurable() | RemoveDurable() as request:
                await self.durables.execute(session, request)
            case Send() | Settle() | Consume() | Cancel() | Declare():
                await self._queueing.execute(session, run)
            case Begin() | Stage() | Commit() | Rollback() as request:
                await self._transacting.execute(session, request)
            case Ask() | Answer() | Handle() | Unhandle() | Await():
                await self.exchanges.execute(session, run)
            case SetProperties() as request:
                await self._set_properties(session, request)
            case SetWills() as request:
                await self._wills.execute(session, request)
            case Authenticate() as request:
                await self._authenticate(session, request)
            case Bye():
                # Confirmed when it is true: the client may throw its token away (protocol 4.7).
                await self._sessions.end_for_good(session, ErrorCode.SESSION_CLOSED, NORMAL)
            case Malformed():
                raise AssertionError("a malformed request is answered before it gets into a lane")

    async def _read(self, session: Session, request: ReadHistory | ReadValues) -> None:
        if isinstance(request, ReadValues):
            await self._reading.read(session, request)
        else:
            await self._history.read(session, request)

    def _refuse_all(self, session: Session, run: Sequence[Work], reason: RequestRefused) -> None:
        for work in run:
            if not isinstance(work, Bye):
                session.decline(work.request, reason)
        self.exchanges.refused(session, run)

    async def _until_known(self, session: Session, run: Sequence[Work], size: int) -> bool:
        """Take a step until the grid has answered; tells whether it was taken, before the session was dropped here."""
        failed = 0
        if session.from_copy:
            # The node that died may have executed what its copy did not have yet, and clients send it as new.
            run = [maybe_executed(work) for work in run]
        while not session.dropped:
            try:
                await self._step(session, run)
            except GridRefused:
                if _may_be_asked_anew(run):
                    raise
                await self._store.until_available()
            except GridUnavailable:
                await self._store.until_available()
                run = [maybe_executed(work) for work in run]
            except MemoryError:
                self._memory.exhausted("to execute a request")
                failed += 1
                if failed > MEMORY_PATIENCE:
                    raise
                await asyncio.sleep(MEMORY_RETRY)
                run = [maybe_executed(work) for work in run]
            except Outdated:
                # This very node has claimed the session, for the client that came back meanwhile.
                run = [maybe_executed(work) for work in run]
            else:
                return True
            # The lanes of all sessions may be here at the same moment: when the grid is back, all go on (P20).
            await self._turns.turn(size, session.principal)
        return False

    # --- Properties ---------------------------------------------------------------------------------------------------

    async def _set_properties(self, session: Session, request: SetProperties) -> None:
        self._authorisation.check_properties(session.permissions, request.changes)
        properties = session.properties | {name: value for name, value in request.changes.items() if value is not None}
        for name, value in request.changes.items():
            if value is None:
                properties.pop(name, None)
        check_properties({name: value or "" for name, value in request.changes.items()})
        check_properties({name: value for name, value in properties.items() if not name.startswith(SERVERS_PREFIX)})
        self._limits.check_properties(session, properties)
        try:
            await self._store.change(session, SessionChanges(properties=properties))
            session.properties = properties
            if session.present:
                async with session.selecting:
                    await self._store.settle_presence(session)
        finally:
            self._limits.recount(session)
        self._announce(PropertiesChanged(session, request.changes))
        session.reply(Reply(request=request.request))

    # --- Credentials --------------------------------------------------------------------------------------------------

    async def _authenticate(self, session: Session, request: Authenticate) -> None:
        found = await self._authentication.recognise(session, request)
        if isinstance(found, Reply):
            # Refused alone, unlike what waits for the grid: nothing is counted by its number (protocol 5.9).
            session.reply(found)
            return
        await self._store.change(session, SessionChanges(identity=found))
        session.show(found)
        self._limits.recount(session)
        self._sessions.refreshed(session)
        self._log.emit(events.CREDENTIALS_REFRESHED, session=session.id)
        self._authorisation.declare(session, self._authorisation.enforce(session))
        session.reply(Reply(request=request.request))
        self._authentication.enforce(session)
