"""Calls: what back ends ask for by HTTP, one request each and without a session (docs: reference/client-api.md).

The client port reads the head of a request and has it admitted, then reads the body, and has the call executed. Nothing
of a body is read, and held in memory, before it is known whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, Protocol

from gateway.core.wire.errors import GatewayError
from gateway.ports.streams import EventSource

PUBLISH_PATH = "/v1/publish"
"""Sets topics."""

SEND_PATH = "/v1/send"
"""Sends to queues."""

LIST_PATH = "/v1/values"
"""Reads the values of all topics that selectors match."""

VALUES_PATH = "/v1/values/"
"""Before a topic: reads its value."""

STREAM_PATH = "/v1/stream"
"""Follows topics, as server-sent events."""

HISTORY_PATH = "/v1/history/"
"""Before a selector: reads what was published to the topics that it matches."""


class Call(NamedTuple):
    """The head of a call.

    Attributes:
        method: of HTTP.
        path: as it was sent, with what is escaped in it.
        query: likewise, without the question mark.
        headers: by their names in lower case.
        address: where it comes from, as far as trusted proxies tell.
        abandoned: tells whether nobody waits for the answer any more.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    address: str
    abandoned: Callable[[], bool]


class CallAnswer(NamedTuple):
    """The answer to a call.

    Attributes:
        status: of HTTP.
        content: compact JSON text.
    """

    status: HTTPStatus
    content: bytes


class CallRefused(GatewayError):
    """A call is not executed, or nobody knows whether it was. The message is one or two sentences for people.

    Attributes:
        status: of HTTP.
        code: by which programs tell why: an error code of the protocol, where there is one.
        retry_after: seconds after which it makes sense to come again; None if it makes none.
        headers: of the answer, besides the usual ones.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.headers = headers or {}


class AdmittedCall(Protocol):
    """A call of somebody who is known. Exactly one of its methods is called, once."""

    @property
    def most_bytes(self) -> int:
        """How many bytes its body may have; 0 if it has none."""

    async def execute(self, body: bytes) -> CallAnswer | EventSource:
        """Do what it asks for.

        Returns:
            The answer, or what a stream of events is read from: whoever gets that has its ``ended`` called.

        Raises:
            CallRefused: it is not done, or nobody knows.
        """

    def abandon(self) -> None:
        """Its body does not come."""


class Calls(Protocol):
    """Executes calls."""

    async def admit(self, call: Call) -> AdmittedCall:
        """Tell who calls, and whether the call is one that can be executed.

        Raises:
            CallRefused: nobody who is admitted, too many calls, or no such call.
        """
