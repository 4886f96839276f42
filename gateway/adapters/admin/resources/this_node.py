"""What the node that answers runs with, and what it permits the caller."""

from __future__ import annotations

from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import this_node as models
from gateway.adapters.admin.operations import Call, Operation
from gateway.ports.administration import Administration


async def _show_configuration(administration: Administration, _call: Call) -> models.Configuration:
    items = [models.ShownSetting.model_validate(each) for each in administration.configuration]
    return models.Configuration(node=administration.node, items=items)


async def _show_access(_administration: Administration, call: Call) -> models.Access:
    caller = call.caller
    return models.Access(
        name=caller.name, roles=sorted(caller.roles), actions=sorted(each.value for each in call.allowed)
    )


OPERATIONS: Final = (
    Operation(
        name="getConfiguration",
        method="GET",
        path="/v1/configuration",
        tag="Configuration",
        summary="Show the configuration of the node that answers",
        description="Secrets are masked.",
        action=Action.CONFIGURATION_READ,
        handle=_show_configuration,
        result=models.Configuration,
    ),
    Operation(
        name="getAccess",
        method="GET",
        path="/v1/access",
        tag="Access",
        summary="Show the owner of the token, and what it permits at this moment",
        description="A reload of the policy or of the file of administrators may change it.",
        action=None,
        handle=_show_access,
        result=models.Access,
    ),
)
