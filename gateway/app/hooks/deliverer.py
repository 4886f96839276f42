"""Delivers for one hook, as long as the node has its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.app.context import Context
from gateway.catalogue import hook_log_events as log
from gateway.catalogue import hook_metrics as catalogue
from gateway.core.hooks.batches import Batch, batches
from gateway.core.hooks.cloud_events import body_of, message_id
from gateway.core.hooks.cursor import Cursor, Page
from gateway.core.hooks.hook import Hook
from gateway.core.hooks.retries import Verdict, judge, pause, read_retry_after
from gateway.core.hooks.signing import sign
from gateway.core.hooks.status import HookStatus, fingerprint
from gateway.ports import GridUnavailable, HookSender, NoPostAnswer

ENTRIES: Final = 2
"""Entries that are read of each stream at once, of 64 KiB at most: up to 2 MiB, which is all that a hook ever holds."""

GRID_RETRY: Final = 0.5
"""Seconds until the grid is asked again that did not answer."""

TELL_EVERY: Final = 10.0
"""Seconds for which the time of the last delivery may be out of date in the grid, as long as all is well."""

MICROSECONDS: Final = 1_000_000
"""In a second: the journal says when something happened in these."""


class Deliverer:
    """Reads behind the cursors of a hook, posts, and moves them.

    Args:
        context: of the node.
        hook: which one.
        term: under which the node has it.
        sender: posts.
        status: what was said of the hook before; None if it is a new one, which begins now.
        known: whether it is no new one, though the grid says nothing of it, as that has been emptied.

    Attributes:
        hook: as given.
        term: as given.
        behind: events that the hook has yet to pass, as far as is known.
        status: how it is.
    """

    def __init__(
        self,
        context: Context,
        hook: Hook,
        term: int,
        sender: HookSender,
        *,
        status: HookStatus | None,
        known: bool = False,
    ) -> None:
        self.hook = hook
        self.term = term
        self.behind = 0
        self.status = replace(
            status or HookStatus(), node=context.me.node, url=hook.shown_url, events=tuple(sorted(hook.events))
        )
        if self.status.suspended and not self.is_suspended:
            # It has another address now.
            self.status = self.status.well()
        self._context = context
        self._store = context.grid.hooks
        self._clock = context.clock
        self._sender = sender
        self._known = known or status is not None
        self._is_news = self.status != status
        """Whether the grid does not say yet how the hook is."""
        self._most = hook.batch_events
        self._oldest: int | None = None
        """When the oldest event happened that is being sent, in microseconds since 1970."""
        self._told = -TELL_EVERY
        self._again = asyncio.Event()

    @property
    def is_suspended(self) -> bool:
        """Whether the receiver wants nothing any more."""
        return self.status.suspended == fingerprint(self.hook.url)

    @property
    def behind_seconds(self) -> float:
        """Age of the oldest event that is being sent; 0 for none."""
        return 0.0 if self._oldest is None else max(0.0, self._clock.wall() - self._oldest / MICROSECONDS)

    def try_again(self) -> None:
        """Do not wait for the next attempt, if one is waited for; also if the receiver was gone."""
        self._again.set()

    async def run(self) -> None:
        """Deliver for ever.

        Raises:
            HookTaken: another node delivers.
        """
        while True:
            try:
                more = await self._round()
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)
            else:
                if not more:
                    await asyncio.sleep(self.hook.wait)

    # --- One round ----------------------------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Read once and deliver what was read; True if there is more."""
        pages = await self._store.read(self.hook.name, self.term, known=self._known, entries=ENTRIES)
        if self._is_news:
            # Only now has a new one a cursor in every stream, by which it is known.
            await self._tell()
            self._known = True
        self.behind = sum(page.behind for page in pages)
        for batch in batches(self.hook, pages, most=self._most, now=self._clock.wall()):
            if batch.events and not await self._deliver(batch):
                return True
            await self._advance(pages, batch)
        return any(len(page.entries) >= ENTRIES for page in pages)

    async def _advance(self, pages: Sequence[Page], batch: Batch) -> None:
        before = {page.partition: page.cursor for page in pages}
        moves: dict[int, Cursor] = {
            partition: cursor for partition, cursor in batch.moves.items() if before.get(partition) != cursor
        }
        while moves:
            try:
                await self._store.advance(self.hook.name, self.term, moves)
                break
            except GridUnavailable:
                # The receiver has them, so that only this is asked for again.
                await asyncio.sleep(GRID_RETRY)
        self._oldest = None

    # --- One request --------------------------------------------------------------------------------------------------

    async def _deliver(self, batch: Batch) -> bool:
        """Send a request until the receiver takes it; False if it is to be read anew, in smaller pieces."""
        self._oldest = batch.oldest
        body, message = body_of(batch.events), message_id(self.hook.name, batch.ids)
        while True:
            await self._wait_until_due()
            verdict = await self._attempt(body, message)
            if verdict is Verdict.DELIVERED:
                self._count(batch)
                return True
            if verdict is Verdict.SMALLER and len(batch.events) > 1:
                self._most = max(1, len(batch.events) // 2)
                return False

    async def _wait_until_due(self) -> None:
        """Wait until the next attempt is due; for ever if the receiver is gone, unless somebody asks for one."""
        due = self.status.attempt
        if self.is_suspended or due is not None:
            try:
                async with asyncio.timeout(None if self.is_suspended or due is None else due - self._clock.wall()):
                    await self._again.wait()
            except TimeoutError:
                pass
        self._again.clear()

    async def _attempt(self, body: bytes, message: str) -> Verdict:
        headers = sign(message, body, keys=self.hook.keys, now=self._clock.wall())
        started = self._clock.monotonic()
        asked: float | None = None
        try:
            answer = await self._sender.post(self.hook, body, headers)
        except NoPostAnswer as error:
            verdict, why = Verdict.AGAIN, str(error)
        else:
            verdict, why = judge(answer.status), f"the receiver answered with status {answer.status}"
            asked = read_retry_after(answer.retry_after, self._clock.wall())
            self._context.metrics.observe(catalogue.HOOK_SECONDS, self._clock.monotonic() - started)
        if verdict is Verdict.DELIVERED:
            await self._succeeded()
        else:
            await self._failed(verdict, why, asked)
        return verdict

    async def _succeeded(self) -> None:
        now, failures, failing = self._clock.wall(), self.status.failures, self.status.failing
        self.status = replace(self.status.well(), delivered=now)
        if failures:
            seconds = round(now - (failing or now), 1)
            self._context.log.emit(log.HOOK_RECOVERED, hook=self.hook.name, failures=failures, seconds=seconds)
        if failures or self._clock.monotonic() - self._told >= TELL_EVERY:
            await self._tell_if_possible()

    async def _failed(self, verdict: Verdict, why: str, asked: float | None) -> None:
        now, name = self._clock.wall(), self.hook.name
        self._context.metrics.add(catalogue.HOOK_FAILURES, label=name)
        failures = self.status.failures + 1
        gone = verdict is Verdict.GONE
        if gone and not self.is_suspended:
            self._context.log.emit(log.HOOK_SUSPENDED, hook=name)
        elif failures == 1:
            self._context.log.emit(log.HOOK_FAILING, hook=name, error=why)
        self.status = replace(
            self.status,
            failures=failures,
            error=why,
            failed=now,
            failing=now if self.status.failing is None else self.status.failing,
            attempt=None if gone else now + pause(failures, self._clock.random(), asked),
            suspended=fingerprint(self.hook.url) if gone else "",
        )
        await self._tell_if_possible()

    def _count(self, batch: Batch) -> None:
        name, metrics = self.hook.name, self._context.metrics
        metrics.add(catalogue.HOOK_EVENTS, len(batch.events) - len(batch.gaps), label=name)
        self._most = min(self.hook.batch_events, 2 * self._most)
        for gap in batch.gaps:
            metrics.add(catalogue.HOOK_GAPS, label=name)
            metrics.add(catalogue.HOOK_MISSING, gap.count or 0, label=name)
            self._context.log.emit(log.HOOK_GAP, hook=name, reason=gap.reason.value, missing=gap.count)

    async def _tell_if_possible(self) -> None:
        try:
            await self._tell()
        except GridUnavailable:
            # The next time: nobody can ask for it now either.
            return

    async def _tell(self) -> None:
        await self._store.tell(self.hook.name, self.status.encode())
        self._told = self._clock.monotonic()
        self._is_news = False
