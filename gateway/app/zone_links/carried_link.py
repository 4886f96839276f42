"""One link that this node carries: dialled again and again, and its state for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.app.context import Context
from gateway.app.journal.zone_events import OUT, ZoneLinkConnected, ZoneLinkGivenUp, ZoneLinkLost
from gateway.app.journal.zone_traffic import CountedLink
from gateway.app.zone_links.greeting import NotLinked, Target
from gateway.app.zone_links.sender import LinkProgress, Sender
from gateway.app.zone_links.views import ZoneLinkView
from gateway.catalogue import log_events
from gateway.catalogue import zone_link_log_events as log
from gateway.core.pacing.backoff import ReconnectBackoff
from gateway.core.wire.packets import Backoff
from gateway.core.zones.protocol import ZoneRefusal
from gateway.ports import GridUnavailable, LinkName
from gateway.ports.zone_links import NoZoneLink, ZoneLinkBroken

BACKOFF: Final = Backoff(initial=0.1, maximum=5.0, stable_after=5.0)
"""Seconds between attempts to have a link: one that was cut is back 5 s after the network at most."""


class CarriedLink:
    """A link that this node carries, up or not.

    Args:
        context: of the node.
        name: of the link.
        target: where it leads.
        progress: of the link.
        share: of the topic partitions.
        term: of the lease.
        first: which of the URLs is tried first; of fewer, the one that is found by counting round.
        connect: opens a connection, and serves what it is for.
        stale: told that another node carries the link by now.

    Attributes:
        target: as given.
        progress: as given.
        share: as given.
        term: as given.
        sender: serves the connection; None while there is none.
        detail: why there is none.
        since: when it came up, or went down, in seconds since 1970.
    """

    def __init__(
        self,
        context: Context,
        name: LinkName,
        target: Target,
        progress: LinkProgress,
        *,
        share: int,
        term: int,
        first: int,
        connect: Callable[[CarriedLink, str], Coroutine[Any, Any, None]],
        stale: Callable[[LinkName], None],
    ) -> None:
        self.target = target
        self.progress = progress
        self.share = share
        self.term = term
        self.sender: Sender | None = None
        self.remote = target.cluster or ""
        self.detail = "not reached yet"
        self._refused = False
        self.since = context.clock.wall()
        self._context = context
        self._name = name
        self._counted = CountedLink(name, target.label, OUT)
        self._connect = connect
        self._stale = stale
        self._at = first
        self._task = asyncio.create_task(self._run(), name=f"zone-link-{name}")

    async def close(self) -> None:
        """Carry it no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.sender is not None:
            self.sender = None
            self._context.announce(ZoneLinkGivenUp(self._counted, self.since))

    def view(self) -> ZoneLinkView:
        """Describe it."""
        sender, target = self.sender, self.target
        return ZoneLinkView(
            link=self._name,
            remote=self.remote,
            label=target.label,
            direction=OUT,
            kind=target.crossing.value,
            up=sender is not None,
            detail="" if sender is not None else self.detail,
            since=self.since,
            refused=self._refused,
            events=self.progress.events,
            bytes=0 if sender is None else sender.talk.connection.bytes_in + sender.talk.connection.bytes_out,
            behind=0 if sender is None else sender.behind,
            unacknowledged=0 if sender is None else sender.unacknowledged,
            selectors=len(self.progress.heard),
            clock_difference=0.0 if sender is None else sender.talk.clock_difference,
        )

    def is_up(self, sender: Sender, remote: str) -> None:
        """A connection is there."""
        self.sender, self.remote, self.since = sender, remote, sender.since
        self._context.announce(ZoneLinkConnected(self._counted))

    async def _run(self) -> None:
        """Have a connection, for ever."""
        clock = self._context.clock
        backoff = ReconnectBackoff(advice=BACKOFF)
        while True:
            began = clock.monotonic()
            try:
                await self._once()
                why, stale, self._refused = "it has ended", False, False
            except (NoZoneLink, ZoneLinkBroken, NotLinked, GridUnavailable) as error:
                why, stale = str(error), isinstance(error, NotLinked) and error.why is ZoneRefusal.STALE
                self._refused = isinstance(error, NotLinked)
            except Exception as error:  # noqa: BLE001 - the link must outlive its own bugs
                why, stale, self._refused = repr(error), False, False
                self._context.log.emit(log_events.BACKGROUND_TASK_FAILED, task="zone-link", error=why)
            if self.sender is not None:
                backoff = backoff.connected(began, BACKOFF)
            self._is_down(why)
            if stale:
                self._stale(self._name)
            wait, backoff = backoff.disconnected(clock.monotonic()).delay(clock.random())
            await asyncio.sleep(wait)

    def _is_down(self, why: str) -> None:
        context, label = self._context, self.target.label
        if self.sender is not None:
            context.announce(ZoneLinkLost(self._counted, self.since, why, self._refused))
            self.since = context.clock.wall()
        elif why != self.detail:
            context.log.emit(log.ZONE_LINK_FAILED, remote=label, link=self._name, why=why)
        self.sender, self.detail = None, why

    async def _once(self) -> None:
        """Have one connection until it breaks, to each of the URLs in turn."""
        urls = self.target.urls
        if not urls:
            raise NoZoneLink(f"nobody has told where {self.target.label} takes links")
        url = urls[self._at % len(urls)]
        self._at += 1
        await self._connect(self, url)
