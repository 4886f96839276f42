"""Removes shared durable subscriptions: a record and a queue, in steps of which any node finishes what another began.

```text
begin_removal ──▶ nobody opens it ──▶ remove the queue ──▶ expire
                                            └── it is used ──▶ prolong
```

Whoever dies, it is among those that are over. A queue without its subscription would be found by nobody. A subscription
without its queue would have it made again where the subscription began, and all events would come again.
"""

from __future__ import annotations

from gateway.core.destinations.reserved import shared_queue
from gateway.ports import DurableName, DurableStore, QueueStore, Removal


class DurableRemoval:
    """Removes shared durable subscriptions.

    Args:
        durables: where they are.
        queues: where their queues are.
    """

    def __init__(self, durables: DurableStore, queues: QueueStore) -> None:
        self._durables = durables
        self._queues = queues

    async def begin_and_remove_queue(self, name: DurableName, *, force: bool = False) -> bool:
        """Remove the queue, because somebody asks for that; the subscription is to be removed then.

        Args:
            name: of the subscription.
            force: also if somebody consumes.

        Returns:
            False if somebody consumes: nothing was done.

        Raises:
            GridUnavailable: asking again does no harm.
        """
        await self._durables.begin_removal(name, over=False)
        if await self._queues.remove(shared_queue(*name), force=force) is not Removal.USED:
            return True
        await self._durables.prolong(name)
        return False

    async def expire(self, name: DurableName) -> bool:
        """Remove one if its life is over, and nobody has consumed from it for so long.

        Returns:
            Whether this call did.

        Raises:
            GridUnavailable: asking again does no harm.
        """
        return await self._durables.begin_removal(name, over=True) and await self.finish(name)

    async def finish(self, name: DurableName) -> bool:
        """Finish a removal that was begun, or give it up if somebody has consumed from it for its life.

        Returns:
            Whether this call has removed it.

        Raises:
            GridUnavailable: asking again does no harm.
        """
        each = await self._durables.find(name)
        if each is None:
            return False
        queue = shared_queue(*name)
        if await self._queues.remove(queue, unused=each.terms.life) is Removal.USED:
            await self._durables.prolong(name, used=await self._queues.last_use(queue))
            return False
        return await self._durables.expire(name)
