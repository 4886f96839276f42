"""Which hooks there are, and which of them this node delivers for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import nan
from typing import Final

from gateway.app.context import Context
from gateway.app.hooks.deliverer import Deliverer
from gateway.app.runtime.background import CANCEL_AGAIN
from gateway.catalogue import hook_log_events as log
from gateway.catalogue import hook_metrics as catalogue
from gateway.catalogue import log_events
from gateway.core.hooks.hook import Hook, HookName
from gateway.core.hooks.status import read_status
from gateway.core.types import NodeRef
from gateway.ports import GridUnavailable, HookHolder, HookSender, HookTaken

ROUNDS: Final = 3
"""Rounds in the time of a lease: one may fail."""

PATIENCE: Final = 2
"""Rounds for which a hook is left to the node that should have it: within one, that node looks."""

SWEEP_EVERY: Final = 60.0
"""Seconds between two looks for hooks that no node has in its file any more."""

FORGET_AFTER: Final = 3600.0
"""Seconds for which a node must have seen that nobody delivers for such a hook: a roll-out, or a file that was wrong
for a while, costs a receiver nothing."""

RESTART: Final = 1.0
"""Seconds until a deliverer that met a bug is begun again."""


class Hooks:
    """Keeps leases of hooks, and has a deliverer for each.

    Args:
        context: of the node.
        sender: posts to receivers.
    """

    def __init__(self, context: Context, sender: HookSender) -> None:
        self._context = context
        self._store = context.grid.hooks
        self._sender = sender
        self._lease = context.parameters.lease
        self._hooks: dict[HookName, Hook] = {}
        self._deliverers: dict[HookName, tuple[Deliverer, asyncio.Task[None]]] = {}
        self._free: dict[HookName, float] = {}
        """Hooks that nobody had in the round before, with the time since when, as far as this node has seen."""
        self._unwanted: dict[HookName, float] = {}
        """The same of hooks that are not in the file of this node."""
        self._delivered: set[HookName] = set()
        """Hooks that this node has delivered for: they are not new where the grid has been emptied."""
        self._swept = -SWEEP_EVERY
        self._look = asyncio.Event()
        self._round_under_way = asyncio.Lock()
        self._renewed = 0.0
        self._stopped = False

    def apply(self, hooks: Sequence[Hook]) -> None:
        """Have these hooks from now on, and no others; they take effect a moment later."""
        self._hooks = {each.name: each for each in hooks}
        self._delivered &= self._hooks.keys()
        for name in self._hooks:
            self._show(name)
        self._look.set()

    async def run(self) -> None:
        """Take hooks, and keep them, for ever; costs nothing while there are none."""
        clock = self._context.clock
        while not self._stopped:
            if not self._hooks and not self._deliverers and not await self._is_any_left():
                await self._look.wait()
            self._look.clear()
            asked = clock.monotonic()
            try:
                async with self._round_under_way:
                    await self._round(asked)
                self._renewed = asked
                await self._sweep(asked)
            except GridUnavailable:
                if clock.monotonic() - self._renewed > self._lease:
                    await self._keep({})
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease / ROUNDS):
                    await self._look.wait()

    async def close(self) -> None:
        """Stop to deliver, and give all hooks back, so that others go on at once."""
        self._stopped = True
        async with self._round_under_way:
            names = tuple(self._deliverers)
            await self._keep({})
            if names:
                with suppress(GridUnavailable):
                    await self._store.release(self._context.me, names)
        await self._sender.close()

    # --- Leases -------------------------------------------------------------------------------------------------------

    async def _round(self, now: float) -> None:
        if self._stopped:
            return
        me = self._context.me
        gone = self._deliverers.keys() - self._hooks.keys()
        if gone:
            await self._keep({name: each.term for name, (each, _) in self._deliverers.items() if name not in gone})
            await self._store.release(me, tuple(gone))
        if not self._hooks:
            return
        held: Mapping[HookName, HookHolder] = await self._store.holders()
        self._free = {name: self._free.get(name, now) for name in self._hooks if name not in held}
        mine = {name for name in self._hooks if name in held and held[name].node == me}
        nodes, patience = self._context.cluster.nodes, PATIENCE * self._lease / ROUNDS
        names = mine | {
            name for name, since in self._free.items() if now - since >= patience or preferred(name, nodes) == me
        }
        found = await self._store.hold(me, tuple(names), lease=self._lease) if names else {}
        await self._keep({name: each.term for name, each in found.items() if each.node == me})
        await self._look_after()

    async def _keep(self, terms: Mapping[HookName, int]) -> None:
        """Have a deliverer for each of some hooks, and for no other."""
        changed: set[HookName] = set()
        for name, (deliverer, task) in tuple(self._deliverers.items()):
            if terms.get(name) != deliverer.term:
                self._context.log.emit(log.HOOK_DELIVERER, hook=name, term=deliverer.term, delivers=False)
            elif self._hooks.get(name) != deliverer.hook:
                changed.add(name)
            else:
                continue
            del self._deliverers[name]
            await _end(task)
            await self._sender.forget(deliverer.hook)
        begun = [name for name in terms if name not in self._deliverers]
        if not begun:
            return
        said = await self._store.told()
        for name in begun:
            hook, term = self._hooks[name], terms[name]
            status = read_status(said[name]) if name in said else None
            known = name in self._delivered
            deliverer = Deliverer(self._context, hook, term, self._sender, status=status, known=known)
            self._delivered.add(name)
            if name in changed:
                # Whoever corrected it wants to see whether that helps.
                deliverer.try_again()
            else:
                self._context.log.emit(log.HOOK_DELIVERER, hook=name, term=term, delivers=True)
            task = asyncio.create_task(self._deliver(deliverer), name=f"hook-{name}")
            self._deliverers[name] = deliverer, task

    async def _deliver(self, deliverer: Deliverer) -> None:
        while True:
            try:
                await deliverer.run()
            except HookTaken:
                # The next round gives it back.
                self._look.set()
                return
            except Exception as error:  # noqa: BLE001 - as of every background task
                self._context.log.emit(
                    log_events.BACKGROUND_TASK_FAILED, task=f"hook-{deliverer.hook.name}", error=repr(error)
                )
                await asyncio.sleep(RESTART)

    async def _look_after(self) -> None:
        """See what waits for the hooks that are held, and whether somebody asks for an attempt."""
        for name, (deliverer, task) in tuple(self._deliverers.items()):
            if task.done():
                # Somebody has read under a later term. If the grid still says that it is ours, the next term is above.
                del self._deliverers[name]
                await self._store.release(self._context.me, (name,))
            elif deliverer.status.failures:
                # It does not read while it waits.
                behind = await self._store.behind(name)
                deliverer.behind = deliverer.behind if behind is None else behind
        if self._deliverers:
            for name in await self._store.asked():
                if name in self._deliverers:
                    await self._store.answered(name)
                    self._deliverers[name][0].try_again()

    # --- Hooks that were removed --------------------------------------------------------------------------------------

    async def _is_any_left(self) -> bool:
        """Tell whether the grid knows of hooks; asked once, and again after something was swept."""
        try:
            return bool(await self._store.told())
        except GridUnavailable:
            await asyncio.sleep(self._lease / ROUNDS)
            return True

    async def _sweep(self, now: float) -> None:
        """Forget hooks that have been in nobody's file for long: their cursors hold the journal back."""
        if now - self._swept < SWEEP_EVERY:
            return
        self._swept = now
        said = await self._store.told()
        left = said.keys() - self._hooks.keys()
        if not left:
            self._unwanted = {}
            return
        held = await self._store.holders()
        self._unwanted = {name: self._unwanted.get(name, now) for name in left if name not in held}
        for name, since in tuple(self._unwanted.items()):
            if now - since >= FORGET_AFTER and await self._store.forget(name):
                del self._unwanted[name]
                self._context.log.emit(log.HOOK_FORGOTTEN, hook=name)

    # --- Numbers ------------------------------------------------------------------------------------------------------

    def _show(self, name: HookName) -> None:
        """Show how a hook is, as long as this node delivers for it, and what is counted of it from 0 on."""

        def number(read: Callable[[Deliverer], float]) -> Callable[[], float]:
            def found() -> float:
                held = self._deliverers.get(name)
                return nan if held is None else read(held[0])

            return found

        metrics = self._context.metrics
        for counter in (catalogue.HOOK_EVENTS, catalogue.HOOK_FAILURES, catalogue.HOOK_GAPS, catalogue.HOOK_MISSING):
            # Whoever watches sees that it grows only if it has been there before.
            metrics.add(counter, 0, label=name)
        metrics.watch(catalogue.HOOK_BEHIND, number(lambda each: each.behind), label=name)
        metrics.watch(catalogue.HOOK_BEHIND_SECONDS, number(lambda each: each.behind_seconds), label=name)
        metrics.watch(catalogue.HOOK_SUSPENDED, number(lambda each: float(each.is_suspended)), label=name)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and again as long as it goes on; see ``CANCEL_AGAIN``."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN)


def preferred(name: HookName, nodes: Sequence[NodeRef]) -> NodeRef:
    """Tell which of some nodes should have a hook: the same one for all who ask."""
    return max(nodes, key=lambda node: blake2b(f"{node} {name}".encode(), digest_size=8).digest())
