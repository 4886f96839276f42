"""Event hooks, as an administrator sees them; implements ``HookAdministration``."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.hooks.hook import HookName
from gateway.core.hooks.status import HookStatus, read_status
from gateway.ports import HookHolder, HookStore
from gateway.ports.administration import NotThere
from gateway.ports.hook_administration import HookState, HookView


class ClusterHooks:
    """Hooks, as the grid knows them.

    Args:
        hooks: in the grid.
    """

    def __init__(self, hooks: HookStore) -> None:
        self._hooks = hooks

    async def list(self) -> Sequence[HookView]:
        """See ``HookAdministration.list``."""
        said = await self._hooks.told()
        held = await self._hooks.holders() if said else {}
        return [
            _view(name, read_status(said[name]), held.get(name), await self._hooks.behind(name) or 0)
            for name in sorted(said)
        ]

    async def retry(self, name: str) -> None:
        """See ``HookAdministration.retry``."""
        if not await self._hooks.ask_again(HookName(name)):
            raise NotThere("hook", f"there is no hook {name!r}; a new one is known when a node has begun to deliver")


def _view(name: HookName, status: HookStatus, holder: HookHolder | None, behind: int) -> HookView:
    state = HookState.DELIVERING
    if status.suspended:
        state = HookState.SUSPENDED
    elif holder is None:
        state = HookState.UNHELD
    elif status.failures:
        state = HookState.FAILING
    return HookView(
        name=name,
        url=status.url,
        events=status.events,
        state=state,
        node=None if holder is None else holder.node.node,
        behind=behind,
        failures=status.failures,
        error=status.error,
        failed=status.failed,
        delivered=status.delivered,
        failing=status.failing,
        attempt=status.attempt,
    )
