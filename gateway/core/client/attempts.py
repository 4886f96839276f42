"""The half of a client's machine that gets a connection: pauses, credentials, attempts, handshakes.

``machine.ClientMachine`` adds the half that uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from gateway.core.client.credentials import CredentialRefresher, Credentials
from gateway.core.client.effects import AttemptFailed, Connect, Disconnect, Effect, FetchCredentials, Purpose, Recovered
from gateway.core.client.endings import Ending
from gateway.core.client.errors import GatewayError
from gateway.core.client.handshake import HandshakeRole, HelloRole, NumberingUnknown, ResumeRole
from gateway.core.client.options import FETCH_TIMEOUT, LEAST_ATTEMPT, ClientOptions
from gateway.core.client.reconnect_plan import ReconnectPlan
from gateway.core.client.transitions import Event, State, step
from gateway.core.client.types import Recovery
from gateway.core.wire.codec import decode_from_server, encode_link
from gateway.core.wire.codes import GOING_AWAY, PROTOCOL_ERROR, Numbering
from gateway.core.wire.errors import LocalProtocolError, RemoteProtocolError
from gateway.core.wire.packets import Error, Packet, Welcome

DEFAULT_CLOSE_CODE: Final = GOING_AWAY.code
"""How a connection is closed for which there is no better code: one that does not end the session."""


class Attempts(ABC):
    """Gets connections for one session, one after the other.

    Args:
        options: where to connect, as whom.
        random: uniform in [0, 1); for jitter.

    Attributes:
        state: where the client stands; see ``transitions``.
        credentials: what the session was opened with, and goes on with.
        ended: why the session is over, or could not be opened; None while it is not.
    """

    def __init__(self, options: ClientOptions, *, random: Callable[[], float]) -> None:
        self._options = options
        self._random = random
        self._effects: list[Effect] = []
        self._plan: ReconnectPlan | None = None
        self._resume: ResumeRole | None = None
        self._url = ""
        self._secret: str | None = None
        self._first: bytes | None = None
        self._refusal: Error | None = None
        self._patience = 0.0
        self._cause = ""
        self._due: float | None = None
        """When the present state ends by itself; of ATTACHED it never does."""
        self.state = State.NEW
        self.ended: GatewayError | None = None
        self.credentials = Credentials(options)
        self._role: HandshakeRole = HelloRole(options, self.credentials)
        self._refresher = CredentialRefresher(self.credentials, self._authenticate, self._emit, random)

    # --- Inputs -------------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Effect]:
        """Begin to open the session; ``Opened`` or ``Ended`` comes of it."""
        self.state = step(self.state, Event.BEGIN)
        options = self._options
        self._plan = ReconnectPlan(
            options.urls,
            connect_timeout=options.connect_timeout,
            window=options.window,
            now=now,
            discover=options.discover,
        )
        self._wait(now)
        return self._take()

    def fetched(self, purpose: Purpose, secret: str, now: float) -> list[Effect]:
        """The application has made a fresh secret.

        Args:
            purpose: as in ``FetchCredentials``.
            secret: what it has made.
            now: the time.
        """
        if purpose is Purpose.REFRESH:
            self._refresher.fetched(secret, now)
        elif self.state is State.FETCHING:
            obstacle = self._role.obstacle(secret)
            if obstacle is None:
                self._connect(secret, now)
            else:
                self._failed(Ending(message=obstacle), now)
        return self._take()

    def not_fetched(self, purpose: Purpose, reason: str, now: float) -> list[Effect]:
        """The application could not make a fresh secret, or took too long.

        Args:
            purpose: as in ``FetchCredentials``.
            reason: for people; holds no secret.
            now: the time.
        """
        if purpose is Purpose.REFRESH:
            self._refresher.answered(reason, now)
        elif self.state is State.FETCHING:
            self._failed(Ending(message=reason), now)
        return self._take()

    def connected(self, now: float) -> list[Effect]:
        """The connection is made that ``Connect`` asked for."""
        if self.state is not State.ENDED:
            self.state = step(self.state, Event.CONNECTED)
            first = self._role.first_packet(self._secret, now)
            self._first = encode_link(replace(first, redirects=self._planned.redirects))
            self._secret = None
            self._refusal = None
            self._patience = self._within(self._options.welcome_timeout, now)
            self._due = now + self._patience
        return self._take()

    # --- Attempts -----------------------------------------------------------------------------------------------------

    def _wait(self, now: float) -> None:
        """Have the plan say when and where the next attempt begins, or that there will be none."""
        following = self._planned.next(now, self._random())
        if isinstance(following, GatewayError):
            self._end(following)
            return
        self._url = following.url
        if following.delay:
            self._due = now + following.delay
        else:
            self._attempt(now)

    def _attempt(self, now: float) -> None:
        self.state = step(self.state, Event.PAUSE_OVER)
        if self._role.shows_fresh:
            self._emit(FetchCredentials(Purpose.ATTEMPT, self._within(FETCH_TIMEOUT, now)))
        else:
            self._connect(None, now)

    def _connect(self, secret: str | None, now: float) -> None:
        self.state = step(self.state, Event.FETCHED)
        self._secret = secret
        self._emit(Connect(self._url, self._within(self._options.attempt_timeout, now)))

    def _within(self, seconds: float, now: float) -> float:
        """Cut a time limit down to what is left of the window, but not to nothing."""
        remaining = self._planned.remaining(now)
        return seconds if remaining is None else min(seconds, max(LEAST_ATTEMPT, remaining))

    def _failed(self, ending: Ending, now: float) -> None:
        """The attempt has ended without a welcome."""
        if self.state is State.HANDSHAKE:
            self._role.rejected()
            self._emit(Disconnect(close_code(ending), ending.message))
        self._secret = self._first = self._refusal = self._due = None
        self._emit(AttemptFailed(self._planned.attempts, self._url, ending))
        self.state = step(self.state, Event.FAILED)
        self._planned.failed(self._role.refused(ending), now)
        self._wait(now)

    def _shake_hands(self, message: str | bytes, now: float) -> None:
        try:
            received = decode_from_server(message)
            for index, packet in enumerate(received):
                if isinstance(packet, Welcome):
                    self._welcomed(packet, received[index + 1 :], now)
                    return
                if not isinstance(packet, Error):
                    raise RemoteProtocolError(f"the node began with {type(packet).__name__} and not with a welcome")
                # Its close code comes next and says when to try again.
                self._refusal = packet
        except RemoteProtocolError as violation:
            self._failed(Ending(message=str(violation), code=violation.close.code, violation=True), now)

    def _welcomed(self, welcome: Welcome, early: list[Packet], now: float) -> None:
        try:
            self._role.accept(welcome, now)
        except NumberingUnknown as unknown:
            self._failed(Ending(message=str(unknown), code=GOING_AWAY.code), now)
            return
        except RemoteProtocolError as error:
            message = f"the welcome does not fit: {error}"
            self._failed(Ending(message=message, code=PROTOCOL_ERROR.code, violation=True), now)
            return
        self._refusal = self._due = None
        self.state = step(self.state, Event.WELCOMED)
        if self._resume is None:
            self._open(welcome, now)
        else:
            self._emit(Recovered(self._recovery(welcome, self._resume, now)))
        self._attach(welcome, early, now)

    def _recovery(self, welcome: Welcome, resume: ResumeRole, now: float) -> Recovery:
        return Recovery(
            outcome=welcome.outcome,
            numbering=welcome.numbering or Numbering.RESTARTED,
            reason=welcome.reason,
            node=welcome.node,
            gap_seconds=now - resume.lost_at,
            resent=welcome.resent + resume.resent,
            lost=welcome.lost,
            conflated=welcome.conflated,
            replayed=resume.replayed,
            not_replayed=_not_replayed(welcome),
            attempts=self._planned.attempts,
            cause=self._cause,
        )

    # --- The other half -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self, welcome: Welcome, now: float) -> None:
        """Make what a new session consists of."""

    @abstractmethod
    def _attach(self, welcome: Welcome, early: list[Packet], now: float) -> None:
        """Begin to use a connection."""

    @abstractmethod
    def _authenticate(self, secret: str, now: float) -> None:
        """Show a fresh secret on the open connection."""

    @abstractmethod
    def _end(self, error: GatewayError) -> None:
        """Be over, or not be opened at all."""

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    @property
    def _planned(self) -> ReconnectPlan:
        return there(self._plan)


def _not_replayed(welcome: Welcome) -> tuple[int, ...]:
    """List the topic partitions of which current values follow, if the node tells them."""
    return tuple(sorted(welcome.replayed)) if isinstance(welcome.replayed, Mapping) else ()


_T = TypeVar("_T")


def there(part: _T | None) -> _T:
    """Return a part that is made when the session is opened.

    Raises:
        LocalProtocolError: it never was.
    """
    if part is None:
        raise LocalProtocolError("the session was never opened")
    return part


def close_code(ending: Ending) -> int:
    """Return the code to close a connection with."""
    return DEFAULT_CLOSE_CODE if ending.code is None else ending.code


def refused_by(refusal: Error, code: int | None) -> Ending:
    """Return how an attempt ended that a node has refused with an error packet, and closed with a code, if one came."""
    return Ending(
        message=f"the node refused: {refusal.message} ({refusal.code.value})",
        code=code,
        error=refusal.code,
        retry_after=refusal.retry_after,
        node=refusal.node,
        urls=refusal.urls or (),
    )
