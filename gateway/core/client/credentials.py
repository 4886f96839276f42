"""What a client shows of itself: one secret for good, or a fresh one whenever it is needed (protocol 5.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.client.effects import Effect, FetchCredentials, Purpose, RefreshFailed
from gateway.core.client.options import FETCH_TIMEOUT, ClientOptions
from gateway.core.wire.packets import NoticeCode

REFRESH_INITIAL: Final = 1.0
"""Seconds until a refresh that failed is tried again; doubles with each failure."""

REFRESH_MAXIMUM: Final = 10.0
"""Seconds up to which that doubles: short against the minute between the notice and the end."""

EXPIRING: Final = NoticeCode.CREDENTIALS_EXPIRING.value
"""Code of the notice that asks for fresh credentials."""


class Credentials:
    """The credentials of one session.

    Args:
        options: say whose they are, and whether there can be fresh ones.

    Attributes:
        principal: who shows them; empty if the secret tells.
        renewable: whether there can be fresh ones.
        stale: those that the server holds have ended, or will soon.
        secret: for good; None if there is none, or the application makes them.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.principal = options.principal
        self.renewable = options.renewable
        self.stale = False
        self.secret = options.secret


class CredentialRefresher:
    """Shows fresh credentials on the open connection, when those of the session are about to end (protocol 5.9.3).

    ```text
            begin           fetched          answered
      idle ───────▶ fetching ──────▶ asking ─────────▶ idle, or fetching if they have become stale again
                     ▲    └──failed──┐  └─refused┐
                     └──── tick ──── pausing ◀───┘
    ```

    One refresh does, over any number of connections.

    Args:
        credentials: of the session.
        ask: has the server asked to take a secret; ``answered`` comes of it.
        emit: takes effects.
        random: uniform in [0, 1); spreads the attempts of many clients.

    Attributes:
        due: when ``tick`` has something to do; None for never.
    """

    def __init__(
        self,
        credentials: Credentials,
        ask: Callable[[str, float], None],
        emit: Callable[[Effect], None],
        random: Callable[[], float],
    ) -> None:
        self._credentials = credentials
        self._ask = ask
        self._emit = emit
        self._random = random
        self._notices = 0
        self._notices_before = 0
        self._at_work = False
        self._pause = REFRESH_INITIAL
        self.due: float | None = None

    def begin(self) -> None:
        """The credentials end soon: see to it that they do not."""
        self._credentials.stale = True
        self._notices += 1
        if not self._at_work:
            self._at_work = True
            self._pause = REFRESH_INITIAL
            self._fetch()

    def fetched(self, secret: str, now: float) -> None:
        """The application has made a fresh one."""
        if self._at_work:
            self._ask(secret, now)

    def answered(self, refusal: str | None, now: float) -> None:
        """The server has taken the fresh one, or refused it, or the application could not make one.

        Args:
            refusal: why not; None if it was taken.
            now: the time.
        """
        if not self._at_work:
            return
        if refusal is not None:
            self._emit(RefreshFailed(refusal))
            self.due = now + self._pause * (1 + self._random())
            self._pause = min(REFRESH_MAXIMUM, 2 * self._pause)
            return
        # A notice that came meanwhile may already speak of those that were shown just now.
        if self._notices == self._notices_before:
            self._credentials.stale = False
        self._fetch()

    def tick(self, now: float) -> None:
        """Try again, if it is time to."""
        if self.due is not None and now >= self.due:
            self.due = None
            self._fetch()

    def stop(self) -> None:
        """The session is over, or being closed."""
        self._at_work = False
        self.due = None

    def _fetch(self) -> None:
        # A resume may have shown fresh ones meanwhile.
        if not self._credentials.stale:
            self._at_work = False
            return
        self._notices_before = self._notices
        self._emit(FetchCredentials(Purpose.REFRESH, FETCH_TIMEOUT))
