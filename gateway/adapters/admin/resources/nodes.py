"""Nodes: who is there, and drain."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import nodes as models
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration, NodeView


async def _list(administration: Administration, _call: Call) -> models.Nodes:
    return models.Nodes(items=[_node(each) for each in await administration.nodes.list()])


async def _find(administration: Administration, call: Call) -> models.Node:
    return _node(await administration.nodes.find(call.path.node))


async def _as_reported(administration: Administration, call: Call, _why: str) -> models.Node:
    return _node(await administration.nodes.as_reported(call.path.node))


async def _takeovers(administration: Administration, _call: Call) -> models.Takeovers:
    found = await administration.nodes.takeovers()
    return models.Takeovers(items=[models.Takeover.model_validate(each) for each in found])


async def _drain(administration: Administration, call: Call) -> models.Node:
    return _node(await administration.nodes.drain(call.path.node))


async def _undrain(administration: Administration, call: Call) -> models.Node:
    return _node(await administration.nodes.undrain(call.path.node))


def _node(view: NodeView) -> models.Node:
    return models.Node.model_validate(view)


_TAG: Final = "Nodes"

OPERATIONS: Final = (
    Operation(
        name="listNodes",
        method="GET",
        path="/v1/nodes",
        tag=_TAG,
        summary="List the nodes of the cluster",
        action=Action.NODES_READ,
        handle=_list,
        result=models.Nodes,
    ),
    Operation(
        name="getNode",
        method="GET",
        path="/v1/nodes/{node}",
        tag=_TAG,
        summary="Show one node",
        description="The node itself answers; if it does not, what it reported last.",
        action=Action.NODES_READ,
        handle=_find,
        fallback=_as_reported,
        result=models.Node,
        path_model=models.NodePath,
        problems=(Kind.NODE_UNKNOWN,),
    ),
    Operation(
        name="listTakeovers",
        method="GET",
        path="/v1/takeovers",
        tag=_TAG,
        summary="List the takeovers of failed nodes",
        description="Those that are under way, with the stage that each has come to, and those after which something "
        "is to be cleaned up.",
        action=Action.NODES_READ,
        handle=_takeovers,
        result=models.Takeovers,
    ),
    Operation(
        name="drainNode",
        method="POST",
        path="/v1/nodes/{node}/drain",
        tag=_TAG,
        summary="Move all clients of a node to other nodes",
        description="The node accepts no new sessions and moves its own in batches, without ending one; it keeps "
        "running. The answer comes at once; the counts of the node show the progress.",
        action=Action.NODES_DRAIN,
        handle=_drain,
        result=models.Node,
        status=HTTPStatus.ACCEPTED,
        path_model=models.NodePath,
        problems=(Kind.NODE_UNKNOWN, Kind.OWNER_UNREACHABLE),
    ),
    Operation(
        name="undrainNode",
        method="POST",
        path="/v1/nodes/{node}/undrain",
        tag=_TAG,
        summary="End the drain of a node",
        description="Sessions whose move has begun are still moved; no other is.",
        action=Action.NODES_DRAIN,
        handle=_undrain,
        result=models.Node,
        path_model=models.NodePath,
        problems=(Kind.NODE_UNKNOWN, Kind.CONFLICT, Kind.OWNER_UNREACHABLE),
    ),
)
