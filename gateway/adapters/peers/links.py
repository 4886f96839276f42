"""All links of a node: who is met, which of two connections stays, and what is told of it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from math import nan
from ssl import SSLContext, SSLError
from typing import Final, Protocol

from gateway.adapters.acceptor import Acceptor
from gateway.adapters.known_runs import KnownRuns
from gateway.adapters.peers.dialer import Dialer
from gateway.adapters.peers.frames import FRAME_BYTES, PROTOCOLS
from gateway.adapters.peers.greeting import NotGreeted, Stranger, check_expected, check_hello
from gateway.adapters.peers.hello import Hello, Refused
from gateway.adapters.peers.inbox import Inbox
from gateway.adapters.peers.link import End, Greeted, Link
from gateway.adapters.peers.told import Told
from gateway.catalogue import link_metrics
from gateway.catalogue import log_events as events
from gateway.catalogue.refusals import LinkRefusal
from gateway.core.types import NodeId, NodeRef
from gateway.ports import EventLog, Metrics
from gateway.ports.peers import DOWN, Down, LinkEvent, LinkLimits, LinkState, NoLink, PeerPlace, Up
from gateway.settings.grid_url import HIGHEST_PORT

GREETING_SECONDS: Final = 5.0
"""For TLS and both hellos: many slow round trips; somebody who says nothing has a place no longer than that."""

MOST_LINKS: Final = 256
"""Nodes with a link. Each costs up to ``LinkLimits`` of memory, so that strangers must not make up names without end,
where there are no certificates."""

UNLISTED_SECONDS: Final = 15.0
"""For which a node may have a link that the node table does not list: it has just started, and tables are some seconds
old."""

FRESH_BEATS: Final = 2
"""Heartbeats within which something must have been heard on a link for it to be preferred to a new connection: else the
other node knows better that it is broken."""


class LinkContexts(Protocol):
    """How to speak TLS on links that begin now."""

    def accepting(self) -> SSLContext:
        """With a node that connects; it must show a certificate."""

    def dialing(self) -> SSLContext:
        """With a node that is dialled; names are not compared with addresses, but with nodes, and not here."""


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """Where a node listens for others.

    Attributes:
        host: where to listen.
        port: likewise; 0 for a free one.
        advertised: where others find it, as host and port; a port of 0 stands for the one it listens on.
    """

    host: str
    port: int
    advertised: tuple[str, int]


class StreamPeerLinks:
    """``PeerLinks`` over streams of asyncio.

    Args:
        me: this node.
        started: when it started, in seconds since 1970.
        place: where it listens.
        tls: certificates; None for clear text, which only other processes of this machine may hear.
        metrics: where numbers go.
        log: where is told what happens.
        heartbeat: seconds after which something is sent in any case.
        features: what this node can do beyond the protocol.
        limits: what a link may cost.
        protocols: versions that it speaks.
        patience: seconds that the node with the larger name leaves the dialling to the other one.
    """

    def __init__(
        self,
        me: NodeRef,
        *,
        started: float,
        place: LinkPlace,
        tls: LinkContexts | None,
        metrics: Metrics,
        log: EventLog,
        heartbeat: float = 0.5,
        features: Iterable[str] = (),
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - it does not change
        protocols: tuple[int, ...] = PROTOCOLS,
        patience: float = 1.0,
    ) -> None:
        self.me = me
        self.protocols = protocols
        self._started = started
        self._place = place
        self._tls = tls
        self._metrics = metrics
        self._log = log
        self._heartbeat = heartbeat
        self._features = frozenset(features)
        self._limits = limits
        self._patience = patience
        self._cluster = ""
        self._closed = False
        self._runs = KnownRuns()
        self._links: dict[NodeRef, Link] = {}
        self._dialers: dict[NodeRef, Dialer] = {}
        self._greeting: set[NodeId] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._unlisted: dict[NodeRef, asyncio.TimerHandle] = {}
        self._inbox = Inbox()
        self._told = Told(log)
        self._watched: set[str] = set()
        self._acceptor = Acceptor(place.host, place.port, greet=self._accepted, crowded_out=self._crowded_out)
        self._past = {"frames_in": 0, "frames_out": 0, "bytes_in": 0, "bytes_out": 0}
        self._watch()

    # --- The port -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """See ``PeerLinks.address``."""
        host, port = self._place.advertised
        return f"[{host}]:{port or self._acceptor.port}" if ":" in host else f"{host}:{port or self._acceptor.port}"

    async def start(self) -> None:
        """See ``PeerLinks.start``."""
        await self._acceptor.start()

    def meet(self, cluster: str, peers: Mapping[NodeRef, PeerPlace]) -> None:
        """See ``PeerLinks.meet``."""
        if self._closed:
            return
        if cluster != self._cluster:
            for link in tuple(self._links.values()):
                self._hang_up(link, f"the cluster is {cluster} now")
        self._cluster = cluster
        self._runs.meet({run: place for run, place in peers.items() if run.node != self.me.node})
        for peer, link in tuple(self._links.items()):
            if self._runs.has_left(peer):
                self._hang_up(link, f"{peer} has left the cluster")
        wanted = self._runs.wanted()
        self._watch_silence(peer.node for peer in wanted)
        for peer in self._dialers.keys() - wanted.keys():
            self._dialers.pop(peer).close()
        for peer, found in wanted.items():
            dialer = self._dialers.get(peer)
            if dialer is not None and dialer.address == found.address:
                continue
            if dialer is not None:
                dialer.close()
            self._dialers[peer] = self._dialer(peer, found)

    def state(self, node: NodeRef) -> LinkState:
        """See ``PeerLinks.state``."""
        link = self._links.get(node)
        return DOWN if link is None else link.state()

    async def ask(self, to: NodeRef, kind: str, question: bytes, *, within: float) -> bytes:
        """See ``PeerLinks.ask``."""
        return await self._link(to).ask(kind, question, within=within)

    def send(self, to: NodeRef, kind: str, record: bytes) -> int:
        """See ``PeerLinks.send``."""
        return self._link(to).send(kind, record)

    def events(self) -> AsyncIterator[LinkEvent]:
        """See ``PeerLinks.events``."""
        return self._inbox.events()

    async def close(self) -> None:
        """See ``PeerLinks.close``."""
        self._closed = True
        for dialer in self._dialers.values():
            dialer.close()
        await asyncio.gather(*(dialer.closed() for dialer in self._dialers.values()))
        self._dialers.clear()
        await self._acceptor.close()
        for timer in self._unlisted.values():
            timer.cancel()
        for link in tuple(self._links.values()):
            self._hang_up(link, f"{self.me.node} stops")
        await asyncio.gather(*self._ending)

    # --- Links --------------------------------------------------------------------------------------------------------

    def _link(self, to: NodeRef) -> Link:
        link = self._links.get(to)
        if link is None:
            raise NoLink(f"there is no link to {to}")
        return link

    def _link_of(self, run: NodeRef, started: float) -> Link | None:
        """Return the link to a run of a node, or to a newer one: that answers where the older one did."""
        link = self._links.get(run)
        if link is not None:
            return link
        return next(
            (
                other
                for peer, other in self._links.items()
                if peer.node == run.node and (other.greeted.started, peer) > (started, run)
            ),
            None,
        )

    def _begin(self, greeted: Greeted) -> None:
        """Have a link with who was greeted, in place of any other."""
        peer = greeted.peer
        greeted.frames.most = FRAME_BYTES
        before = self._links.get(peer)
        if before is not None:
            self._hang_up(before, "another connection took over")
        for other, link in tuple(self._links.items()):
            if other.node == peer.node:
                self._hang_up(link, f"{peer} is a newer run")
        self._runs.greeted(peer, greeted.started)
        self._told.clear(peer.node)
        self._inbox.put(Up(peer, greeted.features))
        self._links[peer] = Link(
            greeted, inbox=self._inbox, limits=self._limits, heartbeat=self._heartbeat, ended=self._ended
        )
        if not self._runs.is_listed(peer):
            loop = asyncio.get_running_loop()
            self._unlisted[peer] = loop.call_later(UNLISTED_SECONDS, self._hang_up_unlisted, peer)
        self._log.emit(events.LINK_UP, peer=str(peer), dialed_by=self.me.node if greeted.dialed else peer.node)

    def _ended(self, link: Link, end: End) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
        for name in self._past:
            self._past[name] += getattr(link, name)
        self._inbox.put(Down(link.peer, end.why, planned=end.planned))
        timer = self._unlisted.pop(link.peer, None)
        if timer is not None:
            timer.cancel()
        if end.planned:
            self._log.emit(events.LINK_ENDED, peer=str(link.peer), why=end.why)
        else:
            self._metrics.add(link_metrics.LINKS_LOST)
            self._log.emit(events.LINK_DOWN, peer=str(link.peer), why=end.why)

    def _hang_up(self, link: Link, why: str) -> None:
        link.end(End(why, planned=True), goodbye=True)
        task = asyncio.create_task(link.close(End(why, planned=True)), name="link-close")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _hang_up_unlisted(self, peer: NodeRef) -> None:
        self._unlisted.pop(peer, None)
        link = self._links.get(peer)
        if link is not None and not self._runs.is_listed(peer):
            self._hang_up(link, f"{peer} holds no lease")

    def _hello(self) -> Hello:
        return Hello(
            cluster=self._cluster,
            node=self.me,
            started=self._started,
            protocols=frozenset(self.protocols),
            features=self._features,
        )

    def _check(self, stranger: Stranger, theirs: Hello) -> int:
        """Make sure that a link with this node may be.

        Returns:
            The version of the protocol.

        Raises:
            NotGreeted: it may not.
        """
        stranger.check_certificate(theirs)
        protocol = check_hello(self._hello(), theirs)
        peer = theirs.node
        if self._runs.is_old(peer, theirs.started):
            raise NotGreeted(
                LinkRefusal.OLD_RUN, f"{peer} has left the cluster, or was started anew since", peer=peer.node
            )
        if len(self._links) >= MOST_LINKS and peer not in self._links:
            raise NotGreeted(LinkRefusal.TOO_MANY, f"there are {MOST_LINKS} links already", peer=peer.node)
        return protocol

    def _greeted(self, stranger: Stranger, theirs: Hello, protocol: int, *, dialed: bool) -> Greeted:
        return Greeted(
            theirs.node,
            theirs.started,
            protocol,
            self._features & theirs.features,
            dialed,
            stranger.reader,
            stranger.writer,
            stranger.frames,
        )

    # --- Who is dialled -----------------------------------------------------------------------------------------------

    def _dialer(self, peer: NodeRef, found: PeerPlace) -> Dialer:
        return Dialer(
            peer,
            found.address,
            dial=self._dial,
            link=lambda: self._link_of(peer, found.started),
            patience=self._patience if self.me > peer else 0.0,
            random=random.random,
        )

    async def _dial(self, peer: NodeRef, address: str) -> None:
        """Try once to have a link."""
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                await self._meet_at(peer, address)
        except NotGreeted as error:
            if not (error.told and error.reason in {LinkRefusal.DUPLICATE, LinkRefusal.NOT_READY}):
                self._told.failed(peer.node, address, f"{error.reason.value}: {error}")
        except TimeoutError:
            self._told.failed(peer.node, address, f"no answer within {GREETING_SECONDS:g} s")
        except OSError as error:
            self._told.failed(peer.node, address, _reason(error))
        except ValueError as error:
            # Another node has advertised it; a name with an empty label is a UnicodeError, of the look-up.
            self._told.failed(peer.node, address, f"this is no address: {error}")
        finally:
            self._greeting.discard(peer.node)

    async def _meet_at(self, peer: NodeRef, address: str) -> None:
        host, port = _place_of(address)
        if self._tls is None and not await _is_this_machine(host, port):
            raise NotGreeted(
                LinkRefusal.TLS, "without certificates a link stays on its machine; see link_tls_certificate"
            )
        context = None if self._tls is None else self._tls.dialing()
        stranger = Stranger(*await asyncio.open_connection(host, port, ssl=context))
        self._greeting.add(peer.node)
        try:
            stranger.write(self._hello())
            theirs = await stranger.hello()
            protocol = self._check(stranger, theirs)
            check_expected(theirs, peer.node)
            # If it was started anew, whoever is there now is who a link is wanted with. To hang up would have it take
            # this connection for a link, and its own, which is good, for a second one.
            peer = theirs.node
            other = self._links.get(peer)
            if other is not None and self.me > peer and self._is_fresh(other):
                raise NotGreeted(LinkRefusal.DUPLICATE, "the other node's connection stays", told=True)
        except BaseException:
            stranger.abort()
            raise
        self._begin(self._greeted(stranger, theirs, protocol, dialed=True))

    # --- Who dials ----------------------------------------------------------------------------------------------------

    async def _accepted(self, accepted: socket.socket, address: str) -> None:
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                stranger = await self._opened(accepted)
        except (OSError, TimeoutError) as error:
            # Probes connect and go; that is counted, and no news.
            reason = LinkRefusal.TLS if isinstance(error, SSLError) else LinkRefusal.SILENT
            self._refused(address, reason, _reason(error), tell=isinstance(error, SSLError))
            return
        try:
            await self._greet(stranger, address)
        except BaseException:
            stranger.abort()
            raise

    async def _opened(self, accepted: socket.socket) -> Stranger:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        context = None if self._tls is None else self._tls.accepting()
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context)
        except BaseException:
            accepted.close()
            raise
        return Stranger(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _greet(self, stranger: Stranger, address: str) -> None:
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                theirs = await stranger.hello()
            protocol = self._check(stranger, theirs)
            self._choose(theirs.node)
            stranger.write(self._hello())
        except NotGreeted as error:
            self._refused(error.peer or address, error.reason, str(error))
            await stranger.refuse(Refused(error.reason, str(error)))
            return
        except (OSError, TimeoutError) as error:
            self._refused(address, LinkRefusal.SILENT, _reason(error), tell=False)
            stranger.abort()
            return
        self._begin(self._greeted(stranger, theirs, protocol, dialed=False))

    def _choose(self, peer: NodeRef) -> None:
        """Decide whether a connection of *peer* may become the link: of two, the one of the smaller node stays.

        Raises:
            NotGreeted: another one stays.
        """
        if self.me > peer:
            return
        other = self._links.get(peer)
        stays = peer.node in self._greeting if other is None else other.greeted.dialed and self._is_fresh(other)
        if stays:
            raise NotGreeted(LinkRefusal.DUPLICATE, f"{self.me.node} has dialled {peer.node}, too", peer=peer.node)

    def _is_fresh(self, link: Link) -> bool:
        return link.silence() <= FRESH_BEATS * self._heartbeat

    def _crowded_out(self, address: str) -> None:
        self._refused(address, LinkRefusal.CROWDED_OUT, "too many connections had not said which nodes they are")

    def _refused(self, peer: str, reason: LinkRefusal, detail: str, *, tell: bool = True) -> None:
        self._metrics.add(link_metrics.LINKS_REFUSED, label=reason.value)
        if tell and reason not in {LinkRefusal.DUPLICATE, LinkRefusal.NOT_READY}:
            self._told.refused(peer, reason, detail)

    # --- Numbers ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        watch = self._metrics.watch
        watch(link_metrics.LINKS, lambda: len(self._links), label="up")
        watch(link_metrics.LINKS, lambda: len(self._dialers.keys() - self._links.keys()), label="down")
        watch(link_metrics.LINK_QUEUED_BYTES, lambda: sum(link.queued for link in self._links.values()))
        for direction in ("in", "out"):
            watch(link_metrics.LINK_FRAMES, self._total(f"frames_{direction}"), label=direction)
            watch(link_metrics.LINK_BYTES, self._total(f"bytes_{direction}"), label=direction)

    def _total(self, name: str) -> Callable[[], float]:
        return lambda: self._past[name] + sum(getattr(link, name) for link in self._links.values())

    def _watch_silence(self, nodes: Iterable[str]) -> None:
        """Show of nodes how long they have been silent: of those in the node table, for strangers make up names."""
        for node in nodes:
            if node not in self._watched and len(self._watched) < MOST_LINKS:
                self._watched.add(node)
                self._metrics.watch(link_metrics.LINK_SILENCE_SECONDS, partial(self._silence, node), label=node)

    def _silence(self, node: str) -> float:
        return next((link.silence() for peer, link in self._links.items() if peer.node == node), nan)


def _place_of(address: str) -> tuple[str, int]:
    """Read host and port of an address.

    Raises:
        ValueError: it is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not 0 < int(port) <= HIGHEST_PORT:
        raise ValueError("a host and a port are needed")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def _is_this_machine(host: str, port: int) -> bool:
    """Tell whether a name leads to this machine alone."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return all(ip_address(address[0]).is_loopback for *_, address in found)


def _reason(error: OSError) -> str:
    if isinstance(error, SSLError):
        return f"TLS: {error.reason or error}"
    return error.strerror or str(error) or type(error).__name__
