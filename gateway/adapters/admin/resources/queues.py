"""Queues: how they are, and their dead letters."""

from __future__ import annotations

from typing import Final

import orjson

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import queues as models
from gateway.adapters.admin.models.base import PageQuery
from gateway.adapters.admin.operations import Call, Operation, Raw
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration
from gateway.ports.queue_administration import DeadLetterView


async def _list(administration: Administration, call: Call) -> models.QueuePage:
    query: PageQuery = call.query
    page = await administration.queues.list(cursor=query.cursor, limit=query.limit)
    return models.QueuePage(items=[models.Queue.model_validate(each) for each in page.items], cursor=page.cursor)


async def _find(administration: Administration, call: Call) -> models.Queue:
    path: models.QueuePath = call.path
    return models.Queue.model_validate(await administration.queues.find(path.queue))


async def _dead(administration: Administration, call: Call) -> Raw:
    path: models.QueuePath = call.path
    query: models.DeadLetterQuery = call.query
    page = await administration.queues.dead(path.queue, cursor=query.cursor, limit=query.limit)
    return Raw({"items": [_letter(each) for each in page.items], "cursor": page.cursor})


async def _requeue(administration: Administration, call: Call) -> models.Mended:
    return await _mend(administration, call, drop=False)


async def _drop(administration: Administration, call: Call) -> models.Mended:
    return await _mend(administration, call, drop=True)


async def _mend(administration: Administration, call: Call, *, drop: bool) -> models.Mended:
    path: models.QueuePath = call.path
    body: models.DeadLetters = call.body
    return models.Mended(messages=await administration.queues.mend(path.queue, body.messages, drop=drop))


def _letter(view: DeadLetterView) -> dict[str, object]:
    # Headers and value are JSON already, and passed on as they were sent.
    return {
        "id": view.id,
        "reason": view.reason,
        "deliveries": view.deliveries,
        "sent": view.sent,
        "since": view.since,
        "headers": orjson.Fragment(view.headers) if view.headers else None,
        "value": None if view.value is None else orjson.Fragment(view.value),
        "size": view.size,
    }


_TAG: Final = "Queues"

OPERATIONS: Final = (
    Operation(
        name="listQueues",
        method="GET",
        path="/v1/queues",
        tag=_TAG,
        summary="List queues",
        description="Those in which something is, or from which somebody consumes.",
        action=Action.QUEUES_READ,
        handle=_list,
        result=models.QueuePage,
        query_model=PageQuery,
    ),
    Operation(
        name="getQueue",
        method="GET",
        path="/v1/queues/{queue}",
        tag=_TAG,
        summary="Show how a queue is",
        action=Action.QUEUES_READ,
        handle=_find,
        result=models.Queue,
        path_model=models.QueuePath,
        problems=(Kind.QUEUE_UNKNOWN,),
    ),
    Operation(
        name="listDeadLetters",
        method="GET",
        path="/v1/queues/{queue}/dead",
        tag=_TAG,
        summary="List the dead letters of a queue",
        description="The oldest first, with what was sent.",
        action=Action.QUEUES_READ,
        handle=_dead,
        result=models.DeadLetterPage,
        path_model=models.QueuePath,
        query_model=models.DeadLetterQuery,
        problems=(Kind.QUEUE_UNKNOWN,),
    ),
    Operation(
        name="requeueDeadLetters",
        method="POST",
        path="/v1/queues/{queue}/requeue",
        tag=_TAG,
        summary="Put dead letters back into their queue",
        description="In their old places, as if they had never failed. They do not expire any more.",
        action=Action.QUEUES_WRITE,
        handle=_requeue,
        result=models.Mended,
        path_model=models.QueuePath,
        body_model=models.DeadLetters,
        problems=(Kind.QUEUE_UNKNOWN,),
    ),
    Operation(
        name="dropDeadLetters",
        method="POST",
        path="/v1/queues/{queue}/drop",
        tag=_TAG,
        summary="Drop dead letters for good",
        action=Action.QUEUES_WRITE,
        handle=_drop,
        result=models.Mended,
        path_model=models.QueuePath,
        body_model=models.DeadLetters,
        problems=(Kind.QUEUE_UNKNOWN,),
    ),
)
