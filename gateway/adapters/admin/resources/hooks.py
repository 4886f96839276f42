"""Event hooks: how they are, and another attempt."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import hooks as models
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.ports.administration import Administration


async def _list(administration: Administration, _call: Call) -> models.Hooks:
    found = await administration.hooks.list()
    return models.Hooks(items=[models.Hook.model_validate(each) for each in found])


async def _retry(administration: Administration, call: Call) -> None:
    path: models.HookPath = call.path
    await administration.hooks.retry(path.name)


_TAG: Final = "Event hooks"

OPERATIONS: Final = (
    Operation(
        name="listHooks",
        method="GET",
        path="/v1/hooks",
        tag=_TAG,
        summary="List event hooks",
        description="Those that the cluster knows, also ones that no node has in its file any more, for an hour.",
        action=Action.HOOKS_READ,
        handle=_list,
        result=models.Hooks,
    ),
    Operation(
        name="retryHook",
        method="POST",
        path="/v1/hooks/{name}/retry",
        tag=_TAG,
        summary="Try a receiver at once",
        description="The node that delivers for the hook does not wait for the time of the next attempt, also if the "
        "receiver said that it is gone. It begins within a few seconds; the list shows what comes of it.",
        action=Action.HOOKS_RETRY,
        handle=_retry,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        path_model=models.HookPath,
        problems=(Kind.HOOK_UNKNOWN,),
    ),
)
