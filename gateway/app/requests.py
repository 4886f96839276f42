"""What clients ask for: subscribe, unsubscribe, publish, properties, authenticate, bye (protocol 5.2).

Each session's requests go through a *lane*, one after the other, so that they take effect in the order in which the
client sent them. A run of publishes goes to the grid as one step, so a lane is not a bottleneck.

A request whose step fails because the grid went away may have been executed. It stays in the lane and is repeated when
the grid is back; each step is idempotent. A request that comes while the grid is away is refused at once, because
nothing has been done for it yet (P10), unless the client says that it has sent it before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Final, TypeAlias

from gateway.app.authorisation import Authorisation
from gateway.app.context import Context
from gateway.app.gatekeeper import Gatekeeper
from gateway.app.persistence import Persistence
from gateway.app.policy import MAX_PROPERTIES, MAX_PROPERTY_NAME, MAX_PROPERTY_VALUE
from gateway.app.receipts import Receipts
from gateway.app.selecting import Selecting
from gateway.app.session import CLIENT_TYPE_PROPERTY, Session
from gateway.app.sessions import Sessions, close_code_of
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.codes import NORMAL, ErrorCode
from gateway.core.errors import RequestRefused
from gateway.core.packets import (
    Authenticate,
    Bye,
    ClientRequest,
    Malformed,
    Publish,
    Reply,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from gateway.core.topics import is_reserved, parse_topic, shown, topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import (
    Fenced,
    GridRefused,
    GridUnavailable,
    Operation,
    PublishCommand,
    Published,
    SessionChanges,
    SessionGone,
)

RETRY_AFTER: Final = 0.5
"""Seconds after which a client may repeat a request that was refused because the grid is away: about the time in which
a restarted Redis is adopted again."""

KNOWN_TOPICS: Final = 65_536
"""Topics whose check and partition are remembered: some 10 MB, for the ones that are published most."""

Work: TypeAlias = ClientRequest | Bye


def _first_publishes(queue: Iterable[Work]) -> list[Publish]:
    publishes: list[Publish] = []
    for work in queue:
        if not isinstance(work, Publish):
            break
        publishes.append(work)
    return publishes


def too_large(request: Publish, largest: int) -> RequestRefused:
    """Make the refusal of a value that has more than *largest* bytes."""
    return RequestRefused(
        f"the value has {len(request.value)} bytes; limits.value_bytes is {largest}", code=ErrorCode.VALUE_TOO_LARGE
    )


def _may_be_asked_anew(run: Iterable[Work]) -> bool:
    """Tell whether requests can be refused as retryable; not if another node may have executed one (protocol 5.2.4)."""
    return not any(isinstance(work, Bye | Malformed) or work.resubmitted for work in run)


class RequestLane:
    """The unanswered requests of one session, in order.

    It does not hold the session, which holds it: the two would stay, once the session has ended, until the collector of
    cycles comes round, which is seldom (``gateway.garbage``).

    Args:
        execute: executes the first requests of a queue and removes them from it.
    """

    __slots__ = ("_execute", "_queue", "_space", "_task")

    def __init__(self, execute: Callable[[Session, deque[Work]], Awaitable[None]]) -> None:
        self._execute = execute
        self._queue: deque[Work] = deque()
        self._task: asyncio.Task[None] | None = None
        self._space: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def oldest_open(self) -> RequestNumber | None:
        """Number of the oldest request without an answer; None if there is none."""
        if self._queue and not isinstance(self._queue[0], Bye):
            return self._queue[0].request
        return None

    def put(self, session: Session, work: Work) -> None:
        """Add a request of the session whose lane this is at the end."""
        self._queue.append(work)
        if self._task is None:
            self._task = asyncio.create_task(self._run(session), name=f"requests-{session.id}")

    async def idle(self) -> None:
        """Wait until every request has been answered."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def below(self, limit: int) -> None:
        """Wait until fewer than *limit* requests are unanswered."""
        while len(self._queue) >= limit:
            if self._space is None:
                self._space = asyncio.Event()
            self._space.clear()
            await self._space.wait()

    def abandon(self) -> None:
        """The session is dropped here: what is unanswered will be asked again elsewhere, or never."""
        self._queue.clear()
        if self._space is not None:
            self._space.set()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self, session: Session) -> None:
        try:
            while self._queue:
                await self._execute(session, self._queue)
                if self._space is not None:
                    self._space.set()
                # Not every step waits for the grid, and one client's requests must not hold up everybody else.
                await asyncio.sleep(0)
        finally:
            self._task = None


