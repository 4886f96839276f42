"""Keeps one session alive over any number of connections.

```text
open ──► connected ──lost──► recovering ──welcome──► connected ──► …
             │                   │
             └────── bye ────────┴── window over, refused ──► closed
```

One task runs for the session's whole life. Where and when to connect is decided by ``reconnect.ReconnectPlan``, what is
sent and received by ``core.session.SessionMachine``, what is asked when by ``requests.RequestTable``; this module
connects them with the clock, the random numbers and the network.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Final

from gateway.client.asking import Asking
from gateway.client.connection import Connection
from gateway.client.credentials import EXPIRING, Credentials
from gateway.client.history import History
from gateway.client.options import LEAVE_TIMEOUT, SUPPORTS, Options, time_limit
from gateway.client.reaching import Reached, Reaching
from gateway.client.refreshing import Refreshing
from gateway.client.selecting import Streams
from gateway.client.transport import AttemptFailed
from gateway.core.client.endings import Ending
from gateway.core.client.errors import RequestTimedOut, SessionClosed, SessionEnded, SessionFailed
from gateway.core.client.reconnect_plan import ReconnectPlan
from gateway.core.client.request_table import PACKET_OVERHEAD, ClientAsk
from gateway.core.client.types import Notice, Recovery, SelectionsWithdrawn, SessionState, Update, ValuesReread
from gateway.core.stream.frozen import SessionPolicy
from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.types import Attempt, PacketId
from gateway.core.wire import packets
from gateway.core.wire.codec import MAX_NUMBER, json_text
from gateway.core.wire.codes import CREDENTIALS_EXPIRED, GOING_AWAY, NORMAL, ErrorCode, Numbering
from gateway.core.wire.errors import RemoteProtocolError, RequestRefused
from gateway.core.wire.packets import Ack, Backoff, Bye, Error, GoAway, Ping, Reply, Resume, Unsubscribe, Welcome
from gateway.core.wire.properties import is_unicode

ACK_PACKETS: Final = 256
"""Packets received after which an acknowledgement is sent alone: a node spends as much on one as on some deliveries."""

ACK_SHARE: Final = 4
"""... and at the latest after this part of the node's resend buffer, so that the node never waits for it."""

ACK_DELAY: Final = 0.5
"""Seconds after which an acknowledgement is sent alone. At 50 updates a second one in 25 is then answered, which costs
the node a tenth of its time and not a quarter; a quarter of the time in which a draining node expects it."""

NO_PACKET: Final = PacketId(0)
"""What has been received by a client that has no count of its own any more."""

PROMISES_RESTORED: Final = "promises_restored"
"""Code of the notice with which this client itself declares that a grid had forgotten what it had promised."""

log = logging.getLogger("gateway.client")
log.addHandler(logging.NullHandler())


