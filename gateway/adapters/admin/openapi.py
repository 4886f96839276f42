"""The OpenAPI 3.1 document, made from the operations that are served."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.adapters.admin.models.base import Given
from gateway.adapters.admin.operations import Operation
from gateway.adapters.admin.problems import MEDIA_TYPE, Kind, ProblemDetails, dumps

ALWAYS: Final = (
    Kind.BAD_REQUEST,
    Kind.UNAUTHENTICATED,
    Kind.FORBIDDEN,
    Kind.ADMINISTRATION_OFF,
    Kind.MISDIRECTED,
    Kind.TOO_MANY_FAILURES,
    Kind.UNAVAILABLE,
)
"""Problems that every operation may meet."""

WITH_BODY: Final = (Kind.TOO_LARGE, Kind.UNSUPPORTED_MEDIA_TYPE)
"""Problems of operations that take a body."""

_REFERENCE: Final = "#/components/schemas/{model}"
_DESCRIPTION: Final = """\
Shows and steers a cluster of session gateways. Any node answers for the whole cluster; what only another node knows or
can do, it asks that node for, with the same token.

Every answer that is not a success is a problem (RFC 9457). Text that clients chose (principals, properties, topics) is
untrusted. Lists come in pages: pass the `cursor` of one to get the next.

In a path, the names `.` and `..` are written with a slash in front, `%2F.` and `%2F..`: browsers and others take such
segments out of a path. So that `/.` and `/..` can be named as well, they have one slash more.
"""
_TAGS: Final = {
    "Nodes": "The nodes of the cluster.",
    "Sessions": "Sessions, wherever they are.",
    "Topics": "Topics and their values.",
    "Destinations": "What paths are.",
    "Durable subscriptions": "Places in topics with history that outlive sessions.",
    "Event hooks": "Who gets events of the session journal by HTTP, and how that goes.",
    "Queues": "Queues, and the messages that nobody is given any more.",
    "Zones": "Zones of clusters, and static joins between them.",
    "Revocations": "Blocked sessions, principals and credentials.",
    "Configuration": "What a node runs with.",
    "Access": "Who asks.",
}


def document(operations: Sequence[Operation], *, version: str) -> dict[str, Any]:
    """Make the document.

    Args:
        operations: all that are served.
        version: of the gateway.
    """
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    tags = dict.fromkeys(each.tag for each in operations)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Session gateway, admin API",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": tag, "description": _TAGS[tag]} for tag in tags],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token that `gateway admin token create` made.",
                }
            },
            "schemas": _schemas(operations),
        },
    }


@cache
def written(operations: tuple[Operation, ...], *, version: str) -> bytes:
    """Make the document and write it as it is served: once for all nodes of a process, as it takes most of their start.

    Args:
        operations: all that are served.
        version: of the gateway.
    """
    return dumps(document(operations, version=version))


def _operation(operation: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.description}\n\n{_permission(operation)}".strip(),
        "parameters": [
            *_parameters(operation.path_model, "path"),
            *_parameters(operation.query_model, "query"),
            *_parameters(operation.header_model, "header"),
        ],
        "responses": _responses(operation),
    }
    if operation.body_model is not None:
        made["requestBody"] = {
            "required": operation.body_needed,
            "content": {"application/json": {"schema": _reference(operation.body_model)}},
        }
    return made


def _permission(operation: Operation) -> str:
    return "Any token will do." if operation.action is None else f"Permission: `{operation.action.value}`."


def _parameters(model: type[Given] | None, where: str) -> Iterable[dict[str, Any]]:
    if model is None:
        return
    schema = model.model_json_schema(by_alias=True, ref_template=_REFERENCE)
    for name, given in schema["properties"].items():
        described = dict(given)
        made: dict[str, Any] = {"name": name, "in": where, "required": name in schema.get("required", ())}
        if "description" in described:
            made["description"] = described.pop("description")
        described.pop("title", None)
        # What may be left out is not null when it is given.
        options = [each for each in described.pop("anyOf", ()) if each != {"type": "null"}]
        for option in options:
            described |= option
        if described.get("default", 0) is None:
            del described["default"]
        made["schema"] = described
        yield made


def _responses(operation: Operation) -> dict[str, Any]:
    success: dict[str, Any] = {"description": _phrase(operation.status)}
    if operation.result is not None:
        success["content"] = {"application/json": {"schema": _reference(operation.result)}}
    made = {str(int(operation.status)): success}
    if operation.pending is not None:
        made[str(int(HTTPStatus.ACCEPTED))] = {
            "description": "It is begun, and not confirmed.",
            "content": {"application/json": {"schema": _reference(operation.pending)}},
        }
    by_status: dict[HTTPStatus, list[Kind]] = {}
    body = WITH_BODY if operation.body_model is not None else ()
    for kind in dict.fromkeys((*ALWAYS, *body, *operation.problems)):
        by_status.setdefault(kind.status, []).append(kind)
    for status, kinds in sorted(by_status.items()):
        made[str(int(status))] = {
            "description": "; ".join(f"{kind.title} (`{kind.slug}`)" for kind in kinds),
            "content": {MEDIA_TYPE: {"schema": _reference(ProblemDetails)}},
        }
    return made


def _schemas(operations: Sequence[Operation]) -> dict[str, Any]:
    told: list[type[BaseModel]] = [ProblemDetails]
    given: list[type[BaseModel]] = []
    for each in operations:
        for model in (each.result, each.pending):
            if model is not None and model not in told:
                told.append(model)
        if each.body_model is not None and each.body_model not in given:
            given.append(each.body_model)
    _, made = models_json_schema(
        [*((each, "serialization") for each in told), *((each, "validation") for each in given)],
        ref_template=_REFERENCE,
    )
    schemas: dict[str, Any] = made["$defs"]
    return dict(sorted(schemas.items()))


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _phrase(status: HTTPStatus) -> str:
    return {HTTPStatus.NO_CONTENT: "Done.", HTTPStatus.ACCEPTED: "It will be done."}.get(status, "As asked for.")
