"""Topics: list, read, set, delete, and who selects them."""

from __future__ import annotations

import secrets
from typing import Final

import orjson

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import topics as models
from gateway.adapters.admin.models.base import PageQuery
from gateway.adapters.admin.models.sessions import SessionPage
from gateway.adapters.admin.operations import Call, Operation, Raw
from gateway.adapters.admin.problems import Kind
from gateway.adapters.admin.resources.sessions import session_page
from gateway.ports.administration import Administration, TopicView


async def _list(administration: Administration, call: Call) -> Raw:
    query: models.TopicQuery = call.query
    page = await administration.topics.list(
        selector=query.selector, cursor=query.cursor, limit=query.limit, values=query.values
    )
    return Raw({"items": [_topic(each) for each in page.items], "cursor": page.cursor})


async def _find(administration: Administration, call: Call) -> Raw:
    return Raw(_topic(await administration.topics.find(call.path.topic)))


async def _history(administration: Administration, call: Call) -> Raw:
    query: models.HistoryQuery = call.query
    after = query.after if query.cursor is None else query.cursor
    found = await administration.topics.history(call.path.topic, after=after, limit=query.limit)
    return Raw({"items": [_topic(each) for each in found.items], "gap": found.gap, "cursor": found.cursor})


async def _set(administration: Administration, call: Call) -> models.TopicWritten:
    headers: models.TopicWriteHeaders = call.headers
    body: models.TopicWrite = call.body
    # Tokens do not share keys: nobody learns or blocks what another administrator has done.
    key = f"{call.caller.name} {headers.idempotency_key or secrets.token_hex()}"
    written = await administration.topics.set(call.path.topic, orjson.dumps(body.value), key=key)
    return models.TopicWritten.model_validate(written)


async def _delete(administration: Administration, call: Call) -> models.TopicWritten:
    return models.TopicWritten.model_validate(await administration.topics.delete(call.path.topic))


async def _subscribers(administration: Administration, call: Call) -> SessionPage:
    query: PageQuery = call.query
    return session_page(
        await administration.topics.subscribers(call.path.topic, cursor=query.cursor, limit=query.limit)
    )


def _topic(view: TopicView) -> dict[str, object]:
    shown: dict[str, object] = {
        "topic": view.topic,
        "version": view.version,
        "event": view.event,
        "size": view.size,
        "value": None,
    }
    if view.ends:
        shown["ends"] = view.ends / 1000
    # It is JSON already, and passed on as it was published.
    return shown if not view.value else shown | {"value": orjson.Fragment(view.value)}


_TAG: Final = "Topics"

OPERATIONS: Final = (
    Operation(
        name="listTopics",
        method="GET",
        path="/v1/topics",
        tag=_TAG,
        summary="List the topics that a selector matches",
        description="A topic that exists from the first page to the last is in one of them at least.",
        action=Action.TOPICS_READ,
        handle=_list,
        result=models.TopicPage,
        query_model=models.TopicQuery,
    ),
    Operation(
        name="getTopic",
        method="GET",
        path="/v1/topics/{topic}",
        tag=_TAG,
        summary="Show a topic with its value",
        action=Action.TOPICS_READ,
        handle=_find,
        result=models.Topic,
        path_model=models.TopicPath,
        problems=(Kind.TOPIC_UNKNOWN,),
    ),
    Operation(
        name="getTopicHistory",
        method="GET",
        path="/v1/topics/{topic}/history",
        tag=_TAG,
        summary="List what was published to a topic with history",
        description="An event has the same id at every node for ever.",
        action=Action.TOPICS_READ,
        handle=_history,
        result=models.HistoryPage,
        path_model=models.TopicPath,
        query_model=models.HistoryQuery,
        problems=(Kind.TOPIC_UNKNOWN,),
    ),
    Operation(
        name="setTopic",
        method="PUT",
        path="/v1/topics/{topic}",
        tag=_TAG,
        summary="Publish a value",
        action=Action.TOPICS_WRITE,
        handle=_set,
        result=models.TopicWritten,
        path_model=models.TopicPath,
        header_model=models.TopicWriteHeaders,
        body_model=models.TopicWrite,
        problems=(Kind.RESERVED,),
    ),
    Operation(
        name="deleteTopic",
        method="DELETE",
        path="/v1/topics/{topic}",
        tag=_TAG,
        summary="Remove a topic and its value",
        description="Sessions that subscribe to it get an update that says `removed`. A later publish makes it anew, "
        "with a higher version.",
        action=Action.TOPICS_WRITE,
        handle=_delete,
        result=models.TopicWritten,
        path_model=models.TopicPath,
        problems=(Kind.TOPIC_UNKNOWN, Kind.RESERVED),
    ),
    Operation(
        name="listSubscribers",
        method="GET",
        path="/v1/topics/{topic}/subscribers",
        tag=_TAG,
        summary="List the sessions with a subscription that matches a topic",
        description="The topic need not have a value.",
        action=Action.TOPICS_READ,
        handle=_subscribers,
        result=SessionPage,
        path_model=models.TopicPath,
        query_model=PageQuery,
    ),
)
