"""All client connections of a node."""

from __future__ import annotations

from gateway.app.admission.handshake_limiter import HandshakeLimiter
from gateway.app.admission.refusals import ClientGone, HandshakeRefused
from gateway.app.cluster.cluster_list import ClusterList
from gateway.app.cluster.followers import Followers
from gateway.app.cluster.grid_recovery import GridRecovery
from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.cluster.membership import Membership
from gateway.app.cluster.mirror.source import MirrorSource
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.connections.claimer import SessionClaimer
from gateway.app.connections.conversation import Conversation, Conversations, FailureHandler
from gateway.app.connections.first_packet import FirstPackets
from gateway.app.connections.hello import HelloHandler
from gateway.app.connections.ladder import RecoveryLadder
from gateway.app.connections.offered import OfferedSessions
from gateway.app.connections.resume import ResumeHandler
from gateway.app.connections.session_factory import SessionFactory
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.codes import GOING_AWAY
from gateway.core.wire.errors import RemoteProtocolError
from gateway.ports import Authenticator, Connection, TokenSigner


class Connections:
    """Serves connections: a coroutine answers the first packet, a ``Conversation`` receives what comes from then on.

    Args:
        context: of the node.
        store: writes the sessions held here.
        sessions: those sessions.
        requests: executes what clients ask for.
        authentication: says who clients are, by their credentials.
        signer: signs and reads the tokens they come back with.
        authorisation: what they may do.
        revocations: who is refused, whatever they show.
        enforcement: ends the sessions of those who are.
        grid_recovery: knows whether the grid has lost writes.
        handshake_limiter: says when the grid may be asked for a session.
        taker: asks other nodes for what they held of a session.
        links: to other nodes; None if there are none.
        mirror: keeps a backup of this node; None if it has none.
        cluster_list: where clients reach the nodes.
        followers: sends clients to the master that follow it.

    Attributes:
        consumers: of the sessions held here.
        exchanges: questions and answers of these.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        requests: Requests,
        authentication: Authentication,
        signer: TokenSigner,
        authorisation: Authorisation,
        revocations: Revocations,
        enforcement: Enforcement,
        grid_recovery: GridRecovery,
        membership: Membership,
        handshake_limiter: HandshakeLimiter,
        taker: SessionTaker,
        links: NodeLinks | None,
        mirror: MirrorSource | None,
        cluster_list: ClusterList,
        followers: Followers,
    ) -> None:
        self._sessions = sessions
        self._mirror = mirror
        self.consumers = requests.consumers
        self.exchanges = requests.exchanges
        self._open: set[Connection] = set()
        self._failures = FailureHandler(context, sessions)
        session_factory = SessionFactory(
            context,
            store=store,
            sessions=sessions,
            requests=requests,
            authorisation=authorisation,
            mirror=mirror,
            cluster_list=cluster_list,
        )
        claimer = SessionClaimer(
            context,
            store=store,
            sessions=sessions,
            session_factory=session_factory,
            authorisation=authorisation,
            revocations=revocations,
            enforcement=enforcement,
            is_recovering=grid_recovery.is_recovering,
            is_in_doubt=membership.is_in_doubt,
        )
        self._first_packets = FirstPackets(
            context,
            hello_handler=HelloHandler(
                context,
                store=store,
                sessions=sessions,
                authentication=authentication,
                authorisation=authorisation,
                revocations=revocations,
                enforcement=enforcement,
                claimer=claimer,
                session_factory=session_factory,
                handshake_limiter=handshake_limiter,
            ),
            resume_handler=ResumeHandler(
                context,
                store=store,
                sessions=sessions,
                authentication=authentication,
                signer=signer,
                revocations=revocations,
                claimer=claimer,
                ladder=RecoveryLadder(
                    context,
                    sessions=sessions,
                    requests=requests,
                    session_factory=session_factory,
                    authorisation=authorisation,
                    taker=taker,
                    has_lost=grid_recovery.has_lost,
                ),
                handshake_limiter=handshake_limiter,
            ),
            refuse=self._failures.end,
            followers=followers,
        )
        self._conversations = Conversations(
            context,
            sessions=sessions,
            requests=requests,
            store=store,
            taker=taker,
            failures=self._failures,
            ended=self._open.discard,
        )
        if links is not None:
            OfferedSessions(
                context,
                links,
                store=store,
                sessions=sessions,
                session_factory=session_factory,
                requests=requests,
                authorisation=authorisation,
                revocations=revocations,
                enforcement=enforcement,
                taker=taker,
            )
        context.metrics.watch(catalogue.CONNECTIONS, lambda: len(self._open))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def handshakes(self) -> int:
        """Connections whose first packet is being answered: each may still bring a session."""
        return self._first_packets.in_progress

    def close(self) -> None:
        """Close every connection with a code that lets its client go on elsewhere."""
        for connection in list(self._open):
            self._sessions.close_connection(connection, GOING_AWAY)
        self._first_packets.close()

    async def serve(self, connection: Connection, administrators: Authenticator | None = None) -> None:
        """Give a client its session and receive what it says; never raises for anything a client does.

        Args:
            connection: the connection.
            administrators: knows who may come in at the admin port; None for the client port.
        """
        if self._mirror is not None and administrators is None:
            connection = self._mirror.wrap(connection)
        self._open.add(connection)
        session: Session | None = None
        try:
            try:
                session = await self._first_packets.answer(connection, administrators)
            except RemoteProtocolError as violation:
                self._failures.violated(connection, violation)
            except HandshakeRefused as refused:
                self._failures.end(connection, refused.close, refused.error)
            except ClientGone:
                pass
        except Exception as error:  # noqa: BLE001 - a bug met on one connection must not harm the others
            self._failures.failed(connection, None, error)
        finally:
            if session is None:
                self._open.discard(connection)
        if session is not None:
            connection.listen(Conversation(self._conversations, session, connection))
