"""Configuration: what the node runs with."""

from __future__ import annotations

from typing import Final

from gateway.adapters.admin import models
from gateway.adapters.admin.actions import Action
from gateway.adapters.admin.operations import Call, Operation
from gateway.ports.administration import Administration


async def _show(administration: Administration, _call: Call) -> models.Configuration:
    items = [models.ShownSetting.model_validate(each) for each in administration.configuration]
    return models.Configuration(node=administration.node, items=items)


OPERATIONS: Final = (
    Operation(
        name="getConfiguration",
        method="GET",
        path="/v1/configuration",
        tag="Configuration",
        summary="Show what the node that answers runs with",
        description="Secrets are masked.",
        action=Action.CONFIGURATION_READ,
        handle=_show,
        result=models.Configuration,
    ),
)