class Supervisor:
    """A session that has been opened; ``session.Session`` is its public face.

    It is the ``reaching.Applicant`` of its own resumes.

    Args:
        options: how to connect.
        reached: the connection that the session was opened on.
        reaching: makes further ones.
        plan: of connecting; ``reaching`` uses the same.
        credentials: what the session was opened with, and goes on with.
        random: for jitter.

    Attributes:
        state: where the session stands.
        welcome: of the present connection, or the last one.
        asking: the session's requests.
        streams: of updates.
        recoveries: what happened to the connection.
        notices: what the server declared.
        ended: why the session is over, or None.
    """

    def __init__(
        self,
        options: Options,
        reached: Reached,
        reaching: Reaching,
        plan: ReconnectPlan,
        *,
        credentials: Credentials,
        random: Random,
    ) -> None:
        self._reaching = reaching
        self._plan = plan
        self._random = random
        self._clock = asyncio.get_running_loop().time
        welcome = self.welcome = reached.welcome
        self._token = welcome.token
        self._credentials = credentials
        self._shown: str | None = None
        self._refreshing = Refreshing(credentials, self.request, random, welcome.session)
        self._attempt = 0
        self._machine = SessionMachine(Role.CLIENT, _policy(welcome))
        self._machine.open(self._clock())
        self._connection: Connection | None = None
        self._resent = 0
        self._numbering_unknown = False
        self._lost_at = 0.0
        self._closing = False
        self.state = SessionState.CONNECTED
        self.streams = Streams(self._deselect)
        self.recoveries: History[Recovery] = History()
        self.notices: History[Notice] = History()
        self.ended: SessionEnded | None = None
        self.asking = Asking(welcome, self._machine, self._wake, default_timeout=options.request_timeout, random=random)
        log.info("session %s opened at node %s", welcome.session, welcome.node)
        self._task = asyncio.get_running_loop().create_task(
            self._run(self._attach(reached)), name=f"gateway-client-{welcome.session}"
        )

    # --- Life -------------------------------------------------------------------------------------------------------

    async def _run(self, connection: Connection) -> None:
        try:
            while True:
                cause = await self._serve(connection)
                connection = await self._recover(cause)
        except SessionEnded as ended:
            self._end(ended)
        except asyncio.CancelledError:
            self._end(SessionClosed("the session was abandoned before a node confirmed its end"))
            raise
        except Exception as bug:
            log.exception("session %s failed by a bug of this client", self.welcome.session)
            self._end(SessionFailed(f"a bug of this client: {bug!r}"))
        finally:
            if self._connection is not None:
                self._reaching.part(self._connection.close(Ending(message="the client stops")))
            await self._reaching.release()

    def _attach(self, reached: Reached) -> Connection:
        """Begin to use a connection."""
        welcome = reached.welcome
        self._plan.connected(node=welcome.node, window=welcome.window, backoff=welcome.backoff, now=self._clock())
        connection = Connection(reached.transport, self._machine, self._handle, self._clock, reached.early)
        self._connection = connection
        # Whatever comes first proves to the node that the client holds the new token (P8).
        self._machine.send_link(Ack(self._machine.received))
        if self._closing:
            self._say_bye()
        else:
            self.asking.resume(welcome, restarted=welcome.numbering is Numbering.RESTARTED)
        return connection

    async def _serve(self, connection: Connection) -> Ending:
        """Use a connection until it ends."""
        ending = await connection.serve()
        self._lost_at = self._clock()
        self._connection = None
        self._machine.detach()
        self.asking.freeze()
        self._reaching.part(connection.close(ending))
        culprit, ending = self.asking.blame.find(ending)
        if culprit is not None:
            log.error("session %s: request %d ended the connection: %s", self.welcome.session, *culprit)
            self.asking.give_up(culprit)
        self._plan.lost(ending, self._lost_at)
        if ending.code == CREDENTIALS_EXPIRED.code:
            self._credentials.stale = True
        self.state = SessionState.RECOVERING
        level = logging.INFO if ending.planned or self._closing else logging.WARNING
        log.log(level, "session %s left node %s: %s", self.welcome.session, self.welcome.node, ending.message)
        return ending

    async def _recover(self, cause: Ending) -> Connection:
        """Get the session back and declare what came of it (P2)."""
        reached = await self._reaching.reach(self)
        welcome = reached.welcome
        recovery = Recovery(
            outcome=welcome.outcome,
            numbering=welcome.numbering or Numbering.RESTARTED,
            reason=welcome.reason,
            node=welcome.node,
            gap_seconds=self._clock() - self._lost_at,
            resent=welcome.resent + self._resent,
            lost=welcome.lost,
            conflated=welcome.conflated,
            attempts=self._plan.attempts,
            cause=cause.message,
        )
        self.state = SessionState.CONNECTED
        gap = recovery.gap_seconds
        log.info("session %s %s at node %s after %.3f s", welcome.session, welcome.outcome, welcome.node, gap)
        self.recoveries.append(recovery)
        return self._attach(reached)

    def _end(self, error: SessionEnded) -> None:
        if self._closing:
            error = SessionClosed("the session was closed by this client")
        self.ended = error
        self.state = SessionState.CLOSED
        self._refreshing.stop()
        told = None if self._closing else error
        self.asking.fail(error)
        self.streams.end(told)
        self.recoveries.end(told)
        self.notices.end(told)
        level = logging.INFO if isinstance(error, SessionClosed) else logging.ERROR
        log.log(level, "session %s ended: %s", self.welcome.session, error)

    # --- What the application does with it ----------------------------------------------------------------------------

    async def request(self, ask: ClientAsk, seconds: float | None) -> Reply:
        """Ask something and wait for the answer; see ``Asking.request``.

        Raises:
            SessionEnded: the session is over, or being closed.
        """
        self._check_open()
        return await self.asking.request(ask, seconds)

    async def unsubscribe(self, selector: Selector, seconds: float | None) -> None:
        """End streams and deselect, in any case; see ``Session.unsubscribe``. Only the wait ends before the answer.

        Raises:
            RequestTimedOut: there was no answer in time.
            SessionEnded: the session is over, or being closed.
        """
        self._check_open()
        answers = list(map(self._deselect, self.streams.unsubscribe(selector)))
        limit = self.asking.limit(seconds)
        try:
            async with asyncio.timeout(limit):
                for answer in answers:
                    await asyncio.shield(answer)
        except TimeoutError:
            raise RequestTimedOut(f"no answer within {limit} s; it is done later", sent=True) from None

    def _check_open(self) -> None:
        if self.ended is not None:
            raise self.ended.again()
        if self._closing:
            raise SessionClosed("the session is being closed")

    def _deselect(self, ask: Unsubscribe) -> asyncio.Future[Reply]:
        """Ask for what a stream leaves behind; nobody has to wait for it."""

        def refused(why: RequestRefused) -> None:
            log.warning("session %s: %s stays selected: %s", self.welcome.session, ask.selector, why)
            self.streams.lingers(parse_selector(ask.selector))

        return self.asking.deselect(ask, refused)

    async def close(self, seconds: float | None) -> None:
        """End the session on purpose; see ``Session.close``."""
        seconds = time_limit("timeout", seconds)
        if not self._closing and self.ended is None:
            self._closing = True
            self.asking.fail(SessionClosed("the session was closed before this request was answered"))
            if self._connection is not None:
                self._say_bye()
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        if not done:
            log.warning(
                "no node confirmed within %s s that session %s is closed; it ends when its window does",
                seconds,
                self.welcome.session,
            )
            # The node has had its time: what is still under way to it is dropped.
            self._reaching.hurry()
            self._task.cancel()
            await asyncio.wait([self._task])

    async def wait_closed(self) -> None:
        """Wait until the session is over and everything that belonged to it is released."""
        await asyncio.wait([self._task])

    def _say_bye(self) -> None:
        self._machine.send_link(Bye("the client closed the session"))
        self._wake()

    def _wake(self) -> None:
        if self._connection is not None:
            self._connection.wake()

    # --- Resuming: the ``Applicant`` ----------------------------------------------------------------------------------

    async def prepare(self, seconds: float) -> None:
        """See ``Applicant``."""
        self._shown = shown = await self._credentials.for_resume(seconds)
        most = self.welcome.limits.message_bytes - PACKET_OVERHEAD - len(self._token)
        if shown is not None and not (is_unicode(shown) and len(json_text(shown)) <= most):
            self._shown = None
            raise AttemptFailed(Ending(message="the fresh credentials are longer than a node accepts, or not Unicode"))

    def first_packet(self) -> Resume:
        """Make a resume with the next attempt number."""
        self._attempt += 1
        machine = self._machine
        machine.resume()
        return Resume(
            token=self._token,
            attempt=Attempt(self._attempt),
            received=NO_PACKET if self._numbering_unknown else machine.received,
            oldest=PacketId(MAX_NUMBER) if self._numbering_unknown else machine.oldest,
            principal=None if self._shown is None else self._credentials.principal,
            secret=self._shown,
            away=round((self._clock() - self._lost_at) * 1000),
            supports=SUPPORTS,
        )

    def rejected(self) -> None:
        """Go back to waiting for a connection."""
        self._machine.detach()

    def refused(self, ending: Ending) -> Ending:
        """Come again with fresh credentials where the node says that those it holds have ended."""
        if ending.error is ErrorCode.CREDENTIALS_EXPIRED and self._shown is None and self._credentials.renewable:
            self._credentials.stale = True
            return Ending(message=ending.message, code=CREDENTIALS_EXPIRED.code)
        return ending

    def accept(self, welcome: Welcome) -> None:
        """Go on as the welcome says: where both sides are, or anew with what is unanswered."""
        machine = self._machine
        if welcome.session != self.welcome.session:
            raise RemoteProtocolError("it is for another session")
        match welcome.numbering:
            case Numbering.KEPT if self._numbering_unknown:
                raise RemoteProtocolError("it goes on with a numbering that this client has given up")
            case Numbering.KEPT:
                self._resent = machine.reattach(received=welcome.received, now=self._clock())
            case Numbering.RESTARTED:
                if welcome.withdrawn:
                    self.asking.withdrawn(welcome.selections)
                missing = self.asking.missing(welcome)
                self._resent = self.asking.unanswered
                machine.restart(self._clock())
                self.streams.failed_over()
                if missing:
                    self._restore(missing, welcome.selections)
            case None:
                # Nobody can tell whose numbers count: they are given up, and another welcome is asked for (4.3.1).
                self._numbering_unknown = True
                self._token = welcome.token
                message = f"the node does not say whether numbers go on after {welcome.outcome!r}"
                raise AttemptFailed(Ending(message=message, code=GOING_AWAY.code))
        self._numbering_unknown = False
        machine.adopt(_policy(welcome))
        if self._shown is not None:
            self._credentials.stale = False
            self._shown = None
        self.welcome = welcome
        self._token = welcome.token

    def _restore(self, missing: list[ClientAsk], selections: tuple[str, ...]) -> None:
        message = f"the grid had forgotten what it had promised to this session; {len(missing)} requests restore it"
        log.warning("session %s: %s", self.welcome.session, message)
        self.notices.append(Notice(PROMISES_RESTORED, message))

        def forbidden(selector: str, why: str) -> None:
            log.warning("session %s: %s", self.welcome.session, why)
            self.notices.append(
                SelectionsWithdrawn(packets.NoticeCode.PERMISSIONS_WITHDRAWN, why, (selector,), selections)
            )

        self.asking.restore(missing, selections, forbidden)

    # --- What comes in ------------------------------------------------------------------------------------------------

    def _handle(self, received: Received) -> None:
        match received:
            case packets.Update(topic, version, event, value, snapshot, removed, folded):
                self.streams.dispatch(Update(topic, value, version, event, snapshot, removed, folded))
            case Reply():
                self.asking.answered(received)
            case packets.Notice():
                self._take_notice(received)
            case Ping(token, backoff):
                self._token = token or self._token
                self._heed(backoff)
            case GoAway() if self._connection is not None:
                self._heed(received.backoff)
                self._connection.spawn(self._leave(self._connection, received), name="gateway-client-leave")
            case Error():
                log.warning("session %s: the node reports: %s", self.welcome.session, received.message)
                self.asking.blame.told(received)
            case Bye(reason) if self._connection is not None:
                message = f"the node ended the session: {reason or 'no reason given'}"
                self._connection.end(Ending(message=message, code=NORMAL.code))
            case _:
                # The codec reads nothing else from a server.
                raise AssertionError(f"a {type(received).__name__} came from a server")

    def _take_notice(self, notice: packets.Notice) -> None:
        if notice.code == packets.NoticeCode.WITHHELD:
            return  # many of them may come, and what they are about is declared by the notice that follows
        refreshing = notice.code == EXPIRING and self._credentials.renewable
        level = logging.INFO if refreshing else logging.WARNING
        log.log(level, "session %s: the server declares: %s", self.welcome.session, notice.message)
        if refreshing:
            self._refreshing.begin()
        if notice.code == packets.NoticeCode.PERMISSIONS_WITHDRAWN:
            withdrawn, selections = notice.withdrawn or (), notice.selections or ()
            self.asking.withdrawn(selections)
            self.notices.append(SelectionsWithdrawn(notice.code, notice.message, withdrawn, selections))
        elif notice.code == packets.NoticeCode.VALUES_REREAD:
            self.notices.append(ValuesReread(notice.code, notice.message, notice.partitions or ()))
        else:
            self.notices.append(Notice(notice.code, notice.message))

    def _heed(self, backoff: Backoff | None) -> None:
        if backoff is not None:
            self._plan.advised(backoff)

    async def _leave(self, connection: Connection, go_away: GoAway) -> None:
        """Leave a node on request: within the time it gives, at a random moment, with nothing under way (P12)."""
        await asyncio.sleep(self._random.random() * go_away.delay)
        self.asking.freeze()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self.asking.idle()
        except TimeoutError:
            log.info("session %s moves with requests unanswered; they are asked again", self.welcome.session)
        self._machine.send_link(Ack(self._machine.received))
        message = f"node {self.welcome.node} asked to go away: {go_away.reason}"
        connection.end(Ending(message=message, code=GOING_AWAY.code, planned=True, node=go_away.node))


def _policy(welcome: Welcome) -> SessionPolicy:
    limits = welcome.limits
    return SessionPolicy(
        resend_packets=limits.resend_packets,
        resend_bytes=limits.resend_bytes,
        message_bytes=limits.message_bytes,
        ack_packets=max(1, min(ACK_PACKETS, limits.resend_packets // ACK_SHARE)),
        ack_delay=ACK_DELAY,
        ping_interval=welcome.ping_interval,
        ping_timeout=welcome.ping_timeout,
    )
