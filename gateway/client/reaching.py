"""From the decision to connect to a node's welcome: attempts, one after the other, until one succeeds or none can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import aiohttp

from gateway.client.connection import DEFAULT_CLOSE_CODE
from gateway.client.credentials import FETCH_TIMEOUT
from gateway.client.handshake import shake_hands
from gateway.client.options import Options
from gateway.client.transport import AttemptFailed, Transport, open_websocket
from gateway.core.client.endings import Ending
from gateway.core.client.reconnect_plan import ReconnectPlan
from gateway.core.client.urls import describe_url
from gateway.core.wire.codes import PROTOCOL_ERROR
from gateway.core.wire.errors import GatewayError, RemoteProtocolError
from gateway.core.wire.packets import Hello, Packet, Resume, Welcome

LEAST_ATTEMPT: Final = 0.25
"""Seconds that an attempt has even if it begins at the very end of the window: less is no attempt on a real network."""

log = logging.getLogger("gateway.client")


class Applicant(Protocol):
    """Who wants a welcome: the opening of a session, or a session that resumes."""

    async def prepare(self, seconds: float) -> None:
        """Make ready for an attempt, in *seconds* at most: what is to be shown may have to be fetched.

        Raises:
            AttemptFailed: it could not be had.
        """

    def first_packet(self) -> Hello | Resume:
        """Make the packet that a new connection begins with."""

    def accept(self, welcome: Welcome) -> None:
        """Take a welcome on, before any packet that follows it.

        Raises:
            RemoteProtocolError: it is no answer to what was sent; nothing was changed.
        """

    def rejected(self) -> None:
        """No acceptable welcome came on the connection for which ``first_packet`` was made."""

    def refused(self, ending: Ending) -> Ending:
        """Judge how an attempt ended: the applicant may know a way on where others would give up."""


class Reached(NamedTuple):
    """A node has welcomed the applicant.

    Attributes:
        transport: the connection.
        welcome: as accepted.
        early: packets that came in the same message after it.
    """

    transport: Transport
    welcome: Welcome
    early: list[Packet]


class Reaching:
    """Makes and unmakes the connections of one session.

    Args:
        options: time limits, TLS and headers.
        http: whose connections to use; closed by ``release``.
        plan: decides where and when.
        clock: seconds of a monotonic clock.
        random: for jitter.
    """

    def __init__(
        self,
        options: Options,
        http: aiohttp.ClientSession,
        plan: ReconnectPlan,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._options = options
        self._http = http
        self._plan = plan
        self._clock = clock
        self._random = random
        self._partings: set[asyncio.Task[None]] = set()
        self._hurried = False

    async def reach(self, applicant: Applicant) -> Reached:
        """Try until a node welcomes the applicant.

        Raises:
            ConnectFailed: the session could not be opened.
            SessionEnded: the session cannot be resumed.
        """
        while True:
            following = self._plan.next(self._clock(), self._random.random())
            if isinstance(following, GatewayError):
                raise following
            if following.delay:
                await asyncio.sleep(following.delay)
                if self._plan.remaining(self._clock()) == 0:
                    continue
            try:
                return await self._try(following.url, applicant)
            except AttemptFailed as failure:
                where, why = describe_url(following.url), failure.ending.message
                log.info("attempt %d, at %s, failed: %s", self._plan.attempts, where, why)
                self._plan.failed(applicant.refused(failure.ending), self._clock())

    async def _try(self, url: str, applicant: Applicant) -> Reached:
        await applicant.prepare(self._within(FETCH_TIMEOUT))
        transport = await open_websocket(
            self._http,
            url,
            seconds=self._within(self._options.attempt_timeout),
            ssl=self._options.ssl,
            headers=self._options.headers,
        )
        ending = Ending(message="the client stops")
        first = applicant.first_packet()
        try:
            welcome, early = await shake_hands(transport, first, seconds=self._within(self._options.welcome_timeout))
            try:
                applicant.accept(welcome)
            except RemoteProtocolError as error:
                message = f"the welcome does not fit: {error}"
                raise AttemptFailed(Ending(message=message, code=PROTOCOL_ERROR.code, violation=True)) from None
        except BaseException as error:
            if isinstance(error, AttemptFailed):
                ending = error.ending
            applicant.rejected()
            code = DEFAULT_CLOSE_CODE if ending.code is None else ending.code
            self.part(transport.close(code, ending.message, []))
            raise
        return Reached(transport, welcome, early)

    def _within(self, seconds: float) -> float:
        """Cut a time limit down to what is left of the window, but not to nothing."""
        remaining = self._plan.remaining(self._clock())
        return seconds if remaining is None else min(seconds, max(LEAST_ATTEMPT, remaining))

    def part(self, closing: Coroutine[Any, Any, None]) -> None:
        """Close a connection without waiting for it: the other side may be dead, and the next attempt is urgent."""
        task = asyncio.get_running_loop().create_task(closing, name="gateway-client-part")
        self._partings.add(task)
        task.add_done_callback(self._parted)
        if self._hurried:
            task.cancel()

    def _parted(self, task: asyncio.Task[None]) -> None:
        self._partings.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("closing a connection failed by a bug of this client", exc_info=error)

    def hurry(self) -> None:
        """Drop connections that are being closed, now and from now on: nobody waits for the other side any more."""
        self._hurried = True
        for task in self._partings:
            task.cancel()

    async def release(self) -> None:
        """Wait until the connections are closed, which takes a bounded time, and release everything."""
        if self._partings:
            await asyncio.wait(self._partings)
        await self._http.close()
