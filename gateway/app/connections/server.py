"""All client connections of a node."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.connections.conversation import Conversation, Conversations
from gateway.app.connections.failures import Failures
from gateway.app.connections.first_packet import FirstPackets
from gateway.app.connections.handshake import Handshake
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.codes import GOING_AWAY
from gateway.ports import Authenticator, Connection


class Connections:
    """Serves connections: a coroutine greets the client, and a ``Conversation`` hears it from then on.

    Args:
        context: of the node.
        handshake: opens and resumes sessions.
        sessions: the sessions held here.
        requests: executes what clients ask for.
        store: confirms tokens.
        draining: whether connections that were accepted earlier come too late for a session.
    """

    def __init__(
        self,
        context: Context,
        *,
        handshake: Handshake,
        sessions: Sessions,
        requests: Requests,
        store: FencedStore,
        draining: Callable[[], bool],
    ) -> None:
        self._sessions = sessions
        self._open: set[Connection] = set()
        self._failures = Failures(context, sessions)
        self._first_packets = FirstPackets(context, handshake=handshake, failures=self._failures, draining=draining)
        self._conversations = Conversations(
            context,
            sessions=sessions,
            requests=requests,
            store=store,
            failures=self._failures,
            ended=self._open.discard,
        )
        context.metrics.watch(catalogue.CONNECTIONS, lambda: len(self._open))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def greeting(self) -> int:
        """Connections whose first packet is being answered: each may still bring a session."""
        return self._first_packets.greeting

    def close(self) -> None:
        """Close every connection with a code that lets its client go on elsewhere."""
        for connection in list(self._open):
            self._sessions.close_connection(connection, GOING_AWAY)
        self._first_packets.close()

    async def serve(self, connection: Connection, administrators: Authenticator | None = None) -> None:
        """Greet a client and see to it that it is heard; never raises for anything a client does.

        Args:
            connection: the connection.
            administrators: knows who may come in at the admin port; None for the client port.
        """
        self._open.add(connection)
        session: Session | None = None
        try:
            session = await self._first_packets.greet(connection, administrators)
        except Exception as error:  # noqa: BLE001 - a bug met on one connection must not harm the others
            self._failures.met(connection, None, error)
        finally:
            if session is None:
                self._open.discard(connection)
        if session is not None:
            connection.listen(Conversation(self._conversations, session, connection))
