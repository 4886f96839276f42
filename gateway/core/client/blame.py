"""Which request it was that a node closes the connection for: sent again, it would be closed again (protocol 4.8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from gateway.core.client.endings import Ending
from gateway.core.client.errors import RequestRefused, refusal
from gateway.core.client.request_table import RequestTable
from gateway.core.types import RequestNumber
from gateway.core.wire.codes import MESSAGE_TOO_BIG, PROTOCOL_ERROR, ErrorCode, Reconnect
from gateway.core.wire.packets import Error

_SUSPICIOUS: Final = frozenset({MESSAGE_TOO_BIG.code, PROTOCOL_ERROR.code})
"""Close codes of nodes that could not take what this client sent (protocol 4.8.2)."""


class Culprit(NamedTuple):
    """A request that must not be sent again.

    Attributes:
        request: its number.
        error: what its caller is told.
    """

    request: RequestNumber
    error: RequestRefused


class Blame:
    """Looks at how connections of one session end.

    Args:
        table: the session's requests.
    """

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self._named: Error | None = None
        self._suspect: RequestNumber | None = None

    def told(self, error: Error) -> None:
        """The node says what went wrong on the connection of the moment."""
        if error.request is not None:
            self._named = error

    def find(self, ending: Ending) -> tuple[Culprit | None, Ending]:
        """A connection that was in use has ended: tell because of which request, if it was because of one.

        The node names it; or it is the oldest one without an answer on two such connections in a row.

        Returns:
            The request, or None; and the ending, excused if it is one request's fault or may turn out to be.
        """
        named, self._named = self._named, None
        suspect, self._suspect = self._suspect, None
        if named is not None and named.request is not None and self._table.is_unanswered(named.request):
            excused = replace(ending, excused=Reconnect.AT_ONCE, violation=False)
            return Culprit(named.request, refusal(named.code, named.message)), excused
        oldest = self._table.oldest_unanswered
        if ending.code not in _SUSPICIOUS or ending.violation or oldest is None:
            return None, ending
        excused = replace(ending, excused=Reconnect.LATER)
        if oldest != suspect:
            self._suspect = oldest
            return None, excused
        code = ErrorCode.MESSAGE_TOO_BIG if ending.code == MESSAGE_TOO_BIG.code else ErrorCode.PROTOCOL_ERROR
        message = f"two connections in a row were closed while this request had no answer: {ending.message}"
        return Culprit(oldest, refusal(code, message)), excused
