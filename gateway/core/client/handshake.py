"""The two roles in which a client begins a connection: who opens a session, and who resumes it (protocol section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gateway.core.client.credentials import Credentials
from gateway.core.client.effects import Effect, FailedOver
from gateway.core.client.endings import Ending
from gateway.core.client.options import ClientOptions
from gateway.core.client.request_sender import RequestSender
from gateway.core.client.request_table import PACKET_OVERHEAD
from gateway.core.client.stream_parameters import parameters_of
from gateway.core.stream.machine import SessionMachine
from gateway.core.types import Attempt, PacketId
from gateway.core.wire.codec import MAX_NUMBER, json_text
from gateway.core.wire.codes import CREDENTIALS_EXPIRED, ErrorCode, Numbering
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Hello, Resume, Welcome
from gateway.core.wire.properties import is_unicode

NO_PACKET: Final = PacketId(0)
"""What has been received by a client that has no count of its own any more."""

MILLISECONDS: Final = 1000
"""In a second."""

LONG_SECRET: Final = 16 * 1024
"""Characters of a fresh secret beside which no positions are named: in a first message of 64 KiB there is room for
both, but a node may take less."""


class NumberingUnknown(Exception):
    """A welcome does not say whether packet numbers go on, in words that this client understands (protocol 4.3.1)."""


class HandshakeRole(Protocol):
    """Who wants a welcome."""

    @property
    def shows_fresh(self) -> bool:
        """Whether the next first packet carries a secret that the application has to make before."""

    def obstacle(self, secret: str) -> str | None:
        """Tell why a fresh secret cannot be shown; None if it can."""

    def first_packet(self, secret: str | None, now: float) -> Hello | Resume:
        """Make the packet that a new connection begins with.

        Args:
            secret: fresh from the application, or None.
            now: the time.
        """

    def accept(self, welcome: Welcome, now: float) -> None:
        """Take a welcome on, before any packet that follows it.

        Raises:
            RemoteProtocolError: it is no answer to what was sent; nothing was changed.
            NumberingUnknown: another welcome has to be asked for.
        """

    def rejected(self) -> None:
        """No acceptable welcome came on the connection for which ``first_packet`` was made."""

    def refused(self, ending: Ending) -> Ending:
        """Judge how an attempt ended: a way on may be known where others would give up."""


class HelloRole:
    """Opens a session.

    Args:
        options: who the session is for.
        credentials: what it is opened with.
    """

    def __init__(self, options: ClientOptions, credentials: Credentials) -> None:
        self._options = options
        self._credentials = credentials

    @property
    def shows_fresh(self) -> bool:
        """See ``HandshakeRole``."""
        return self._credentials.renewable

    def obstacle(self, secret: str) -> str | None:  # noqa: ARG002 - the node judges it
        """See ``HandshakeRole``."""
        return None

    def first_packet(self, secret: str | None, now: float) -> Hello:  # noqa: ARG002 - a hello has no history
        """See ``HandshakeRole``."""
        options = self._options
        return Hello(
            principal=options.principal,
            secret=self._credentials.secret if secret is None else secret,
            properties=dict(options.properties),
            client=options.client,
            window=options.window,
            supports=options.supports,
        )

    def accept(self, welcome: Welcome, now: float) -> None:  # noqa: ARG002 - nothing goes on
        """See ``HandshakeRole``."""
        if welcome.numbering is Numbering.KEPT:
            raise RemoteProtocolError(f"a new session was asked for, and the outcome is {welcome.outcome}")

    def rejected(self) -> None:
        """See ``HandshakeRole``; there is nothing to undo."""

    def refused(self, ending: Ending) -> Ending:
        """See ``HandshakeRole``; what a node says counts as it is."""
        return ending


class ResumeRole:
    """Resumes a session, as often as it has to.

    Args:
        welcome: the one that opened it.
        stream: its machine of packets.
        sender: of its requests.
        credentials: what it was opened with, and goes on with.
        emit: takes effects.
        options: who the session is for.

    Attributes:
        welcome: the last one.
        lost_at: when its connection was lost.
        resent: packets of this side that are sent again since the last welcome.
        replayed: whether everything that was missed follows the last welcome, though numbering began anew.
    """

    def __init__(
        self,
        welcome: Welcome,
        stream: SessionMachine,
        sender: RequestSender,
        credentials: Credentials,
        emit: Callable[[Effect], None],
        *,
        options: ClientOptions,
    ) -> None:
        self.welcome = welcome
        self._options = options
        self.lost_at = 0.0
        self.resent = 0
        self.replayed = False
        self._positions = sender.positions
        self._stream = stream
        self._sender = sender
        self._credentials = credentials
        self._emit = emit
        self._token = welcome.token
        self._attempt = 0
        self._fresh = False
        self._numbering_unknown = False

    def renewed(self, token: str) -> None:
        """The node has handed a new token out on the open connection."""
        self._token = token

    @property
    def shows_fresh(self) -> bool:
        """See ``HandshakeRole``."""
        return self._credentials.stale and self._credentials.renewable

    def obstacle(self, secret: str) -> str | None:
        """See ``HandshakeRole``."""
        most = self.welcome.limits.message_bytes - PACKET_OVERHEAD - len(self._token)
        if is_unicode(secret) and len(json_text(secret)) <= most:
            return None
        return "the fresh credentials are longer than a node accepts, or not Unicode"

    def first_packet(self, secret: str | None, now: float) -> Resume:
        """See ``HandshakeRole``; the attempt's number grows with each."""
        self._attempt += 1
        self._fresh = secret is not None
        self._stream.resume()
        positions, unfinished = self._positions.named(self._sender.unanswered_subscribes())
        if secret is not None and len(secret) > LONG_SECRET:
            self._positions.nothing_named()
            positions, unfinished = {}, {}
        return Resume(
            token=self._token,
            attempt=Attempt(self._attempt),
            received=NO_PACKET if self._numbering_unknown else self._stream.received,
            oldest=PacketId(MAX_NUMBER) if self._numbering_unknown else self._stream.oldest,
            principal=None if secret is None else self._credentials.principal,
            secret=secret,
            away=round((now - self.lost_at) * MILLISECONDS),
            supports=self._options.supports,
            positions=positions,
            unfinished=unfinished,
        )

    def rejected(self) -> None:
        """Go back to waiting for a connection."""
        self._stream.detach()

    def refused(self, ending: Ending) -> Ending:
        """Come again with fresh credentials where the node says that those it holds have ended."""
        if ending.error is ErrorCode.CREDENTIALS_EXPIRED and not self._fresh and self._credentials.renewable:
            self._credentials.stale = True
            return Ending(message=ending.message, code=CREDENTIALS_EXPIRED.code)
        return ending

    def accept(self, welcome: Welcome, now: float) -> None:
        """Go on as the welcome says: where both sides are, or anew with what is unanswered."""
        if welcome.session != self.welcome.session:
            raise RemoteProtocolError("it is for another session")
        match welcome.numbering:
            case Numbering.KEPT if self._numbering_unknown:
                raise RemoteProtocolError("it goes on with a numbering that this client has given up")
            case Numbering.KEPT:
                self.resent = self._stream.reattach(received=welcome.received, now=now)
                self.replayed = False
            case Numbering.RESTARTED:
                self._restart(welcome, now)
            case None:
                # Nobody can tell whose numbers count: they are given up, and another welcome is asked for (4.3.1).
                self._numbering_unknown = True
                self._token = welcome.token
                raise NumberingUnknown(f"the node does not say whether numbers go on after {welcome.outcome!r}")
        self._numbering_unknown = False
        self._stream.adopt(parameters_of(welcome, self._options.ack_packets))
        if self._fresh:
            self._credentials.stale = False
            self._fresh = False
        self.welcome = welcome
        self._token = welcome.token

    def _restart(self, welcome: Welcome, now: float) -> None:
        if welcome.withdrawn:
            self._sender.withdrawn(welcome.selections)
        missing = self._sender.missing(welcome)
        self.resent = self._sender.unanswered
        self._stream.restart(now)
        self.replayed = self._positions.restarted(welcome.replayed)
        if not self.replayed:
            self._emit(FailedOver())
        if missing:
            self._sender.restore(missing, welcome.selections)
