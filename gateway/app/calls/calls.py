"""Which calls there are, and how each is executed: implements ``gateway.ports.Calls``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

from gateway.app.calls.callers import Caller, Callers, unavailable
from gateway.app.calls.idempotency_keys import IdempotencyKeys
from gateway.app.calls.publishing import CallPublishing
from gateway.app.calls.reading import CallReading
from gateway.app.calls.sending import CallSending
from gateway.app.calls.streams import Streams
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.revocations import Revocations
from gateway.catalogue import call_metrics as catalogue
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    HISTORY_PATH,
    LIST_PATH,
    PUBLISH_PATH,
    SEND_PATH,
    STREAM_PATH,
    VALUES_PATH,
    AdmittedCall,
    Call,
    CallAnswer,
    CallRefused,
    EventSource,
)

JSON_TYPE: Final = "application/json"

LONGEST_KEY: Final = 255
"""Characters of an idempotency key: a UUID has 36."""

MOST_BODIES: Final = 64 * 1024 * 1024
"""Bytes of bodies that the node waits for or works on at a time: dozens of the largest, thousands of usual ones."""

MOST_OF_ONE: Final = MOST_BODIES // 4
"""Of one principal."""

Execute: TypeAlias = Callable[[bytes], Awaitable[CallAnswer | EventSource]]

ExecuteBody: TypeAlias = Callable[[Caller, bytes, str], Awaitable[CallAnswer]]
"""Does what the body of a call asks for, under an idempotency key; empty for none."""


class _Admitted:
    """A call that has been admitted; see ``AdmittedCall``."""

    __slots__ = ("_execute", "_release", "most_bytes")

    def __init__(self, execute: Execute, most_bytes: int, release: Callable[[], None]) -> None:
        self.most_bytes = most_bytes
        self._execute = execute
        self._release = release

    async def execute(self, body: bytes) -> CallAnswer | EventSource:
        """See ``AdmittedCall``."""
        try:
            return await self._execute(body)
        finally:
            self._release()

    def abandon(self) -> None:
        """See ``AdmittedCall``."""
        self._release()


class NodeCalls:
    """Executes the calls that come to a node.

    Args:
        context: of the node.
        authentication: says who calls, by their credentials.
        authorisation: what they may do.
        revocations: who is refused, whatever they show.
        requests: know where history and values are found.
        sessions: beside which streams are read.

    Attributes:
        streams: of events.
    """

    def __init__(
        self,
        context: Context,
        authentication: Authentication,
        authorisation: Authorisation,
        revocations: Revocations,
        requests: Requests,
        *,
        sessions: Sessions,
    ) -> None:
        self._metrics = context.metrics
        self._callers = Callers(context, authentication, authorisation, revocations)
        keys = IdempotencyKeys(context)
        self._publishing = CallPublishing(context, self._callers, keys, authorisation)
        self._sending = CallSending(context, self._callers, keys, authorisation)
        presence = sessions.delivery.watchers.presence
        self._reading = CallReading(context, authorisation, requests.pages, requests.values, presence)
        self.streams = Streams(context, sessions, authorisation, revocations)
        self._body_bytes = context.parameters.limits.message_bytes
        self._held: dict[str, int] = {}
        self._held_in_all = 0

    async def admit(self, call: Call) -> AdmittedCall:
        """See ``gateway.ports.Calls``."""
        prepare = self._find(call)
        caller = await self._callers.recognise(call)
        return prepare(call, caller)

    def _find(self, call: Call) -> Callable[[Call, Caller], AdmittedCall]:
        if call.path == PUBLISH_PATH:
            _check_method(call, "POST")
            _check_type(call.headers.get("content-type", ""))
            return partial(self._prepare_body, self._publishing.execute)
        if call.path == SEND_PATH:
            _check_method(call, "POST")
            _check_type(call.headers.get("content-type", ""))
            return partial(self._prepare_body, self._sending.execute)
        if call.path == STREAM_PATH:
            _check_method(call, "GET")
            return self._prepare_stream
        if call.path == LIST_PATH or call.path.startswith((VALUES_PATH, HISTORY_PATH)):
            _check_method(call, "GET")
            return self._prepare_read
        raise CallRefused(
            HTTPStatus.NOT_FOUND,
            "no_such_page",
            f"there are {PUBLISH_PATH}, {SEND_PATH}, {STREAM_PATH}, {LIST_PATH}, {VALUES_PATH}TOPIC and "
            f"{HISTORY_PATH}SELECTOR here",
        )

    # --- Publish and send ---------------------------------------------------------------------------------------------

    def _prepare_body(self, do: ExecuteBody, call: Call, caller: Caller) -> AdmittedCall:
        key = call.headers.get("idempotency-key", "").strip()
        if len(key) > LONGEST_KEY:
            raise CallRefused(
                HTTPStatus.BAD_REQUEST, "bad_key", f"an Idempotency-Key has at most {LONGEST_KEY} characters"
            )
        wanted = _length(call.headers)
        most = self._body_bytes
        if wanted > most:
            raise CallRefused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "message_too_big",
                f"the body has {wanted} bytes; limit_message_bytes is {most}",
            )
        held = self._held.get(caller.principal, 0)
        if held + wanted > MOST_OF_ONE or self._held_in_all + wanted > MOST_BODIES:
            self._metrics.add(catalogue.CALLS, label="limited")
            raise unavailable("too many bytes of calls are under way; try again")
        self._hold(caller.principal, wanted)

        async def execute(body: bytes) -> CallAnswer:
            self._callers.review(caller)  # its body may have come long after its head
            answer = await do(caller, body, key)
            self._metrics.add(catalogue.CALLS, label="answered")
            return answer

        return _Admitted(execute, wanted, lambda: self._hold(caller.principal, -wanted))

    def _hold(self, principal: str, change: int) -> None:
        self._held_in_all += change
        held = self._held.get(principal, 0) + change
        if held:
            self._held[principal] = held
        else:
            self._held.pop(principal, None)

    # --- Follow -------------------------------------------------------------------------------------------------------

    def _prepare_stream(self, call: Call, caller: Caller) -> AdmittedCall:
        async def execute(_: bytes) -> EventSource:
            return self.streams.open(call, caller)

        return _Admitted(execute, 0, lambda: None)

    # --- Read ---------------------------------------------------------------------------------------------------------

    def _prepare_read(self, call: Call, caller: Caller) -> AdmittedCall:
        async def execute(_: bytes) -> CallAnswer:
            permissions = caller.permissions
            if call.path == LIST_PATH:
                answer = await self._reading.values(caller, call.query)
            elif call.path.startswith(VALUES_PATH):
                answer = await self._reading.value(caller, call.path.removeprefix(VALUES_PATH))
            else:
                answer = await self._reading.history(caller, call.path.removeprefix(HISTORY_PATH), call.query)
            self._callers.review(caller)
            if caller.permissions is not permissions:
                # What was withdrawn meanwhile is not told any more.
                raise unavailable("what you may do has changed while this was read; try again", ErrorCode.TRY_LATER)
            self._metrics.add(catalogue.CALLS, label="answered")
            return answer

        return _Admitted(execute, 0, lambda: None)


def _check_method(call: Call, method: str) -> None:
    if call.method != method:
        raise CallRefused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method_not_allowed",
            f"it is called with {method}",
            headers={"Allow": method},
        )


def _check_type(value: str) -> None:
    # What a page of another origin may send without asking is refused, whoever its visitor is.
    if value.partition(";")[0].strip().lower() != JSON_TYPE:
        raise CallRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            f"the body must be JSON: Content-Type: {JSON_TYPE}",
        )


def _length(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise CallRefused(
            HTTPStatus.LENGTH_REQUIRED,
            "length_required",
            "say how long the body is: Content-Length, and no Transfer-Encoding",
        )
    return int(length)
