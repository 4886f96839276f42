"""What an operation of the admin API is: declared once, served, checked and documented from that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from gateway.adapters.admin.actions import Action
from gateway.adapters.admin.models import Given, Told
from gateway.adapters.admin.problems import Kind
from gateway.adapters.admin.tokens import Caller
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

    @property
    def changes(self) -> bool:
        """Whether it changes anything, so that it stands in the audit log."""
        return self.method != "GET"
