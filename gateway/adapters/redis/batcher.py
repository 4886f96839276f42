"""Group commit: all commands issued within one tick of the loop go to one Redis as one pipeline, in order.

```text
callers ──submit──▶ pending ──writer──▶ a few pipelines on the wire ──reader──▶ futures of the callers
```

While pipelines are on the wire, new commands gather: the busier the node, the larger the pipelines, with no timer and
no tuning. Redis answers in order, so the replies need no numbers. A caller that is cancelled leaves its command alone.

A pipeline is bounded in bytes, because packing it holds up the loop, and after one that is full everybody else gets a
turn (P20). What one caller asks for together and is larger than that is cut: its commands stay in order, and its reply
comes when the last of them is answered.

Work that may wait, such as claims for clients that come back, goes to the end of each pipeline, and only so much of
it: established sessions and the node's lease pass in front of a storm, which never keeps Redis busy for long at a time.
What waits stays in order among itself, and so does everything else; nobody may rely on an order between the two.

Failure is by prefix: when the connection breaks, everything sent or waiting fails, and nothing is repeated here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from gateway.adapters.redis.dialer import pack_one, receive, send
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.write_gate import WriteGate
from gateway.catalogue.metrics import GRID_BATCH_COMMANDS, GRID_STEP_SECONDS
from gateway.core.wire.errors import GatewayError
from gateway.ports import GridRefused, GridUnavailable, LeaseUnverified, Metrics

PIPELINES_IN_FLIGHT: Final = 2
"""One is executed by Redis while the replies of the other are taken in; more would only make each smaller. Pipelines
that hold nothing but what may wait do not count for those that hold more: else what may wait would hold them up for a
round trip, which is long when Redis is slow."""

PIPELINE_COMMANDS: Final = 1000
"""Commands of one caller after which its next ones are of another group."""

PIPELINE_ARGUMENTS: Final = 10_000
"""Arguments after which a pipeline is closed. A command has about ten, and each publish of many in one step three, so
that this is some 15 to 20 ms of work for Redis, far below every time limit."""

PIPELINE_BYTES: Final = 512 * 1024
"""Packed bytes after which a pipeline is closed. The last command may reach beyond: by default it has at most 96 KiB
(``topics.PUBLISH_BYTES`` and one value), so that a turn of the loop packs and copies less than 1 MiB, which takes it
about a millisecond. A pipeline of 104 MB, packed in one turn, was measured to stop a node for 6.7 s."""

PIPELINE_BYTES_AT_LEAST: Final = 64 * 1024
"""The same for each master of a Redis Cluster with very many of them: below, the pipelines would cost more than what
is in them."""

PATIENT_GROUPS: Final = 64
"""Groups of commands that may wait which one pipeline takes along: claims of about 2 ms of Redis. The rest waits for
the next pipeline, behind whatever cannot wait."""

PATIENT_SHARE: Final = 4
"""Of a pipeline's bytes, what may wait gets one part of so many, also where the rest is full: a claim or a new session
has some hundred bytes, but may have 70 KiB of properties."""

_STALL: Final = 0.1
"""Seconds by which a timer may be late before the delay is blamed on this process and not on Redis."""

_CANCEL_AGAIN: Final = 1.0
"""Seconds until a task that was cancelled and goes on is cancelled again. Up to Python 3.11, ``asyncio.wait_for``, by
which the Redis client bounds its writes, loses a cancellation that meets the end of the write."""

_SHORTEST_LOOK: Final = 0.01
"""Seconds between two looks at the time limits, at least."""

_SECOND_LOOK: Final = 0.25
"""Seconds a stalled process gives replies that may have arrived meanwhile to be read."""

_UNAVAILABLE: Final = (ReadOnlyError, ClusterDownError, MasterDownError, NoScriptError)
"""Replies that mean that the server at the other end cannot be the grid as it is: demoted, in pieces, or, as scripts
are loaded on every connection, flushed by somebody. Reconnecting finds the right servers and loads the scripts."""

_REDIRECTING: Final = (AskError, TryAgainError)
"""Replies while a slot of a Redis Cluster is half here and half there, and MOVED, a subclass of ASK in redis-py, when
it is somewhere else: nothing was executed. Where the reply points to is never followed: who follows it cannot know what
else has changed. The masters are asked, and the command is sent again (``router``)."""

_REFUSING_CODES: Final = ("MISCONF", "NOREPLICAS")
"""Replies, besides OOM, by which Redis refuses single writes for a while and changes nothing."""


class ScriptFailed(GatewayError):
    """Redis refused a command that must work: a bug here, or foreign data below the prefix."""


def fresh(error: Exception) -> Exception:
    """Return an equal error, to be raised in the place of one that is kept among replies.

    An error that is raised leads by its trace to the frames it went through. If one of those leads back to it, that is
    a cycle, which holds the session whose request failed until the collector comes round (``gateway.garbage``).
    """
    return type(error)(*error.args)


class Redirected(GridRefused):
    """A command met a slot of a Redis Cluster that is being moved, or was: it was not executed.

    It is sent again for a time. Who meets this after that is refused and can tell its client: a slot that stays half
    moved does not get well by waiting, and the rest of the grid is up.
    """


class Group:
    """Commands of one caller; they stay together and share one future.

    Args:
        commands: what to execute.
        future: of one reply per command.
        gated: as for ``Executor.call``.
        asked: when, in seconds of the loop's clock.
        as_is: whether its caller wants to know that commands were redirected.

    Attributes:
        commands: as given.
        future: as given.
        gated: as given.
        asked: as given.
        as_is: as given.
        replies: so far.
        redirected: whether a ``Redirected`` is among them.
    """

    __slots__ = ("as_is", "asked", "commands", "future", "gated", "redirected", "replies")

    def __init__(
        self,
        commands: Sequence[Command],
        future: asyncio.Future[list[Any]],
        *,
        gated: bool,
        asked: float,
        as_is: bool = False,
    ) -> None:
        self.commands = commands
        self.future = future
        self.gated = gated
        self.asked = asked
        self.as_is = as_is
        self.replies: list[Any] = []
        self.redirected = False

    def succeed(self) -> None:
        """Hand the replies to the caller, if it still waits."""
        if not self.future.done():
            self.future.set_result(self.replies)

    def fail(self, error: Exception) -> None:
        """Tell the caller, if it still waits, that it may or may not have been executed."""
        if not self.future.done():
            self.future.set_exception(error)

    def cut(self, at: int, answer: Callable[[Group], None]) -> tuple[Group, Group]:
        """Make two groups of this one, which is answered when both are.

        Args:
            at: how many commands the first one has.
            answer: hands the replies of this group to its caller, once they are complete.
        """
        loop = asyncio.get_running_loop()
        head, rest = (
            Group(commands, loop.create_future(), gated=self.gated, asked=self.asked, as_is=True)
            for commands in (self.commands[:at], self.commands[at:])
        )

        def arrived(done: asyncio.Future[list[Any]]) -> None:
            error = done.exception()
            if error is not None:
                # Also where nothing more was sent for want of a lease: what was sent before may have been executed.
                self.fail(GridUnavailable(str(error)))
            elif not self.replies and all(len(each.replies) == len(each.commands) for each in (head, rest)):
                self.replies = head.replies + rest.replies
                self.redirected = any(isinstance(reply, Redirected) for reply in self.replies)
                answer(self)

        for part in (head, rest):
            part.future.add_done_callback(arrived)
        return head, rest


class _Flight:
    """One pipeline on the wire."""

    __slots__ = ("groups", "sent", "urgent")

    def __init__(self, groups: int, sent: float, *, urgent: bool) -> None:
        self.groups = groups
        self.sent = sent
        self.urgent = urgent


class Executor(ABC):
    """Executes commands: on one Redis, or each on the one that serves its keys."""

    async def call(self, command: Command, *, gated: bool = False, patient: bool = False) -> Any:
        """Execute one command.

        Args:
            command: what to execute.
            gated: refuse it while the node's lease may have expired.
            patient: let everything else pass that is not, so that the order of calls means nothing towards those.

        Returns:
            The reply.

        Raises:
            GridUnavailable: it may or may not have been executed.
            ScriptFailed: Redis refused it; a bug.
        """
        (reply,) = await self.submit((command,), gated=gated, patient=patient)
        if isinstance(reply, Exception):
            raise fresh(reply)
        return reply

    async def call_all(self, commands: Sequence[Command], *, gated: bool = False) -> list[Any]:
        """Execute commands, those for one Redis in order, and all of them even if one fails; see ``call``."""
        replies = await self.call_each(commands, gated=gated)
        for reply in replies:
            if isinstance(reply, Exception):
                raise fresh(reply)
        return replies

    async def call_each(self, commands: Sequence[Command], *, gated: bool = False) -> list[Any]:
        """Execute commands as ``call_all`` does; the reply of one that was refused by itself is an exception."""
        if not commands:
            return []
        # The futures have no name here: of one that failed the error leads to this frame, which must not lead back.
        results = await asyncio.gather(
            *[
                self.submit(commands[start : start + PIPELINE_COMMANDS], gated=gated)
                for start in range(0, len(commands), PIPELINE_COMMANDS)
            ]
        )
        return results[0] if len(results) == 1 else [reply for result in results for reply in result]

    @abstractmethod
    def submit(
        self, commands: Sequence[Command], *, gated: bool = False, patient: bool = False
    ) -> asyncio.Future[list[Any]]:
        """Queue commands at once, so that the order of calls is the order of execution, for each hash tag.

        Args:
            commands: what to execute.
            gated: as for ``call``.
            patient: as for ``call``.

        Returns:
            A future of one reply per command; a command that was refused by itself has an exception in place of one.

        Raises:
            GridUnavailable: the grid is unreachable; nothing is sent.
        """


class Batcher(Executor):
    """Sends commands over one connection to one Redis.

    Args:
        timeout: seconds within which a pipeline must be answered, and a command be sent.
        write_gate: gate for commands that are not to be sent by a node whose lease may have expired.
        metrics: where pipelines are measured.
        broken: called once when the connection is of no more use; expected to call ``shut``.
        refused: called with each reply by which Redis refuses a single write.
        wrong_type: called with the first key of each command that Redis refuses because a key is of another type.
        redirected: given each group of which commands were redirected, and answers it; None if its caller is told.
        pipeline_bytes: packed bytes after which a pipeline is closed; see ``bytes_for_each``.

    Attributes:
        slowest: seconds that an answer took at most; whoever reads it sets it back.
    """

    def __init__(
        self,
        *,
        timeout: float,
        write_gate: WriteGate,
        metrics: Metrics,
        broken: Callable[[Exception], None],
        refused: Callable[[str], None],
        wrong_type: Callable[[str], None] = lambda _: None,
        redirected: Callable[[Group], None] | None = None,
        pipeline_bytes: int = PIPELINE_BYTES,
    ) -> None:
        self._pipeline_bytes = pipeline_bytes
        self._timeout = timeout
        self._write_gate = write_gate
        self._metrics = metrics
        self._broken = broken
        self._refused = refused
        self._wrong_type = wrong_type
        self._redirected = redirected or Group.succeed
        self._pending: deque[Group] = deque()
        self._patient: deque[Group] = deque()
        """Pending, too, but behind everything else."""
        self._awaited: deque[Group] = deque()
        self._flights: deque[_Flight] = deque()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._watch: asyncio.TimerHandle | None = None
        self._why_shut = GridUnavailable("the grid has not been reached yet")
        self._open = False
        self.slowest = 0.0

    # --- for callers --------------------------------------------------------------------------------------------------

    def submit(
        self,
        commands: Sequence[Command],
        *,
        gated: bool = False,
        patient: bool = False,
        asked: float | None = None,
        as_is: bool = False,
    ) -> asyncio.Future[list[Any]]:
        """See ``Executor.submit``; commands of all hash tags stay in order.

        Args:
            commands: what to execute.
            gated: as for ``call``.
            patient: as for ``call``.
            asked: when they were asked for, if that was not now; their time limit counts from then.
            as_is: answer with ``Redirected`` what was redirected, in the place of sending it again.
        """
        if not self._open:
            raise GridUnavailable(str(self._why_shut))
        loop = asyncio.get_running_loop()
        group = Group(
            commands, loop.create_future(), gated=gated, asked=loop.time() if asked is None else asked, as_is=as_is
        )
        (self._patient if patient else self._pending).append(group)
        self._work.set()
        self._idle.clear()
        return group.future

    async def ask(self, command: Command) -> Any:
        """Execute one command; see ``call``. Whether it was redirected is the caller's matter: then it raises.

        Raises:
            Redirected: it was, and is not executed.
        """
        (reply,) = await self.submit((command,), as_is=True)
        if isinstance(reply, Exception):
            raise fresh(reply)
        return reply

    # --- for the grid connection --------------------------------------------------------------------------------------

    def open(self, connection: AbstractConnection) -> None:
        """Start to send over a connection to an adopted grid."""
        self._open = True
        self._tasks = (
            asyncio.create_task(self._write(connection), name="grid-writer"),
            asyncio.create_task(self._read(connection), name="grid-reader"),
        )

    def shut(self, error: GridUnavailable) -> None:
        """Stop at once: all that was sent or waits fails with *error*, as does every later command until ``open``."""
        self._open = False
        self._why_shut = error
        for task in self._tasks:
            task.cancel()
        self._tasks = ()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        groups = [*self._awaited, *self._pending, *self._patient]
        self._awaited.clear()
        self._pending.clear()
        self._patient.clear()
        self._flights.clear()
        self._idle.set()
        for group in groups:
            group.fail(GridUnavailable(str(error)))

    async def drain(self) -> None:
        """Wait until everything that was submitted is answered or failed."""
        await self._idle.wait()

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _write(self, connection: AbstractConnection) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                while not self._may_send():
                    self._work.clear()
                    await self._work.wait()
                urgent = bool(self._pending)
                packed: list[bytes] = []
                groups, is_full = self._take(packed)
                if not groups:
                    self._settle()
                    continue
                self._metrics.observe(GRID_BATCH_COMMANDS, len(packed))
                self._awaited.extend(groups)
                self._flights.append(_Flight(len(groups), loop.time(), urgent=urgent))
                self._arm(self._timeout)
                await send(connection, b"".join(packed))
                if is_full:
                    # To send need not wait for anything, and what follows is as much again.
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would tell the callers
            self._broken(error)

    def _may_send(self) -> bool:
        """Tell whether there is something that may go on the wire now."""
        flights = self._flights
        if self._pending:
            return sum(flight.urgent for flight in flights) < PIPELINES_IN_FLIGHT
        return bool(self._patient) and len(flights) < PIPELINES_IN_FLIGHT

    def _take(self, packed: list[bytes]) -> tuple[list[Group], bool]:
        """Take what goes into the next pipeline; the gate is looked at now, as late as possible.

        Args:
            packed: filled with the commands, encoded.

        Returns:
            The groups they belong to, and whether the bytes of a pipeline are used up.
        """
        groups: list[Group] = []
        permitted = self._write_gate.permits_writes()
        arguments = 0
        room = self._pipeline_bytes
        while self._pending and arguments < PIPELINE_ARGUMENTS and room > 0:
            count, size = self._take_one(self._pending, groups, packed, room, permitted=permitted)
            arguments += count
            room -= size
        patient, patient_room = 0, self._pipeline_bytes // PATIENT_SHARE
        while self._patient and patient < PATIENT_GROUPS and patient_room > 0:
            patient_room -= self._take_one(self._patient, groups, packed, patient_room, permitted=permitted)[1]
            patient += 1
        return groups, room <= 0 or patient_room <= 0

    def _take_one(
        self, pending: deque[Group], groups: list[Group], packed: list[bytes], room: int, *, permitted: bool
    ) -> tuple[int, int]:
        """Move the first group, or as much of it as there is room for; returns how many arguments and bytes it has."""
        group = pending.popleft()
        if group.gated and not permitted:
            group.fail(LeaseUnverified("this node may have lost its lease and must verify it before it writes"))
            return 0, 0
        commands = group.commands
        if len(commands) == 1:  # as most have
            encoded = pack_one(commands[0])
            packed.append(encoded)
            groups.append(group)
            return len(commands[0]), len(encoded)
        size = 0
        for taken, command in enumerate(commands):
            if size >= room:
                group, rest = group.cut(taken, self._answer)
                pending.appendleft(rest)
                break
            encoded = pack_one(command)
            packed.append(encoded)
            size += len(encoded)
        groups.append(group)
        return sum(map(len, group.commands)), size

    def _answer(self, group: Group) -> None:
        """Hand its replies to the caller of a group that was cut."""
        if group.redirected and not group.as_is:
            self._redirected(group)
        else:
            group.succeed()

    async def _read(self, connection: AbstractConnection) -> None:
        try:
            while True:
                try:
                    reply = await receive(connection)
                except ResponseError as error:
                    reply = self._judge(error)
                    if isinstance(reply, Redirected) and self._awaited:
                        self._awaited[0].redirected = True
                    if str(error).startswith("WRONGTYPE") and self._awaited:
                        self._wrong_type(_first_key(self._awaited[0]))
                if not self._awaited:
                    raise ConnectionError("Redis sent an answer without a request")
                group = self._awaited[0]
                group.replies.append(reply)
                if len(group.replies) == len(group.commands):
                    self._awaited.popleft()
                    if group.redirected and not group.as_is:
                        self._redirected(group)
                    elif not group.future.done():
                        group.future.set_result(group.replies)
                    self._land()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would tell the callers
            self._broken(error)

    def _judge(self, error: ResponseError) -> Exception:
        """Tell what an error reply means: for the connection, then it raises, or for its command alone."""
        text = str(error)
        if isinstance(error, _UNAVAILABLE) or text.startswith(("BUSY ", "LOADING ")):
            raise error
        if isinstance(error, _REDIRECTING):
            return Redirected(f"a slot of the Redis Cluster is being moved: {text}")
        if isinstance(error, OutOfMemoryError) or text.startswith(_REFUSING_CODES):
            self._refused(text)
            return GridRefused(f"Redis refuses writes: {text}")
        return ScriptFailed(f"Redis answered with an error: {text}")

    def _land(self) -> None:
        """One group is answered; free its pipeline with the last of them."""
        flight = self._flights[0]
        flight.groups -= 1
        if flight.groups == 0:
            self._flights.popleft()
            took = asyncio.get_running_loop().time() - flight.sent
            self._metrics.observe(GRID_STEP_SECONDS, took)
            self.slowest = max(self.slowest, took)
            self._work.set()
            self._settle()

    def _settle(self) -> None:
        if not self._pending and not self._patient and not self._awaited:
            self._idle.set()

    def _arm(self, delay: float) -> None:
        """Look at the time limits after *delay* seconds; one timer serves all pipelines."""
        if self._watch is None:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(delay, self._look, loop.time() + delay)

    def _look(self, expected: float) -> None:
        self._watch = None
        if not self._flights:
            return
        now = asyncio.get_running_loop().time()
        if now - expected > _STALL:
            # This process stood still, so the reply may be waiting to be read.
            self._arm(_SECOND_LOOK)
            return
        overdue = self._flights[0].sent + self._timeout - now
        if overdue <= 0:
            self._broken(TimeoutError(f"Redis did not answer within {self._timeout:g} s"))
            return
        for pending in (self._pending, self._patient):
            if not pending or now - pending[0].asked <= self._timeout:
                continue
            # Redis answers, but more is asked of it than it can do. All that waits so fails: still a prefix.
            waiting = list(pending)
            pending.clear()
            for group in waiting:
                group.fail(GridUnavailable("more is asked of the grid than it can do in time"))
        self._arm(max(overdue, _SHORTEST_LOOK))


def _first_key(group: Group) -> str:
    """Name the first key of the command that is answered next."""
    command = group.commands[len(group.replies)]
    # EVALSHA has the name of the script and the number of keys before the first key; of the rest, the key is next.
    place = 3 if command[0] == b"EVALSHA" else 1
    key = command[place] if len(command) > place else command[0]
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def bytes_for_each(masters: int) -> int:
    """Tell with how many bytes a pipeline to each of several masters is full: their turns come in the same turn."""
    return max(PIPELINE_BYTES_AT_LEAST, PIPELINE_BYTES // masters)


async def abandon(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end.

    Raises:
        asyncio.CancelledError: whoever waits is cancelled itself; that must not be taken for the end of the others.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # their errors are known now, and of no interest
