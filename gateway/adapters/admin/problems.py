"""What goes wrong, told as problem details (RFC 9457): one kind for each thing that programs may want to tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

import orjson
from aiohttp import web
from pydantic import BaseModel, Field

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:session-gateway:problem:"
"""Begins the type of every problem; the rest is its kind."""

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of every answer: nothing of it is to be kept by a cache, or taken for another type than it says."""


class Kind(Enum):
    """Kinds of problems: status and title, which is the same for all problems of the kind."""

    BAD_REQUEST = (HTTPStatus.BAD_REQUEST, "The request cannot be understood")
    UNAUTHENTICATED = (HTTPStatus.UNAUTHORIZED, "A valid bearer token is needed")
    FORBIDDEN = (HTTPStatus.FORBIDDEN, "The token's roles do not allow this")
    RESERVED = (HTTPStatus.FORBIDDEN, "The admin API does not allow this, whatever the roles")
    ADMINISTRATION_OFF = (HTTPStatus.NOT_FOUND, "Administration is switched off")
    NO_SUCH_PAGE = (HTTPStatus.NOT_FOUND, "There is no such page")
    NODE_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such node")
    SESSION_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such session")
    TOPIC_UNKNOWN = (HTTPStatus.NOT_FOUND, "The topic has no value")
    DESTINATION_UNKNOWN = (HTTPStatus.NOT_FOUND, "Nobody says what this is")
    DURABLE_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such durable subscription")
    QUEUE_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such queue")
    HOOK_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such event hook")
    REVOCATION_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such revocation")
    ZONE_UNKNOWN = (HTTPStatus.NOT_FOUND, "The cluster is in no zone")
    JOIN_UNKNOWN = (HTTPStatus.NOT_FOUND, "There is no such join")
    METHOD_NOT_ALLOWED = (HTTPStatus.METHOD_NOT_ALLOWED, "The page does not know this method")
    CONFLICT = (HTTPStatus.CONFLICT, "It cannot be done in the current state")
    TOO_LARGE = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large")
    UNSUPPORTED_MEDIA_TYPE = (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must be JSON")
    MISDIRECTED = (HTTPStatus.MISDIRECTED_REQUEST, "The request is for another host")
    TOO_MANY_FAILURES = (HTTPStatus.TOO_MANY_REQUESTS, "Too many requests without a valid token")
    INTERNAL = (HTTPStatus.INTERNAL_SERVER_ERROR, "The node failed on this request")
    OWNER_UNREACHABLE = (HTTPStatus.BAD_GATEWAY, "The node that has to answer this is unreachable")
    UNAVAILABLE = (HTTPStatus.SERVICE_UNAVAILABLE, "It cannot be done now")

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status."""
        return self.value[0]

    @property
    def title(self) -> str:
        """What it is called for people."""
        return self.value[1]

    @property
    def slug(self) -> str:
        """The last part of its type."""
        return self.name.lower().replace("_", "-")

    @property
    def type(self) -> str:
        """The URI by which programs know it."""
        return TYPE_PREFIX + self.slug


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request.

    Attributes:
        where: ``query``, ``path``, ``header`` or ``body``.
        name: of the parameter, or the place in the body, as a JSON pointer.
        detail: what is wrong with it.
    """

    where: str
    name: str
    detail: str


@dataclass(slots=True)
class Problem(Exception):
    """A request is refused, or failed. Raised by whoever notices; the server answers with it.

    Attributes:
        kind: what kind of problem.
        detail: one or two sentences for people: what was wrong, and what to do.
        faults: what is wrong with the request, each by itself.
        headers: of the answer.
    """

    kind: Kind
    detail: str
    faults: Sequence[Fault] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        """Make the answer."""
        content: dict[str, Any] = {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": int(self.kind.status),
            "detail": self.detail,
        }
        if self.faults:
            content["errors"] = [{"in": each.where, "name": each.name, "detail": each.detail} for each in self.faults]
        return web.Response(
            status=self.kind.status,
            body=dumps(content),
            headers={"Content-Type": MEDIA_TYPE, **HEADERS, **self.headers},
        )


def dumps(content: object) -> bytes:
    """Write JSON; text that is no Unicode, which only a bug could bring here, must not become a second problem."""
    try:
        return orjson.dumps(content) + b"\n"
    except orjson.JSONEncodeError:
        return orjson.dumps(_cleaned(content)) + b"\n"


def _cleaned(content: object) -> object:
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode()
    if isinstance(content, Mapping):
        return {_cleaned(name): _cleaned(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_cleaned(each) for each in content]
    return content


class FaultDetails(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(alias="in", description="`query`, `path`, `header` or `body`.")
    name: str = Field(description="Of the parameter; in a body the place of it, as a JSON pointer (RFC 6901).")
    detail: str = Field(description="What is wrong with it, for people.")


class ProblemDetails(BaseModel):
    """Problem details as in RFC 9457."""

    type: str = Field(description="What kind of problem it is, for programs.")
    title: str = Field(description="The same for people.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What was wrong this time, and what to do.")
    errors: list[FaultDetails] | None = Field(
        default=None, description="What is wrong with the request, each thing by itself."
    )
