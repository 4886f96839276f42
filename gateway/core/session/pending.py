"""The unanswered requests of one session, in the order in which its client sent them.

```text
put ──▶ │ waiting … │ started │ ──▶ finish: answered
              start ──▶
```

The first ones are *started* when somebody begins to execute them. What is started and not finished may have been
executed: whoever goes on with the session elsewhere asks it again as ``resubmitted`` (protocol 5.2.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from gateway.core.pacing.workload import REQUEST_BYTES, weight
from gateway.core.types import RequestNumber
from gateway.core.wire.exchange_packets import Answer, Ask
from gateway.core.wire.packets import (
    Bye,
    ClientRequest,
    Malformed,
    Publish,
)
from gateway.core.wire.queue_packets import (
    Send,
    Settle,
)

Work: TypeAlias = ClientRequest | Bye
"""What a client asks for: a request, or the end of its session."""

RUN_BYTES: Final = 64 * 1024
"""Bytes of the commands of a run above which it is ended: about a step of the grid. One client with the largest values
still has some tens of megabytes a second, and whoever comes behind sixty such clients waits for 4 MB of them, and not
for all they have sent. All small publishes that a client may have unanswered by default are one run: what goes to a
thousand subscribers together is written to each of them together."""

RUNS: Final = frozenset({Publish, Send, Settle, Ask, Answer})
"""Kinds of requests of which several that come together are one step of the grid."""

COMMAND_BYTES: Final = 128
"""Bytes of a publish in a pipeline to the grid besides its texts. In memory it takes more (``REQUEST_BYTES``)."""


def maybe_executed(work: Work) -> Work:
    """Mark a request as one that may have been executed: the grid was asked, and its answer is not known."""
    return work if isinstance(work, Bye | Malformed) else replace(work, resubmitted=True)


class PendingRequests:
    """The unanswered requests of one session.

    Attributes:
        bytes: of all of them, about; see ``weight``.
        started: how many of the first ones are being executed.
        recorder: told of each change where somebody keeps a copy (``gateway.core.mirror``); None for nobody.
    """

    # Two lists and not a deque of pairs: an empty deque takes 624 bytes, and ten thousand idle sessions would pay for
    # it. There are at most some hundred requests to move when the first ones go.
    __slots__ = ("_queue", "_weights", "bytes", "recorder", "started")

    def __init__(self, requests: Iterable[Work] = (), *, started: int = 0) -> None:
        """Take in *requests* that are pending already, of which the first *started* are being executed."""
        self._queue: list[Work] = list(requests)
        self._weights = list(map(weight, self._queue))
        self.bytes = sum(self._weights)
        self.started = started
        self.recorder: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._queue)

    @property
    def oldest(self) -> RequestNumber | None:
        """Number of the oldest request without an answer; None if there is none."""
        if self._queue and not isinstance(self._queue[0], Bye):
            return self._queue[0].request
        return None

    def put(self, work: Work) -> int:
        """Add a request at the end; returns its weight in bytes."""
        weighs = weight(work)
        self._queue.append(work)
        self._weights.append(weighs)
        self.bytes += weighs
        return weighs

    def start(self) -> tuple[list[Work], int]:
        """Choose what is executed next: the first request, or the first run of one kind in ``RUNS``. One is pending.

        Returns:
            The requests, which are started now, and their weight in bytes.
        """
        run: list[Work] = []
        first = type(self._queue[0])
        size = sent = 0
        for work, weighs in zip(self._queue, self._weights, strict=True):
            kind = type(work)
            if kind is not first or kind not in RUNS or sent >= RUN_BYTES:
                break
            run.append(work)
            size += weighs
            sent += weighs - REQUEST_BYTES + COMMAND_BYTES
        if not run:
            run, size = [self._queue[0]], self._weights[0]
        self.started = len(run)
        return run, size

    def finish(self) -> None:
        """What was started has been answered; does nothing if it has been dropped meanwhile."""
        done, self.started = self.started, 0
        self.bytes -= sum(self._weights[:done])
        del self._queue[:done]
        del self._weights[:done]

    def restart(self) -> None:
        """Nobody executes what was started any more: it is pending again, as something that may have been executed."""
        for place in range(self.started):
            work = maybe_executed(self._queue[place])
            self._queue[place] = work
            self._weights[place] = weight(work)
        self.started = 0

    def clear(self) -> None:
        """Forget all of them, those that are being executed as well."""
        self._queue.clear()
        self._weights.clear()
        self.bytes = self.started = 0