class Requests:
    """Executes the requests of all sessions of a node.

    Args:
        context: of the node.
        persistence: where sessions are changed.
        sessions: the sessions held here.
        authorisation: judges what is asked for.
        gatekeeper: tells who shows fresh credentials.
    """

    def __init__(
        self,
        context: Context,
        *,
        persistence: Persistence,
        sessions: Sessions,
        authorisation: Authorisation,
        gatekeeper: Gatekeeper,
    ) -> None:
        self._authorisation = authorisation
        self._gatekeeper = gatekeeper
        self._grid = context.grid
        self._policy = context.policy
        self._limits = context.limits
        self._clock = context.clock
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._log = context.log
        self._journal = context.journal
        self._persistence = persistence
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._selecting = Selecting(context, persistence, self._delivery, authorisation)
        self._place = lru_cache(KNOWN_TOPICS)(self._find_place)

    def lane(self) -> RequestLane:
        """Make the lane of a session."""
        return RequestLane(self._execute)

    def accept(self, session: Session, work: Work) -> None:
        """Take a request in; its reply comes when it has been executed."""
        if isinstance(work, Malformed):
            self._refuse(session, work.request, RequestRefused(work.message))
        elif isinstance(work, Bye) or work.resubmitted:
            session.lane.put(session, work)
        elif session.refusing or not self._persistence.available:
            self._refuse_for_now(session, work.request, "the grid is away")
        else:
            session.lane.put(session, work)

    # --- Execution ----------------------------------------------------------------------------------------------------

    async def _execute(self, session: Session, queue: deque[Work]) -> None:
        """Answer the first request, or the first run of publishes, and take it out of the queue."""
        publishes = _first_publishes(queue)
        run: Sequence[Work] = publishes or [queue[0]]
        step = partial(self._publish, session, publishes) if publishes else partial(self._step, session, queue[0])
        try:
            await self._until_known(session, step, may_refuse=_may_be_asked_anew(run))
        except GridRefused as why:
            for work in run:
                if not isinstance(work, Bye):
                    self._refuse_for_now(session, work.request, str(why))
        except RequestRefused as refused:
            self._refuse_all(session, run, refused)
        except Fenced:
            self._sessions.fence(session)
        except SessionGone as gone:
            self._sessions.drop(session, close_code_of(gone.reason))
        except Exception as error:  # noqa: BLE001 - one request must not take the session or the node down
            self._log.emit(events.REQUEST_FAILED, session=session.id, error=repr(error))
            failure = RequestRefused("the node failed on this request; its log says why", code=ErrorCode.INTERNAL)
            self._refuse_all(session, run, failure)
        for _ in range(min(len(run), len(queue))):
            queue.popleft()
        self._sessions.flusher.mark(session)

    async def _step(self, session: Session, work: Work) -> None:
        match work:
            case Publish():
                await self._publish(session, [work])
            case Subscribe() | Unsubscribe() as request:
                await self._selecting.select(session, request)
            case SetProperties() as request:
                await self._set_properties(session, request)
            case Authenticate() as request:
                await self._authenticate(session, request)
            case Bye():
                await self._sessions.end(session, ErrorCode.SESSION_CLOSED, NORMAL)
            case Malformed():
                raise AssertionError("a malformed request is answered before it gets into a lane")

    def _refuse_all(self, session: Session, run: Sequence[Work], reason: RequestRefused) -> None:
        for work in run:
            if not isinstance(work, Bye):
                self._refuse(session, work.request, reason)

    async def _until_known(self, session: Session, step: Callable[[], Awaitable[None]], *, may_refuse: bool) -> None:
        while not session.dropped:
            right = session.right
            try:
                await step()
            except GridRefused:
                if may_refuse:
                    raise
                await self._persistence.until_available()
                continue
            except GridUnavailable:
                await self._persistence.until_available()
                continue
            except (Fenced, SessionGone):
                # A claim by this very node, for the client that came back meanwhile, is no reason to drop the session.
                if session.right == right:
                    raise
                continue
            return

    # --- Publish ------------------------------------------------------------------------------------------------------

    async def _publish(self, session: Session, run: Sequence[Publish]) -> None:
        """Publish a run; refusals are answered only when the fate of the others is known, so that they come once."""
        refused: list[tuple[RequestNumber, RequestRefused]] = []
        touched: set[int] = set()
        commands = self._commands(session, run, refused, touched)
        if commands:
            began = self._clock.monotonic()
            await self._persistence.verify(session)
            await self._note_partitions(session, touched)
            started = self._clock.monotonic()
            with self._tracer.span(Operation.PUBLISH) as span:
                span.note("requests", len(commands))
                results = await self._grid.topics.publish(commands)
            self._reply_published(session, run, Receipts(commands, results))
            self._metrics.observe(catalogue.PUBLISH_SECONDS, self._clock.monotonic() - began)
            for result in results:
                if isinstance(result, Published):
                    self._delivery.lag.published(result.event, started)
            if self._journal.traffic is not None:
                self._journal.traffic.accepted(commands, results)
        for number, refusal in refused:
            if refusal.code is ErrorCode.VALUE_TOO_LARGE:
                self._limits.count("limit_value_bytes")
            self._metrics.add(catalogue.PUBLISHES, label="refused")
            self._refuse(session, number, refusal)

    def _commands(
        self,
        session: Session,
        run: Sequence[Publish],
        refused: list[tuple[RequestNumber, RequestRefused]],
        touched: set[int],
    ) -> list[PublishCommand]:
        """Make the commands of a run, and note what cannot be published and which partitions the rest is for."""
        commands: list[PublishCommand] = []
        settled, right, stored = session.settled(), session.right, self._persistence.replicated
        largest, place = self._policy.limits.value_bytes, self._place
        asks = not session.permissions.publishes_all
        most = self._limits.most_topics(session)
        for request in run:
            try:
                if len(request.value) > largest:
                    raise too_large(request, largest)
                topic, partition = place(request.topic)
                if asks:
                    self._authorisation.check_publish(session, topic)
            except RequestRefused as reason:
                # Its trace leads to this very list, and the session and what it published would stay with it.
                refused.append((request.request, reason.with_traceback(None)))
            else:
                touched.add(partition)
                commands.append(PublishCommand(right, request.request, settled, topic, request.value, stored, most))
        return commands

    def _find_place(self, text: str) -> tuple[TopicPath, int]:
        """Validate a topic and tell its partition; see ``parse_topic``."""
        topic = parse_topic(text)
        if is_reserved(topic):
            raise RequestRefused(
                f"only the gateway publishes below {shown(topic)}: first segments that begin with '$' are the system's",
                code=ErrorCode.FORBIDDEN,
            )
        return topic, topic_partition(topic, self._policy.topic_depth)

    async def _note_partitions(self, session: Session, touched: set[int]) -> None:
        """Write ahead which partitions will hold receipts of the session, so that its end can remove them (P7)."""
        if not touched <= session.publish_partitions:
            partitions = session.publish_partitions | touched
            await self._persistence.change(session, SessionChanges(publish_partitions=partitions))
            session.publish_partitions = partitions

    def _reply_published(self, session: Session, run: Sequence[Publish], receipts: Receipts) -> None:
        """Answer a run of publishes by a run of replies.

        Raises:
            Fenced: the grid refused one; those before it are answered.
            GridRefused: the grid refuses to write, and the client may not be told: nothing is answered.
        """
        if receipts.refused:
            for request in run:
                if request.resubmitted and request.request in receipts.refused:
                    raise receipts.refused[request.request]  # another node may have executed it (protocol 5.2.4)
        answered, duplicates = receipts.answered, receipts.duplicates
        if answered:
            session.reply_run(receipts.bodies, min(answered), max(answered))
            if duplicates:
                session.deduplicated += duplicates
                self._metrics.add(catalogue.PUBLISHES, duplicates, label="duplicate")
            if duplicates < len(answered):
                self._metrics.add(catalogue.PUBLISHES, len(answered) - duplicates, label="published")
        if receipts.created and self._limits.topics:
            self._limits.created(session, receipts.created)
        if receipts.not_created or receipts.refused:
            self._refuse_published(session, receipts)
        if receipts.fenced is not None:
            raise receipts.fenced

    def _refuse_published(self, session: Session, receipts: Receipts) -> None:
        self._metrics.add(catalogue.PUBLISHES, len(receipts.not_created) + len(receipts.refused), label="refused")
        for number in receipts.not_created:
            self._refuse(session, number, self._limits.too_many_topics(session))
        for number, why in receipts.refused.items():
            self._refuse_for_now(session, number, str(why))

    # --- Properties ---------------------------------------------------------------------------------------------------

    async def _set_properties(self, session: Session, request: SetProperties) -> None:
        self._authorisation.check_properties(session.permissions, request.changes)
        properties = session.properties | {name: value for name, value in request.changes.items() if value is not None}
        for name, value in request.changes.items():
            if value is None:
                properties.pop(name, None)
        check_properties({name: value or "" for name, value in request.changes.items()})
        check_properties({name: value for name, value in properties.items() if name != CLIENT_TYPE_PROPERTY})
        await self._persistence.change(session, SessionChanges(properties=properties))
        session.properties = properties
        self._journal.properties_changed(session, request.changes)
        session.reply(Reply(request=request.request))

    # --- Credentials --------------------------------------------------------------------------------------------------

    async def _authenticate(self, session: Session, request: Authenticate) -> None:
        found = await self._gatekeeper.recognise(session, request)
        if isinstance(found, Reply):
            # Refused alone, unlike what waits for the grid: nothing is counted by its number (protocol 5.9).
            session.reply(found)
            return
        await self._persistence.change(session, SessionChanges(identity=found))
        session.show(found)
        self._sessions.refreshed(session)
        self._log.emit(events.CREDENTIALS_REFRESHED, session=session.id)
        self._authorisation.declare(session, self._authorisation.enforce(session))
        session.reply(Reply(request=request.request))
        self._gatekeeper.enforce(session)

    # --- Refusals -----------------------------------------------------------------------------------------------------

    def _refuse(self, session: Session, number: RequestNumber, refusal: RequestRefused) -> None:
        session.reply(Reply(request=number, error=refusal.code, message=str(refusal)))
        self._sessions.flusher.mark(session)

    def _refuse_for_now(self, session: Session, number: RequestNumber, why: str) -> None:
        """Refuse a request for which certainly nothing has been done, so that it can be asked again as a new one."""
        session.reply(
            Reply(
                request=number,
                error=ErrorCode.GRID_UNAVAILABLE,
                message=f"{why}; nothing was done, ask again",
                retry_after=RETRY_AFTER,
            )
        )
        session.refused()
        self._sessions.flusher.mark(session)


def check_properties(properties: dict[str, str]) -> None:
    """Check user-defined properties.

    Raises:
        RequestRefused: a name is the server's, empty or too long, a value is too long, or there are too many.
    """

    def refuse(message: str) -> RequestRefused:
        return RequestRefused(message, code=ErrorCode.BAD_PROPERTIES)

    if len(properties) > MAX_PROPERTIES:
        raise refuse(f"{len(properties)} properties; at most {MAX_PROPERTIES} are allowed")
    for name, value in properties.items():
        if name.startswith("$"):
            raise refuse(f"{name[:MAX_PROPERTY_NAME]!r} is the server's: names that start with $ cannot be set")
        if not 0 < len(name) <= MAX_PROPERTY_NAME:
            raise refuse(f"names of properties have 1 to {MAX_PROPERTY_NAME} characters")
        if len(value) > MAX_PROPERTY_VALUE:
            raise refuse(f"the value of {name!r} has {len(value)} characters; at most {MAX_PROPERTY_VALUE} are allowed")
