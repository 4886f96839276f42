"""Durable subscriptions: which there are, and removing them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import durables as models
from gateway.adapters.admin.models.base import PageQuery
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration


async def _list(administration: Administration, call: Call) -> models.DurablePage:
    query: PageQuery = call.query
    page = await administration.durables.list(cursor=query.cursor, limit=query.limit)
    return models.DurablePage(items=[models.Durable.model_validate(each) for each in page.items], cursor=page.cursor)


async def _remove(administration: Administration, call: Call) -> None:
    path: models.DurablePath = call.path
    await administration.durables.remove(path.principal, path.name)


_TAG: Final = "Durable subscriptions"

OPERATIONS: Final = (
    Operation(
        name="listDurables",
        method="GET",
        path="/v1/durables",
        tag=_TAG,
        summary="List durable subscriptions",
        action=Action.DESTINATIONS_READ,
        handle=_list,
        result=models.DurablePage,
        query_model=PageQuery,
    ),
    Operation(
        name="removeDurable",
        method="DELETE",
        path="/v1/durables/{principal}/{name}",
        tag=_TAG,
        summary="Remove a durable subscription",
        description="Its place is forgotten, also if a session uses it; what that one acknowledges is refused from "
        "then on. Of a shared one the messages that were not settled go with it. The events stay in the history.",
        action=Action.DESTINATIONS_DECLARE,
        handle=_remove,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        path_model=models.DurablePath,
        problems=(Kind.DURABLE_UNKNOWN,),
    ),
)
