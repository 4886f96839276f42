"""What became of a run of publishes, sorted by how it has to be answered (protocol 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.types import RequestNumber
from gateway.core.wire import codec
from gateway.core.wire import fast_path as quick
from gateway.core.wire.packets import Publish, Reply
from gateway.ports import GridRefused, NotCreated, NotStored, PublishCommand, Published, PublishResult


class Receipts:
    """The results of a run.

    Args:
        commands: the publishes, in order.
        results: one for each; what follows a fenced one has no answer.
        run: the requests that they were made of, and others that were refused before.

    Attributes:
        bodies: encoded replies of what was published, now or before.
        answered: the requests that they answer.
        duplicates: how many of these were published before.
        created: how many topics are new.
        not_created: requests that would have created a topic, and may not.
        not_stored: requests whose values would have made their partition hold more bytes than it may.
        used: requests that were published before, though nobody has asked for them before: their numbers are not new.
        refused: requests for which the grid has done nothing, as it refuses to write, and why.
        fenced: how the grid said that another node has the session, if it did.

    Errors are kept as what they say. One that is kept and raised leads by its trace to the frame that raised it, and
    from there to itself: a cycle, which would hold all that the frame holds until the collector comes round.
    """

    __slots__ = (
        "answered",
        "bodies",
        "created",
        "duplicates",
        "fenced",
        "not_created",
        "not_stored",
        "refused",
        "used",
    )

    def __init__(
        self,
        commands: Sequence[PublishCommand],
        results: Sequence[PublishResult],
        run: Sequence[Publish],
    ) -> None:
        self.bodies: list[bytes] = []
        self.answered: list[RequestNumber] = []
        self.duplicates = self.created = 0
        self.not_created: list[RequestNumber] = []
        self.not_stored: list[RequestNumber] = []
        self.used: list[RequestNumber] = []
        self.refused: dict[RequestNumber, str] = {}
        self.fenced: str | None = None
        for command, result in zip(commands, results, strict=True):
            if isinstance(result, Published):
                if result.duplicate and not any(each.resubmitted for each in run if each.request == command.request):
                    self.used.append(command.request)
                else:
                    self._take(command.request, result)
            elif isinstance(result, NotCreated):
                self.not_created.append(command.request)
            elif isinstance(result, NotStored):
                self.not_stored.append(command.request)
            elif isinstance(result, GridRefused):
                self.refused[command.request] = str(result)
            else:
                self.fenced = str(result)
                break

    def _take(self, request: RequestNumber, published: Published) -> None:
        version, event, duplicate, is_new = published
        self.duplicates += duplicate
        self.created += is_new
        self.answered.append(request)
        if event:
            self.bodies.append(quick.published(request, version, event))
        else:
            self.bodies.append(codec.encode_reply(Reply(request=request)))
