"""Serves the operations of the admin API: finds out who asks, reads, does, answers, and writes the audit log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from ssl import SSLContext, create_default_context
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler as WebHandler

from gateway.adapters.admin.access import Caller
from gateway.adapters.admin.forwarder import Forwarder, NoAnswer
from gateway.adapters.admin.guard import Guard
from gateway.adapters.admin.models.base import Told
from gateway.adapters.admin.openapi import written
from gateway.adapters.admin.operations import Call, Operation, Raw, path_parameters, read_call
from gateway.adapters.admin.problems import HEADERS, Fault, Kind, Problem, dumps
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.ports import EventLog, GridUnavailable, Metrics
from gateway.ports.administration import (
    Administration,
    BadParameter,
    Conflict,
    Forbidden,
    HeldElsewhere,
    NotThere,
    Refused,
)

RETRY_AFTER: Final = "1"
"""Seconds after which what cannot be done now may be asked for again: a grid that restarts is back by then."""

_UNKNOWN: Final = {
    "node": Kind.NODE_UNKNOWN,
    "session": Kind.SESSION_UNKNOWN,
    "topic": Kind.TOPIC_UNKNOWN,
    "destination": Kind.DESTINATION_UNKNOWN,
    "durable": Kind.DURABLE_UNKNOWN,
    "hook": Kind.HOOK_UNKNOWN,
    "queue": Kind.QUEUE_UNKNOWN,
    "revocation": Kind.REVOCATION_UNKNOWN,
    "zone": Kind.ZONE_UNKNOWN,
    "join": Kind.JOIN_UNKNOWN,
}


_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_ANYTHING: Final = r"{\1:[^/]+}"
"""What a parameter in a path may be: topics, principals and ids of credentials may have braces, which aiohttp leaves
out unless it is told so."""


class AdminApi:
    """The admin API of one node.

    Args:
        administration: the use cases.
        operations: what is served.
        guard: who may ask.
        version: of the gateway.
        metrics: where requests are counted.
        log: where changes and refusals are told.
        tls: how to speak TLS with other nodes' admin ports; see ``Forwarder``.
    """

    def __init__(
        self,
        administration: Administration,
        operations: Sequence[Operation],
        *,
        guard: Guard,
        version: str,
        metrics: Metrics,
        log: EventLog,
        tls: Callable[[], SSLContext] = create_default_context,
    ) -> None:
        self._administration = administration
        self._operations = operations
        self._guard = guard
        self._metrics = metrics
        self._log = log
        self._forwarder = Forwarder(administration.node, tls)
        self._document = written(tuple(operations), version=version)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Serve the operations, and the document that describes them."""
        router.add_get("/openapi.json", self._openapi)
        for operation in self._operations:
            handler = self._handler(operation)
            path = _PARAMETER.sub(_ANYTHING, operation.path)
            if operation.method == "GET":
                router.add_get(path, handler)  # with HEAD
            else:
                router.add_route(operation.method, path, handler)

    async def close(self) -> None:
        """Give up the connections to other nodes."""
        await self._forwarder.close()

    async def _openapi(self, request: web.Request) -> web.Response:
        self._guard.check_host(request)
        return web.Response(body=self._document, headers={"Content-Type": "application/json", **HEADERS})

    def _handler(self, operation: Operation) -> WebHandler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                answer = await self._serve(operation, request)
            except Problem as problem:
                answer = problem.response()
            self._metrics.add(catalogue.ADMIN_REQUESTS, label=str(answer.status))
            return answer

        return handle

    async def _serve(self, operation: Operation, request: web.Request) -> web.Response:
        self._guard.check_host(request)
        caller: Caller | None = None
        try:
            caller = self._guard.authenticate(request)
            self._guard.authorise(caller, operation.action)
        except Problem as problem:
            if problem.kind not in {Kind.TOO_MANY_FAILURES, Kind.ADMINISTRATION_OFF}:
                self._tell(operation, request, caller, str(problem.kind.slug), refused=True)
            raise
        try:
            answer, by = await self._do(operation, request, caller)
        except Problem as problem:
            if operation.changes:
                self._tell(operation, request, caller, problem.kind.slug)
            raise
        except BaseException:
            if operation.changes:
                self._tell(operation, request, caller, "unknown")
            raise
        if operation.changes:
            outcome = _outcome(answer.status)
            self._tell(operation, request, caller, outcome if by is None else f"{outcome} by {by}")
        return answer

    async def _do(self, operation: Operation, request: web.Request, caller: Caller) -> tuple[web.Response, str | None]:
        """Do what was asked for; returns the answer, and which other node gave it."""
        call = await read_call(request, operation, caller, self._guard.allowed(caller))
        try:
            return _answer(operation, await operation.handle(self._administration, call)), None
        except HeldElsewhere as elsewhere:
            if self._forwarder.was_forwarded(request) is not None:
                raise Problem(
                    Kind.UNAVAILABLE, "the session has just moved; ask again", headers={"Retry-After": RETRY_AFTER}
                ) from None
            return await self._elsewhere(operation, request, call, elsewhere)
        except GridUnavailable as error:
            raise _unavailable(error, operation) from None
        except Refused as refused:
            raise _problem(refused, operation) from None

    async def _elsewhere(
        self, operation: Operation, request: web.Request, call: Call, elsewhere: HeldElsewhere
    ) -> tuple[web.Response, str | None]:
        owner = elsewhere.owner.node
        try:
            if elsewhere.admin is None:
                raise NoAnswer("it has no lease, or has not reported the address of its admin port", may_be_done=False)
            answer = await self._forwarder.forward(request, elsewhere.admin)
        except NoAnswer as silence:
            why = f"{owner} has to be asked, but {silence}"
            if operation.fallback is None:
                if operation.changes and silence.may_be_done:
                    why += "; it may have done what was asked for all the same: look before you ask again"
                raise Problem(Kind.OWNER_UNREACHABLE, why) from None
            try:
                return _answer(operation, await operation.fallback(self._administration, call, why)), None
            except GridUnavailable as error:
                raise _unavailable(error, operation) from None
            except Refused as refused:
                raise _problem(refused, operation) from None
        headers: Mapping[str, str] = {**HEADERS, **answer.headers}
        return web.Response(status=answer.status, body=answer.body or None, headers=headers), owner

    def _tell(
        self, operation: Operation, request: web.Request, caller: Caller | None, outcome: str, *, refused: bool = False
    ) -> None:
        """Write a line of the audit log; untrusted text is escaped by the log."""
        self._log.emit(
            events.ADMIN_REFUSED if refused else events.ADMIN_ACTED,
            caller=None if caller is None else caller.name,
            roles=[] if caller is None else sorted(caller.roles),
            action=None if operation.action is None else operation.action.value,
            operation=operation.name,
            target=", ".join(f"{name} {value}" for name, value in path_parameters(request).items()),
            outcome=outcome,
            address=request.remote or "",
            forwarded_by=self._forwarder.was_forwarded(request),
        )


def _answer(operation: Operation, result: Told | Raw | None) -> web.Response:
    if result is None:
        return web.Response(status=operation.status, headers=HEADERS)
    is_pending = operation.pending is not None and isinstance(result, operation.pending)
    status = HTTPStatus.ACCEPTED if is_pending else operation.status
    content: Any = result.content if isinstance(result, Raw) else result.model_dump(mode="json", by_alias=True)
    return web.Response(status=status, body=dumps(content), headers={"Content-Type": "application/json", **HEADERS})


def _outcome(status: int) -> str:
    """Tell the audit log what an answer says."""
    if status >= HTTPStatus.BAD_REQUEST:
        return str(status)
    return "accepted" if status == HTTPStatus.ACCEPTED else "done"


def _unavailable(error: GridUnavailable, operation: Operation) -> Problem:
    detail = f"the grid: {error}"
    if operation.changes:
        detail += "; the change may have been made all the same: look, or ask again"
    return Problem(Kind.UNAVAILABLE, detail, headers={"Retry-After": RETRY_AFTER})


def _problem(refused: Refused, operation: Operation) -> Problem:
    match refused:
        case NotThere():
            return Problem(_UNKNOWN[refused.kind], str(refused))
        case BadParameter():
            where = "query"
            if operation.path_model is not None and refused.name in operation.path_model.model_fields:
                where = "path"
            elif operation.body_model is not None and refused.name in operation.body_model.model_fields:
                where = "body"
            name = f"/{refused.name}" if where == "body" else refused.name
            return Problem(Kind.BAD_REQUEST, f"{refused.name}: {refused}", [Fault(where, name, str(refused))])
        case Conflict():
            return Problem(Kind.CONFLICT, str(refused))
        case Forbidden():
            return Problem(Kind.RESERVED, str(refused))
    return Problem(Kind.CONFLICT, str(refused))
