"""Destinations: what paths are, and saying it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import destinations as models
from gateway.adapters.admin.models.base import PageQuery
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration


async def _list(administration: Administration, call: Call) -> models.DestinationPage:
    query: PageQuery = call.query
    page = await administration.destinations.list(cursor=query.cursor, limit=query.limit)
    return models.DestinationPage(
        items=[models.Destination.model_validate(each) for each in page.items], cursor=page.cursor
    )


async def _find(administration: Administration, call: Call) -> models.Destination:
    path: models.DestinationPath = call.path
    return models.Destination.model_validate(await administration.destinations.find(path.selector))


async def _trees(administration: Administration, call: Call) -> models.TreePage:
    path: models.DestinationPath = call.path
    query: PageQuery = call.query
    page = await administration.destinations.trees(path.selector, cursor=query.cursor, limit=query.limit)
    return models.TreePage(items=[models.Tree.model_validate(each) for each in page.items], cursor=page.cursor)


async def _set(administration: Administration, call: Call) -> models.Destination:
    path: models.DestinationPath = call.path
    body: models.DestinationWrite = call.body
    limits = body.limits.model_dump(exclude_unset=True)
    return models.Destination.model_validate(await administration.destinations.set(path.selector, body.kind, limits))


async def _remove(administration: Administration, call: Call) -> None:
    path: models.DestinationPath = call.path
    await administration.destinations.remove(path.selector)


_TAG: Final = "Destinations"

OPERATIONS: Final = (
    Operation(
        name="listDestinations",
        method="GET",
        path="/v1/destinations",
        tag=_TAG,
        summary="List what is said of paths",
        description="By selector, what administrators say before what the file says.",
        action=Action.DESTINATIONS_READ,
        handle=_list,
        result=models.DestinationPage,
        query_model=PageQuery,
    ),
    Operation(
        name="getDestination",
        method="GET",
        path="/v1/destinations/{selector}",
        tag=_TAG,
        summary="Show what a path is",
        description="Of a path, what counts for it: the most specific of the selectors that match it. Of a selector "
        "with wildcards, what is said of that very selector.",
        action=Action.DESTINATIONS_READ,
        handle=_find,
        result=models.Destination,
        path_model=models.DestinationPath,
        problems=(Kind.DESTINATION_UNKNOWN,),
    ),
    Operation(
        name="listTrees",
        method="GET",
        path="/v1/destinations/{selector}/trees",
        tag=_TAG,
        summary="List the trees with presence that a selector marks",
        description="Of the very selector of a destination with `presence`: the trees that have members now, and how "
        "many. Counts are exact, over all nodes.",
        action=Action.DESTINATIONS_READ,
        handle=_trees,
        result=models.TreePage,
        path_model=models.DestinationPath,
        query_model=PageQuery,
        problems=(Kind.DESTINATION_UNKNOWN,),
    ),
    Operation(
        name="setDestination",
        method="PUT",
        path="/v1/destinations/{selector}",
        tag=_TAG,
        summary="Say what paths are",
        description="The answer comes when the grid holds it; all nodes follow within a second. It replaces what "
        "administrators said of the selector before, and counts more than what the file says of it.",
        action=Action.DESTINATIONS_DECLARE,
        handle=_set,
        result=models.Destination,
        path_model=models.DestinationPath,
        body_model=models.DestinationWrite,
        problems=(Kind.CONFLICT,),
    ),
    Operation(
        name="removeDestination",
        method="DELETE",
        path="/v1/destinations/{selector}",
        tag=_TAG,
        summary="Take back what administrators say of paths",
        description="What the file says of the selector counts again, or that of a less specific selector. A topic "
        "whose history is not kept any more loses it within some minutes.",
        action=Action.DESTINATIONS_DECLARE,
        handle=_remove,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        path_model=models.DestinationPath,
        problems=(Kind.DESTINATION_UNKNOWN, Kind.CONFLICT),
    ),
)
