"""What an operation of the admin API is: declared once, served, checked and documented from that.

A request is read by the models of its operation, and refused with everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from aiohttp import web
from multidict import MultiMapping
from pydantic import ValidationError

from gateway.adapters.admin.access import Action, Caller
from gateway.adapters.admin.models.base import Given, Told
from gateway.adapters.admin.problems import Fault, Kind, Problem
from gateway.core.url_segments import from_segment
from gateway.ports.administration import Administration


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, checked.

    Attributes:
        caller: who asks.
        allowed: what the caller may do at this moment.
        path: an instance of the operation's ``path_model``; the others likewise, None where it has none.
        query: parameters.
        headers: parameters.
        body: what was sent.
    """

    caller: Caller
    allowed: frozenset[Action]
    path: Any = None
    query: Any = None
    headers: Any = None
    body: Any = None


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer that is JSON already, or holds parts that are (``orjson.Fragment``)."""

    content: Mapping[str, object]


Handler: TypeAlias = Callable[[Administration, Call], Awaitable[Told | Raw | None]]
"""Does what was asked for; raises what ``gateway.ports.administration`` says, or a ``Problem``."""

Fallback: TypeAlias = Callable[[Administration, Call, str], Awaitable[Told | Raw | None]]
"""Does what can be done if the node that has to be asked does not answer; the text says why it was not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Attributes:
        name: its id in the OpenAPI document.
        method: of HTTP.
        path: with parameters in braces.
        tag: what it is about.
        summary: a few words for people.
        description: the rest of what they should know.
        action: what it does, as permissions name it; None for what everybody may who has a token.
        handle: does it.
        result: what is answered; None for nothing.
        status: of the answer.
        path_model: parameters in the path.
        query_model: parameters in the query.
        header_model: parameters in headers.
        body_model: the body.
        body_needed: whether there must be one.
        problems: what can go wrong besides what can always.
        fallback: see ``Fallback``; None if nothing can be done.
        pending: what is answered instead of the result, with 202, if what was asked for is begun and not confirmed;
            None if that cannot be.
    """

    name: str
    method: str
    path: str
    tag: str
    summary: str
    description: str = ""
    action: Action | None
    handle: Handler
    result: type[Told] | None
    status: HTTPStatus = HTTPStatus.OK
    path_model: type[Given] | None = None
    query_model: type[Given] | None = None
    header_model: type[Given] | None = None
    body_model: type[Given] | None = None
    body_needed: bool = True
    problems: tuple[Kind, ...] = ()
    fallback: Fallback | None = None
    pending: type[Told] | None = None

    @property
    def changes(self) -> bool:
        """Whether it changes anything, so that it stands in the audit log."""
        return self.method != "GET"


GivenT = TypeVar("GivenT", bound=Given)

MOST_FAULTS: Final = 20
"""Faults named in one answer: whoever has more, corrects these first."""

_JSON: Final = "application/json"


async def read_call(request: web.Request, operation: Operation, caller: Caller, allowed: frozenset[Action]) -> Call:
    """Read a request of a caller who may do what is *allowed*.

    Raises:
        Problem: it does not fit the operation.
    """
    path = _parameters(operation.path_model, path_parameters(request), "path")
    query = _parameters(operation.query_model, _once(request.query, "query"), "query")
    headers = _parameters(operation.header_model, _known_headers(operation.header_model, request), "header")
    body = None
    if operation.body_model is not None:
        body = await _body(operation.body_model, request, needed=operation.body_needed)
    return Call(caller=caller, allowed=allowed, path=path, query=query, headers=headers, body=body)


def path_parameters(request: web.Request) -> dict[str, str]:
    """Return the parameters in the path of a request, by name."""
    return {name: from_segment(value) for name, value in request.match_info.items()}


def _parameters(model: type[GivenT] | None, given: Mapping[str, str], where: str) -> GivenT | None:
    if model is None:
        if given:
            names = [Fault(where, name, "there is no such parameter") for name in list(given)[:MOST_FAULTS]]
            raise Problem(Kind.BAD_REQUEST, f"there are {where} parameters that are not known here", names)
        return None
    return _fit(model, given, where, strict=False)


def _known_headers(model: type[Given] | None, request: web.Request) -> dict[str, str]:
    """Take the headers that the operation knows; there are always others."""
    if model is None:
        return {}
    names = [field.alias or name for name, field in model.model_fields.items()]
    several = [name for name in names if len(request.headers.getall(name, [])) > 1]
    if several:
        raise Problem(Kind.BAD_REQUEST, "a header is given twice", [Fault("header", each, "twice") for each in several])
    return {name: request.headers[name] for name in names if name in request.headers}


def _once(given: MultiMapping[str], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in found:
            raise Problem(Kind.BAD_REQUEST, "a parameter is given twice", [Fault(where, name, "is given twice")])
        found[name] = value
    return found


async def _body(model: type[GivenT], request: web.Request, *, needed: bool) -> GivenT:
    text = await request.read()
    if not text and not needed:
        return model()
    if request.content_type != _JSON:
        raise Problem(Kind.UNSUPPORTED_MEDIA_TYPE, f"the body must be sent as Content-Type: {_JSON}")
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem(Kind.BAD_REQUEST, f"the body is no JSON: {error}") from None
    return _fit(model, content, "body", strict=True)


def _fit(model: type[GivenT], given: Any, where: str, *, strict: bool) -> GivenT:
    try:
        return model.model_validate(given, strict=strict)
    except ValidationError as error:
        faults = [
            Fault(where, _place(each["loc"], where), each["msg"][:1].lower() + each["msg"][1:])
            for each in error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
        ]
        said = "; ".join(f"{each.name or 'the body'}: {each.detail}" for each in faults[:3])
        raise Problem(Kind.BAD_REQUEST, f"the {where} does not fit: {said}", faults) from None


def _place(location: tuple[int | str, ...], where: str) -> str:
    """Name a place: a parameter by its name, a place in the body as a JSON pointer."""
    if where != "body":
        return ".".join(str(each) for each in location)
    return "".join(f"/{str(each).replace('~', '~0').replace('/', '~1')}" for each in location)
