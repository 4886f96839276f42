"""How a connection, or an attempt at one, ended, and what that means for the next one."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.wire.codes import ERRORS, ErrorCode, Reconnect, reconnect_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a connection, or an attempt at one, ended.

    Attributes:
        message: for people; holds no token and no secret.
        code: the WebSocket close code, or None if there was none.
        error: the code of an error packet that came in place of a welcome, or None.
        retry_after: seconds of that error packet, or None.
        hung: the other side did not answer at all.
        permanent: trying the same URL again is useless, as far as one can tell: not found, wrong certificate.
        planned: the client left because the node had asked it to.
        violation: one of the two sides broke the protocol.
        node: where the node that asked to leave wants the client to go; None for anywhere.
        urls: where clients reach that node, as far as a node has told.
        excused: how to come back in spite of the close code, as one request is, or may be, to blame (protocol 4.8).
    """

    message: str
    code: int | None = None
    error: ErrorCode | None = None
    retry_after: float | None = None
    hung: bool = False
    permanent: bool = False
    planned: bool = False
    violation: bool = False
    node: str | None = None
    urls: tuple[str, ...] = ()
    excused: Reconnect | None = None

    @property
    def reconnect(self) -> Reconnect:
        """What to do next: the close code's range decides, or the error packet if the code was lost on the way."""
        if self.excused is not None:
            return self.excused
        if self.code is not None or self.error is None:
            return reconnect_for(self.code)
        # A stale attempt is not retryable as such, but the next attempt carries a higher number.
        if ERRORS[self.error].retryable or self.error is ErrorCode.STALE_ATTEMPT:
            return Reconnect.LATER
        return Reconnect.NEVER


class CannotConnect(Exception):
    """A connection could not be made: what the transport of a shell raises.

    Attributes:
        ending: how the attempt ended.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending
