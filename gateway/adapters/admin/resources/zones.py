"""Zones, their members, and joins."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import zones as models
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration
from gateway.ports.zone_administration import JoinTerms


async def _list(administration: Administration, _call: Call) -> models.Zones:
    cluster = await administration.zones.this_cluster()
    zones = await administration.zones.zones()
    return models.Zones(
        here=models.ThisCluster.model_validate(cluster),
        items=[models.Zone.model_validate(each) for each in zones],
    )


async def _create(administration: Administration, call: Call) -> models.Zone:
    body: models.ZoneCreate = call.body
    return models.Zone.model_validate(await administration.zones.create(body.name, body.secret.get_secret_value()))


async def _current(administration: Administration, _call: Call) -> models.Zone:
    return models.Zone.model_validate(await administration.zones.current())


async def _join_zone(administration: Administration, call: Call) -> models.Zone:
    body: models.ZoneJoin = call.body
    secret = None if body.secret is None else body.secret.get_secret_value()
    return models.Zone.model_validate(await administration.zones.join(body.zone, urls=body.urls, secret=secret))


async def _leave(administration: Administration, _call: Call) -> None:
    await administration.zones.leave()


async def _members(administration: Administration, _call: Call) -> models.Members:
    members = await administration.zones.members()
    return models.Members(items=[models.Member.model_validate(each) for each in members])


async def _joins(administration: Administration, _call: Call) -> models.Joins:
    return models.Joins(items=[models.Join.model_validate(each) for each in await administration.zones.joins()])


async def _find_join(administration: Administration, call: Call) -> models.Join:
    path: models.JoinPath = call.path
    return models.Join.model_validate(await administration.zones.find_join(path.name))


async def _put_join(administration: Administration, call: Call) -> models.Join:
    path: models.JoinPath = call.path
    body: models.JoinWrite = call.body
    terms = JoinTerms(
        direction=body.direction,
        selectors=tuple(body.selectors),
        urls=tuple(body.urls),
        fingerprints=tuple(body.fingerprints),
        secret=None if body.secret is None else body.secret.get_secret_value(),
        most_hops=body.most_hops,
    )
    return models.Join.model_validate(await administration.zones.put_join(path.name, terms))


async def _remove_join(administration: Administration, call: Call) -> None:
    path: models.JoinPath = call.path
    await administration.zones.remove_join(path.name)


_TAG: Final = "Zones"

OPERATIONS: Final = (
    Operation(
        name="listZones",
        method="GET",
        path="/v1/zones",
        tag=_TAG,
        summary="List the zones that this cluster knows",
        description="By name. Zones of one name have different uids. Also tells what other clusters have to know of "
        "this one to make a join with it.",
        action=Action.ZONES_READ,
        handle=_list,
        result=models.Zones,
    ),
    Operation(
        name="createZone",
        method="POST",
        path="/v1/zones",
        tag=_TAG,
        summary="Make a zone",
        description="It has no members yet; have this cluster join it. There may be others of the same name.",
        action=Action.ZONES_CHANGE,
        handle=_create,
        result=models.Zone,
        status=HTTPStatus.CREATED,
        body_model=models.ZoneCreate,
        problems=(Kind.CONFLICT,),
    ),
    Operation(
        name="getZone",
        method="GET",
        path="/v1/zone",
        tag=_TAG,
        summary="Show the zone of this cluster",
        description="A cluster is in one zone at most.",
        action=Action.ZONES_READ,
        handle=_current,
        result=models.Zone,
        problems=(Kind.ZONE_UNKNOWN,),
    ),
    Operation(
        name="joinZone",
        method="PUT",
        path="/v1/zone",
        tag=_TAG,
        summary="Have this cluster join a zone",
        description="By uid or name. A name that is not known makes a zone, unless URLs of members are given, which "
        "are asked for it. A cluster that is in another zone has to leave that first. Doing it again changes nothing.",
        action=Action.ZONES_CHANGE,
        handle=_join_zone,
        result=models.Zone,
        body_model=models.ZoneJoin,
        problems=(Kind.CONFLICT,),
    ),
    Operation(
        name="leaveZone",
        method="DELETE",
        path="/v1/zone",
        tag=_TAG,
        summary="Have this cluster leave its zone",
        description="The zone stays known. Without members it is not active.",
        action=Action.ZONES_CHANGE,
        handle=_leave,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        problems=(Kind.ZONE_UNKNOWN,),
    ),
    Operation(
        name="listZoneMembers",
        method="GET",
        path="/v1/zone/members",
        tag=_TAG,
        summary="List the members of the zone of this cluster",
        description="With the links between each of them and this cluster, as the nodes that have them last told.",
        action=Action.ZONES_READ,
        handle=_members,
        result=models.Members,
        problems=(Kind.ZONE_UNKNOWN,),
    ),
    Operation(
        name="listJoins",
        method="GET",
        path="/v1/joins",
        tag=_TAG,
        summary="List the static joins of this cluster",
        description="By name, with their links.",
        action=Action.ZONES_READ,
        handle=_joins,
        result=models.Joins,
    ),
    Operation(
        name="getJoin",
        method="GET",
        path="/v1/joins/{name}",
        tag=_TAG,
        summary="Show a static join",
        description="With its links.",
        action=Action.ZONES_READ,
        handle=_find_join,
        result=models.Join,
        path_model=models.JoinPath,
        problems=(Kind.JOIN_UNKNOWN,),
    ),
    Operation(
        name="putJoin",
        method="PUT",
        path="/v1/joins/{name}",
        tag=_TAG,
        summary="Make a static join, or change it",
        description="Both clusters need one: that from which events go, `out` with URLs of the other; that to which "
        "they go, `in`. Both have the fingerprints of the other's certificates, and the same secret.",
        action=Action.ZONES_CHANGE,
        handle=_put_join,
        result=models.Join,
        path_model=models.JoinPath,
        body_model=models.JoinWrite,
        problems=(Kind.CONFLICT,),
    ),
    Operation(
        name="removeJoin",
        method="DELETE",
        path="/v1/joins/{name}",
        tag=_TAG,
        summary="Delete a static join",
        description="Its link ends within a second.",
        action=Action.ZONES_CHANGE,
        handle=_remove_join,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        path_model=models.JoinPath,
        problems=(Kind.JOIN_UNKNOWN,),
    ),
)
