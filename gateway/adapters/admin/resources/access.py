"""Access: what the caller may do, so that a page or a program offers no more than that."""

from __future__ import annotations

from typing import Final

from gateway.adapters.admin import models
from gateway.adapters.admin.operations import Call, Operation
from gateway.ports.administration import Administration


async def _show(_administration: Administration, call: Call) -> models.Access:
    caller = call.caller
    return models.Access(
        name=caller.name, roles=sorted(caller.roles), actions=sorted(each.value for each in call.allowed)
    )


OPERATIONS: Final = (
    Operation(
        name="getAccess",
        method="GET",
        path="/v1/access",
        tag="Access",
        summary="Show who the token says you are, and what you may do at this moment",
        description="A reload of the policy or of the file of administrators may change it.",
        action=None,
        handle=_show,
        result=models.Access,
    ),
)
