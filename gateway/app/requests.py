"""What clients ask for: subscribe, unsubscribe, publish, properties, bye (protocol 5.2).

Each session's requests go through a *lane*, one after the other, so that they take effect in the order in which the
client sent them. A run of publishes goes to the grid as one step, so a lane is not a bottleneck.

A request whose step fails because the grid went away may have been executed. It stays in the lane and is repeated when
the grid is back; each step is idempotent. A request that comes while the grid is away is refused at once, because
nothing has been done for it yet (P10), unless the client says that it has sent it before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Final, TypeAlias

from gateway.app.context import Context
from gateway.app.persistence import Persistence
from gateway.app.policy import MAX_PROPERTIES, MAX_PROPERTY_NAME, MAX_PROPERTY_VALUE
from gateway.app.session import CLIENT_TYPE_PROPERTY, Session
from gateway.app.sessions import Sessions, close_code_of
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.codes import NORMAL, ErrorCode
from gateway.core.errors import RequestRefused
from gateway.core.packets import (
    Bye,
    ClientRequest,
    Malformed,
    Publish,
    Reply,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from gateway.core.selections import Selections
from gateway.core.selectors import parse_selector
from gateway.core.topics import parse_topic, topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import (
    Fenced,
    GridUnavailable,
    PublishCommand,
    Published,
    SessionChanges,
    SessionGone,
)

RETRY_AFTER: Final = 0.5
"""Seconds after which a client may repeat a request that was refused because the grid is away: about the time in which
a restarted Redis is adopted again."""

Work: TypeAlias = ClientRequest | Bye


class RequestLane:
    """The unanswered requests of one session, in order.

    Args:
        session: whose requests.
        execute: executes the first requests of a queue and removes them from it.
    """

    __slots__ = ("_execute", "_queue", "_session", "_space", "_task")

    def __init__(self, session: Session, execute: Callable[[Session, deque[Work]], Awaitable[None]]) -> None:
        self._session = session
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

    def put(self, work: Work) -> None:
        """Add a request at the end."""
        self._queue.append(work)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"requests-{self._session.id}")

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

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._execute(self._session, self._queue)
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
    """

    def __init__(self, context: Context, persistence: Persistence, sessions: Sessions) -> None:
        self._grid = context.grid
        self._policy = context.policy
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._persistence = persistence
        self._sessions = sessions
        self._delivery = sessions.delivery

    def lane(self, session: Session) -> RequestLane:
        """Make the lane of a new session."""
        return RequestLane(session, self._execute)

    def accept(self, session: Session, work: Work) -> None:
        """Take a request in; its reply comes when it has been executed."""
        if isinstance(work, Malformed):
            self._refuse(session, work.request, RequestRefused(work.message))
        elif isinstance(work, Bye) or work.resubmitted:
            session.lane.put(work)
        elif session.refusing or not self._persistence.available:
            self._refuse_unavailable(session, work)
        else:
            session.lane.put(work)

    # --- Execution ----------------------------------------------------------------------------------------------------

    async def _execute(self, session: Session, queue: deque[Work]) -> None:
        """Answer the first request, or the first run of publishes, and take it out of the queue."""
        run = [queue[0]] if not isinstance(queue[0], Publish) else self._run_of_publishes(queue)
        try:
            await self._until_known(session, lambda: self._step(session, run))
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

    async def _step(self, session: Session, run: Sequence[Work]) -> None:
        match run[0]:
            case Publish():
                await self._publish(session, [each for each in run if isinstance(each, Publish)])
            case Subscribe() | Unsubscribe() as request:
                await self._select(session, request)
            case SetProperties() as request:
                await self._set_properties(session, request)
            case Bye():
                await self._sessions.end(session, ErrorCode.SESSION_CLOSED, NORMAL)
            case Malformed():
                raise AssertionError("a malformed request is answered before it gets into a lane")

    def _refuse_all(self, session: Session, run: Sequence[Work], reason: RequestRefused) -> None:
        for work in run:
            if not isinstance(work, Bye):
                self._refuse(session, work.request, reason)

    async def _until_known(self, session: Session, step: Callable[[], Awaitable[None]]) -> None:
        while not session.dropped:
            right = session.right
            try:
                await step()
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

    def _run_of_publishes(self, queue: deque[Work]) -> list[Work]:
        return list(takewhile(lambda work: isinstance(work, Publish), queue))

    async def _publish(self, session: Session, run: list[Publish]) -> None:
        """Publish a run; refusals are answered only when the fate of the others is known, so that they come once."""
        commands: list[PublishCommand] = []
        refused: list[tuple[RequestNumber, RequestRefused]] = []
        settled, right = session.settled(), session.right
        for request in run:
            try:
                topic = self._check(request)
            except RequestRefused as reason:
                refused.append((request.request, reason))
            else:
                commands.append(
                    PublishCommand(
                        right, request.request, settled, topic, request.value, stored=self._persistence.replicated
                    )
                )
        if commands:
            await self._persistence.verify(session)
            await self._note_partitions(session, commands)
            started = self._clock.monotonic()
            results = await self._grid.topics.publish(commands)
            for command, result in zip(commands, results, strict=True):
                if isinstance(result, Fenced):
                    raise result
                self._reply_published(session, command, result)
                self._delivery.lag.published(result.event, started)
        for number, refusal in refused:
            self._metrics.add(catalogue.PUBLISHES, label="refused")
            self._refuse(session, number, refusal)

    def _check(self, request: Publish) -> TopicPath:
        allowed = self._policy.limits.value_bytes
        if len(request.value) > allowed:
            raise RequestRefused(
                f"the value has {len(request.value)} bytes; limits.value_bytes is {allowed}",
                code=ErrorCode.VALUE_TOO_LARGE,
            )
        return parse_topic(request.topic)

    async def _note_partitions(self, session: Session, commands: list[PublishCommand]) -> None:
        """Write ahead which partitions will hold receipts of the session, so that its end can remove them (P7)."""
        touched = {topic_partition(command.topic, self._policy.topic_depth) for command in commands}
        if not touched <= session.publish_partitions:
            partitions = session.publish_partitions | touched
            await self._persistence.change(session, SessionChanges(publish_partitions=partitions))
            session.publish_partitions = partitions

    def _reply_published(self, session: Session, command: PublishCommand, result: Published) -> None:
        self._metrics.add(catalogue.PUBLISHES, label="duplicate" if result.duplicate else "published")
        known = bool(result.event)
        reply = Reply(
            request=command.request,
            version=result.version if known else None,
            event=result.event if known else None,
        )
        session.reply(reply)

    # --- Selections ---------------------------------------------------------------------------------------------------

    async def _select(self, session: Session, request: Subscribe | Unsubscribe) -> None:
        selector = parse_selector(request.selector)
        async with session.selecting:
            before: Selections = session.selections
            wanted = before.select(selector) if isinstance(request, Subscribe) else before.deselect(selector)
            if len(wanted) > self._policy.limits.selections:
                raise RequestRefused(
                    f"the session would hold {len(wanted)} selections; limits.selections is "
                    f"{self._policy.limits.selections}. Use wider selectors, or unsubscribe first.",
                    code=ErrorCode.TOO_MANY_SELECTIONS,
                )
            await self._delivery.prepare(session, wanted)
            if wanted != before:
                await self._persistence.change(session, SessionChanges(selections=wanted.to_wire()))
            self._delivery.select(session, wanted)
            session.reply(Reply(request=request.request))
            if isinstance(request, Subscribe):
                await self._delivery.send_snapshot(session, selector)

    # --- Properties ---------------------------------------------------------------------------------------------------

    async def _set_properties(self, session: Session, request: SetProperties) -> None:
        properties = session.properties | {name: value for name, value in request.changes.items() if value is not None}
        for name, value in request.changes.items():
            if value is None:
                properties.pop(name, None)
        check_properties({name: value or "" for name, value in request.changes.items()})
        check_properties({name: value for name, value in properties.items() if name != CLIENT_TYPE_PROPERTY})
        await self._persistence.change(session, SessionChanges(properties=properties))
        session.properties = properties
        session.reply(Reply(request=request.request))

    # --- Refusals -----------------------------------------------------------------------------------------------------

    def _refuse(self, session: Session, number: RequestNumber, refusal: RequestRefused) -> None:
        session.reply(Reply(request=number, error=refusal.code, message=str(refusal)))
        self._sessions.flusher.mark(session)

    def _refuse_unavailable(self, session: Session, work: ClientRequest) -> None:
        session.reply(
            Reply(
                request=work.request,
                error=ErrorCode.GRID_UNAVAILABLE,
                message="the grid is away and nothing was done; ask again",
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
