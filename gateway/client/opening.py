"""The beginning of a session: a hello, and a welcome that begins a numbering (protocol 4.1)."""

from __future__ import annotations

from gateway.client.credentials import Credentials
from gateway.client.options import CLIENT_NAME, SUPPORTS, Options
from gateway.core.client.endings import Ending
from gateway.core.wire.codes import Numbering
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Hello, Welcome


class Opening:
    """The ``reaching.Applicant`` for a new session.

    Args:
        options: who the session is for.
        credentials: what it is opened with.
    """

    def __init__(self, options: Options, credentials: Credentials) -> None:
        self._options = options
        self._credentials = credentials
        self._secret: str | None = None

    async def prepare(self, seconds: float) -> None:
        """See ``Applicant``."""
        self._secret = await self._credentials.for_hello(seconds)

    def first_packet(self) -> Hello:
        """See ``Applicant``."""
        options = self._options
        return Hello(
            principal=options.principal,
            secret=self._secret,
            properties=dict(options.properties),
            client=CLIENT_NAME,
            window=options.window,
            supports=SUPPORTS,
        )

    def accept(self, welcome: Welcome) -> None:
        """See ``Applicant``."""
        if welcome.numbering is Numbering.KEPT:
            raise RemoteProtocolError(f"a new session was asked for, and the outcome is {welcome.outcome}")

    def rejected(self) -> None:
        """See ``Applicant``; there is nothing to undo."""

    def refused(self, ending: Ending) -> Ending:
        """See ``Applicant``; what a node says counts as it is."""
        return ending
