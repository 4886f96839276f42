"""What a node tells the others of itself, for administrators who ask any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gateway.app.cluster.cluster_list import ClusterList
from gateway.app.cluster.readiness import Readiness
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.core.pacing.shared_bytes import HeldBytes
from gateway.core.types import NodeRef
from gateway.ports import GridUnavailable, NodeReport, PeerLinks, ZoneLinkReport


class Presence:
    """Reports this node to the grid: with every renewal of its lease, and when something has changed that matters.

    Args:
        context: of the node.
        sessions: the sessions held here.
        readiness: tells why no new sessions should come here.
        links: to other nodes, if there are any.
        suspects: the nodes that this one suspects.
        cluster_list: told where the nodes say that clients reach them.

    Attributes:
        lag: seconds by which the event loop was late when that was last measured.
        zone_place: tells where it takes links of other clusters, and the fingerprint of its certificate there.
        zone_links: tells of the links to other clusters that it has.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        *,
        readiness: Readiness,
        links: PeerLinks | None = None,
        suspects: Callable[[], Sequence[NodeRef]] = tuple,
        cluster_list: ClusterList,
    ) -> None:
        self._me = context.me
        self._grid = context.grid
        self._background = context.background
        self._stored = context.limits.stored
        self._sessions = sessions
        self._readiness = readiness
        self._lifecycle = context.lifecycle
        self._links = links
        self._suspects = suspects
        self._cluster_list = cluster_list
        self._urls: tuple[str, ...] = ()
        self._failure_domain = context.parameters.mirror.failure_domain
        self._started = context.clock.wall()
        self._places: tuple[str, str, str] | None = None
        self.lag = 0.0
        self.zone_place: Callable[[], tuple[str, str]] = lambda: ("", "")
        self.zone_links: Callable[[], Sequence[ZoneLinkReport]] = tuple

    def announce(self, *, listen: str, admin: str, version: str, urls: tuple[str, ...] = ()) -> None:
        """Begin to report; the ports are known only once they listen.

        Args:
            listen: where clients connect, as host:port.
            admin: where the other nodes reach the admin port, as a URL without a path.
            version: of the gateway.
            urls: where clients reach it, of what it advertises.
        """
        self._urls = urls
        self._places = (listen, admin, version)
        self.tell_soon()

    def report(self) -> NodeReport | None:
        """Tell how it is now; None before ``announce``."""
        if self._places is None:
            return None
        listen, admin, version = self._places
        connected = self._sessions.connected()
        held = self._stored.report()
        zone_url, zone_fingerprint = self.zone_place()
        return NodeReport(
            listen=listen,
            admin=admin,
            version=version,
            started=self._started,
            draining=self._lifecycle.draining,
            reasons=tuple(self._readiness.reasons()),
            connected=connected,
            disconnected=len(self._sessions) - connected,
            lag=self.lag,
            link="" if self._links is None else self._links.address,
            link_protocols=() if self._links is None else self._links.protocols,
            session_bytes=held.total,
            largest=held.large,
            failure_domain=self._failure_domain,
            suspects=tuple(map(str, self._suspects())),
            urls=self._urls,
            zone_url=zone_url,
            zone_fingerprint=zone_fingerprint,
            zone_links=tuple(self.zone_links()),
        )

    async def tell(self) -> None:
        """Report now; a grid that is unreachable is told with the next renewal."""
        report = self.report()
        if report is not None:
            with suppress(GridUnavailable):
                await self._grid.nodes.report(self._me, report)

    async def hear(self) -> None:
        """Take in what the nodes tell of themselves that matters here: what their sessions take, and where they are.

        Raises:
            GridUnavailable: to be asked again with the next renewal; until then they are taken to be as they were.
        """
        entries = await self._grid.nodes.entries()
        self._cluster_list.heard(entries)
        reports = [each.report for each in entries if each.node != self._me and each.report is not None]
        self._stored.told([HeldBytes(each.session_bytes, dict(each.largest)) for each in reports])

    def tell_soon(self) -> None:
        """Report without waiting for it."""
        self._background.once(self.tell(), "report-node")
