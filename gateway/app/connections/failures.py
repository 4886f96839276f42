"""Connections that end because something went wrong: what is logged, what the client is told."""

from __future__ import annotations

from gateway.app.admission.refusals import COME_AGAIN
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.core.wire import codec
from gateway.core.wire.codes import INTERNAL_ERROR, TRY_LATER, CloseCode, ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Error
from gateway.ports import Connection


class Failures:
    """Ends connections with an error packet and a close code.

    Args:
        context: of the node.
        sessions: the sessions held here, which count what is closed.
    """

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._log = context.log
        self._memory = context.memory
        self._sessions = sessions

    def met(self, connection: Connection, session: Session | None, bug: Exception) -> None:
        """A bug was met on one connection, which must not harm the others; or memory ran out, which is nobody's."""
        if isinstance(bug, MemoryError):
            self._out_of_memory(connection, session)
            return
        self._log.emit(events.CONNECTION_FAILED, session=session.id if session else None, error=repr(bug))
        self.end(connection, INTERNAL_ERROR, Error(ErrorCode.INTERNAL, "the node failed on this connection"))

    def _out_of_memory(self, connection: Connection, session: Session | None) -> None:
        """What was said could not be taken in: the client comes back and says it again."""
        self._memory.exhausted("to take in what a client said")
        why = "the node is short of memory and could not take this in; come back, and say it again"
        self.end(connection, TRY_LATER, Error(ErrorCode.TRY_LATER, why, COME_AGAIN))
        if session is not None and session.connection is connection:
            self._sessions.detach(session, connection)
            # A part may have been taken in; that it all comes again is certain only after a gap is declared.
            self._sessions.absences.give_up(session)

    def violated(self, connection: Connection, violation: RemoteProtocolError) -> None:
        """The client has broken the protocol."""
        self._log.emit(events.PROTOCOL_VIOLATED, address=connection.address, error=str(violation))
        self.end(connection, violation.close, Error(violation.code, str(violation), request=violation.request))

    def too_big(self, connection: Connection, beginning: bytes, reason: str) -> None:
        """A message was larger than the connection takes, which closes it; tell the client which it was (4.8.1)."""
        error = Error(ErrorCode.MESSAGE_TOO_BIG, reason, request=codec.request_of(beginning))
        connection.write(codec.encode_link(error))

    def end(self, connection: Connection, close: CloseCode, error: Error) -> None:
        """Tell the client why, and close."""
        connection.write(codec.encode_link(error))
        self._sessions.close_connection(connection, close)
