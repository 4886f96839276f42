"""From packets to messages (protocol 2.1, 2.2 and 5.1): as few as the size of a message allows."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.stream.runs import Run
from gateway.core.types import PacketId
from gateway.core.wire import codec


def compose(
    before: Sequence[bytes],
    first: PacketId,
    received: PacketId | None,
    runs: Sequence[Run],
    after: Sequence[bytes],
    *,
    limit: int,
) -> list[bytes]:
    """Write packets into messages.

    Args:
        before: encoded link packets to go first.
        first: id of the first session packet.
        received: the acknowledgement that it carries, or None.
        runs: the session packets, contiguous.
        after: encoded link packets to go last.
        limit: bytes of a message; a single packet that is larger is sent alone.
    """
    if runs and not before and not after:
        if len(runs) == 1:
            message = single(first, received, runs[0])
        else:
            message = b"[%b%b]" % (codec.head(first, received), codec.follow([run.text for run in runs]))
        if len(message) <= limit or (len(runs) == 1 and runs[0].count == 1):
            return [message]
    if len(before) == 1 and not runs and not after:  # a ping: all that an idle session is sent
        return [before[0]]
    return _Packing(limit).pack(before, first, received, runs, after)


def single(first: PacketId, received: PacketId | None, run: Run) -> bytes:
    """Write one run into one message, however large it may become; *first* and *received* as for ``compose``."""
    head = codec.head(first, received)
    return head + run.text if run.count == 1 else b"[%b%b]" % (head, run.text)


class SharedFrame:
    """A run while it goes to many sessions: written once for those, one after the other, whose numbers are alike.

    Sessions that began together and selected the same are at the same number. Then not even the head of a message is
    written anew. Where numbers differ, nothing is lost but the comparison.

    Args:
        run: what is sent.
        is_told: whether who sends it tells those who keep copies of the sessions, of all of them at once.

    Attributes:
        run: as given.
        is_told: as given.
    """

    __slots__ = ("_first", "_message", "is_told", "run")

    def __init__(self, run: Run, *, is_told: bool = False) -> None:
        self.run = run
        self.is_told = is_told
        self._first: PacketId | None = None
        self._message = b""

    def message(self, first: PacketId, received: PacketId | None) -> bytes:
        """Write the run into one message; *first* and *received* as for ``compose``."""
        if received is not None:
            return single(first, received, self.run)
        if first != self._first:
            self._first = first
            self._message = single(first, None, self.run)
        return self._message


class _Packing:
    """Messages while they are filled."""

    __slots__ = ("_limit", "_messages", "_pieces", "_several", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: list[bytes] = []
        self._pieces: list[bytes] = []
        self._several = False
        # An array has one byte more than its packets and a comma for each: two brackets, and no comma after the last.
        self._size = 1

    def pack(
        self,
        before: Sequence[bytes],
        first: PacketId,
        received: PacketId | None,
        runs: Sequence[Run],
        after: Sequence[bytes],
    ) -> list[bytes]:
        for packet in before:
            self._add(packet)
        number, follows = first, False
        waiting = list(reversed(runs))
        while waiting:
            run = waiting.pop()
            several = run.count > 1
            # The number can be left out where the packet before it in the message is the one before it in number.
            if not (follows and self._fits(b"{" + run.text, several=several)):
                numbered = codec.head(number, received) + run.text
                if several and len(numbered) + 2 > self._limit:
                    waiting.extend(reversed(run.split(run.count // 2)))
                    continue
                self._add(numbered, several=several)
            received, follows = None, True
            number = PacketId(number + run.count)
        for packet in after:
            self._add(packet)
        self._finish()
        return self._messages

    def _add(self, piece: bytes, *, several: bool = False) -> None:
        if not self._fits(piece, several=several):
            self._finish()
            self._fits(piece, several=several)

    def _fits(self, piece: bytes, *, several: bool) -> bool:
        """Add a piece to the message at hand, if it is the first there or still fits."""
        size = self._size + len(piece) + 1
        if self._pieces and size > self._limit:
            return False
        self._pieces.append(piece)
        self._several = self._several or several or len(self._pieces) > 1
        self._size = size
        return True

    def _finish(self) -> None:
        if self._pieces:
            text = b",".join(self._pieces)
            self._messages.append(b"[%b]" % text if self._several else text)
            self._pieces = []
            self._several = False
            self._size = 1
