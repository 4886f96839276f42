"""Reads what a request gives, and refuses what does not fit the models, with everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import orjson
from aiohttp import web
from multidict import MultiMapping
from pydantic import ValidationError

from gateway.adapters.admin.actions import Action
from gateway.adapters.admin.models import Given
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Fault, Kind, Problem
from gateway.adapters.admin.tokens import Caller

GivenT = TypeVar("GivenT", bound=Given)

MOST_FAULTS: Final = 20
"""Faults named in one answer: whoever has more, corrects these first."""

_JSON: Final = "application/json"


async def read_call(request: web.Request, operation: Operation, caller: Caller, allowed: frozenset[Action]) -> Call:
    """Read a request of a caller who may do what is *allowed*.

    Raises:
        Problem: it does not fit the operation.
    """
    path = _parameters(operation.path_model, dict(request.match_info), "path")
    query = _parameters(operation.query_model, _once(request.query, "query"), "query")
    headers = _parameters(operation.header_model, _known_headers(operation.header_model, request), "header")
    body = None
    if operation.body_model is not None:
        body = await _body(operation.body_model, request, needed=operation.body_needed)
    return Call(caller=caller, allowed=allowed, path=path, query=query, headers=headers, body=body)


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
