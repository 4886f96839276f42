"""Revocations: what is blocked, and unblocking it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import revocations as models
from gateway.adapters.admin.models.base import PageQuery
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration


async def _list(administration: Administration, call: Call) -> models.RevocationPage:
    query: PageQuery = call.query
    page = await administration.revocations.list(cursor=query.cursor, limit=query.limit)
    return models.RevocationPage(
        items=[models.Revocation.model_validate(each) for each in page.items], cursor=page.cursor
    )


async def _add(administration: Administration, call: Call) -> models.Revocation:
    body: models.Revoke = call.body
    made = await administration.revocations.add(body.kind, body.value, reason=body.reason, until=body.until)
    return models.Revocation.model_validate(made)


async def _unblock(administration: Administration, call: Call) -> None:
    path: models.RevocationPath = call.path
    await administration.revocations.unblock(path.kind, path.value)


_TAG: Final = "Revocations"

OPERATIONS: Final = (
    Operation(
        name="listRevocations",
        method="GET",
        path="/v1/revocations",
        tag=_TAG,
        summary="List what is blocked",
        action=Action.REVOCATIONS_READ,
        handle=_list,
        result=models.RevocationPage,
        query_model=PageQuery,
    ),
    Operation(
        name="revoke",
        method="POST",
        path="/v1/revocations",
        tag=_TAG,
        summary="Block a session, a principal or a credential",
        description="The answer comes when the grid holds it. Within a second every node that reaches the grid ends "
        "its sessions, and refuses it from then on; a node that does not, as soon as it does again. Asked again, "
        "reason and end are replaced.",
        action=Action.REVOCATIONS_WRITE,
        handle=_add,
        result=models.Revocation,
        status=HTTPStatus.CREATED,
        body_model=models.Revoke,
        problems=(Kind.CONFLICT,),
    ),
    Operation(
        name="unblock",
        method="DELETE",
        path="/v1/revocations/{kind}/{value}",
        tag=_TAG,
        summary="Unblock a session, a principal or a credential",
        description="The answer comes when the grid has it. Every node that reaches the grid follows within a second. "
        "Sessions that were ended stay ended.",
        action=Action.REVOCATIONS_WRITE,
        handle=_unblock,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        path_model=models.RevocationPath,
        problems=(Kind.REVOCATION_UNKNOWN,),
    ),
)
