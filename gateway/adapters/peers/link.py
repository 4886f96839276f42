"""One link to one node, after both have said who they are: reads, writes, beats, and knows when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from gateway.adapters.peers.frames import Frame, FrameError, FrameReader, FrameType
from gateway.adapters.peers.greeting import write
from gateway.adapters.peers.hello import shown
from gateway.adapters.peers.inbox import Inbox, Share
from gateway.adapters.peers.messages import (
    MESSAGE_OVERHEAD,
    QUESTION_HEAD,
    Assembler,
    Outgoing,
    SendQueue,
    answer_body,
    question_body,
    read_answer,
    read_question,
    read_record,
    record_body,
)
from gateway.core.pacing.rates import TokenBucket
from gateway.core.types import NodeRef
from gateway.ports.peers import (
    AnswerStatus,
    Declined,
    LinkLimits,
    LinkState,
    NoLink,
    Question,
    Record,
    Silent,
    TooLarge,
)

READ_BYTES: Final = 64 * 1024
"""Read in one turn of the event loop at most (P20)."""

TURN_FRAMES: Final = 100
"""Frames taken in one turn of the event loop at most: with whoever takes their messages less than a millisecond. 64 KiB
may hold five thousand of them, which would be fifty."""

FRAME_RATE: Final = 20_000.0
FRAME_BURST: Final = 5_000
"""Frames read from one peer in a second, and at once: some 7 µs each, so a peer that sends small ones without end takes
a seventh of a core. Whoever has much to say puts it into few frames."""

WRITE_BYTES: Final = 256 * 1024
"""Handed to the socket at once, and held by it before it counts as full."""

SILENT_BEATS: Final = 10
"""Heartbeats without any sign of life after which a link is broken: a connection may be dead at one end only. Whoever
asks something need not wait so long, see ``LinkState.silence``."""

LATE_BEATS: Final = 2
"""Heartbeats by which this node may notice late that time has passed; then it slept itself, and others shall not be
blamed for what it has not heard."""

IDLE_RATE: Final = 100.0
IDLE_BURST: Final = 1000.0
"""Frames a second, and at once, that say nothing (beats, answers to nothing): a node sends two beats a second. Answers
that come too late are none of them: a peer that slept for a second may owe thousands."""

GOODBYE: Final = 1.0
"""Seconds that a link that is hung up has to send what it has begun, its good-bye last."""

LARGEST_STREAM: Final = 2**32 - 1
"""Number of a question; then they begin at 1 again."""

Answer: TypeAlias = "asyncio.Future[tuple[AnswerStatus, bytes]]"


@dataclass(frozen=True, slots=True)
class Greeted:
    """A connection on which both nodes have said who they are.

    Attributes:
        peer: the other node.
        started: when that run of it started, in seconds since 1970.
        protocol: version agreed on.
        features: what both can do.
        dialed: whether this node opened it.
        reader: of its socket.
        writer: of its socket.
        frames: holds what came behind the greeting.
    """

    peer: NodeRef
    started: float
    protocol: int
    features: frozenset[str]
    dialed: bool
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    frames: FrameReader


@dataclass(frozen=True, slots=True)
class End:
    """Why a link has ended.

    Attributes:
        why: for people.
        planned: whether one of the two nodes hung up on purpose.
    """

    why: str
    planned: bool = False


class Link:
    """A link that is up, from its making until ``end``.

    Args:
        greeted: its connection.
        inbox: where goes what comes.
        limits: what it may cost.
        heartbeat: seconds after which something is sent in any case.
        ended: called once, when it has ended.

    Attributes:
        peer: the other node.
        greeted: as given.
        ended: set when it has ended.
        bytes_in: bytes that came, without those of TLS.
        bytes_out: bytes that were handed to the socket.
        frames_in: frames that came.
        was_planned: whether it has ended because one of the two nodes hung up on purpose.
    """

    def __init__(
        self,
        greeted: Greeted,
        *,
        inbox: Inbox,
        limits: LinkLimits,
        heartbeat: float,
        ended: Callable[[Link, End], None],
    ) -> None:
        self.peer = greeted.peer
        self.greeted = greeted
        self.ended = asyncio.Event()
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_in = 0
        self.was_planned = False
        self._inbox = inbox
        self._share = Share(limits)
        self._limits = limits
        self._heartbeat = heartbeat
        self._on_end = ended
        self._loop = asyncio.get_running_loop()
        self._heard = self._wrote = self._loop.time()
        self._queue = SendQueue(greeted.protocol)
        self._filled = asyncio.Event()
        head = QUESTION_HEAD
        self._assembler = Assembler(message=limits.message + head, total=limits.queue + head)
        self._sent = self._received = self._asked = 0
        self._answers: dict[int, tuple[Answer, Outgoing]] = {}
        self._given_up = 0  # questions that have left, and whose answers may come still
        self._questions: dict[int, asyncio.TimerHandle] = {}
        self._idle = TokenBucket(IDLE_RATE, IDLE_BURST)
        self._pace = TokenBucket(FRAME_RATE, FRAME_BURST)
        greeted.writer.transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._tasks = [
            asyncio.create_task(work(), name=f"link-{name}-{greeted.peer.node}")
            for name, work in (("read", self._read), ("write", self._write), ("beat", self._beat))
        ]

    @property
    def frames_out(self) -> int:
        """Frames that were handed to the socket."""
        return self._queue.frames

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent."""
        return self._queue.bytes + self.greeted.writer.transport.get_write_buffer_size()

    def state(self) -> LinkState:
        """See ``PeerLinks.state``."""
        return LinkState(up=True, silence=self.silence())

    def silence(self) -> float:
        """Seconds since anything came."""
        return max(0.0, self._loop.time() - self._heard)

    # --- What this node says ------------------------------------------------------------------------------------------

    async def ask(self, kind: str, question: bytes, *, within: float) -> bytes:
        """See ``PeerLinks.ask``."""
        self._check(len(question))
        if len(self._answers) >= self._limits.questions:
            raise NoLink(f"{self.peer.node} has {len(self._answers)} questions of this node to answer already")
        number = self._next_number()
        body = question_body(kind, question, within)
        if self._queue.bytes + len(body) > self._limits.queue:
            raise NoLink(f"{self.peer.node} does not read fast enough, and the queue of its link is full")
        message = self._put(FrameType.QUESTION, number, body)
        answer: Answer = self._loop.create_future()
        self._answers[number] = answer, message
        try:
            async with asyncio.timeout(within):
                status, content = await answer
        except TimeoutError:
            self._give_up(message, f"{self.peer.node} has not answered within {within:g} s")
        finally:
            del self._answers[number]
            self._queue.withdraw(message)
            if message.begun and (answer.cancelled() or not answer.done()):
                self._given_up += 1
        match status:
            case AnswerStatus.ANSWERED:
                return content
            case AnswerStatus.NOT_UNDERSTOOD:
                raise Declined(f"{self.peer.node} does not know the question {kind!r}: it runs another version")
            case AnswerStatus.BUSY:
                raise Declined(f"{self.peer.node} has too many questions to answer")
            case _:
                raise Silent(f"{self.peer.node} could not answer {kind!r}")

    def send(self, kind: str, record: bytes) -> int:
        """See ``PeerLinks.send``."""
        self._check(len(record))
        body = record_body(kind, record)
        if self._queue.bytes + len(body) > self._limits.queue:
            # To leave one out would be a hole that nobody sees.
            self.end(End(self._unread))
            raise NoLink(self._unread)
        self._queue.put(FrameType.RECORD, 0, body)
        self._sent += 1
        self._write_at_once()
        return self._sent

    def _write_at_once(self) -> None:
        """Hand what waits to the socket in this turn of the loop, if that has taken all before.

        Should this process be killed then, the kernel sends it on: so little is missing from what a backup is told.

        Raises:
            NoLink: the connection is broken.
        """
        writer = self.greeted.writer
        if not writer.transport.get_write_buffer_size():
            data = b"".join(self._queue.take(WRITE_BYTES))
            try:
                write(writer, data)
            except OSError as error:
                self.end(End(f"the connection broke: {error.strerror or error}"))
                raise NoLink(f"the link to {self.peer.node} has ended") from None
            self._wrote = self._loop.time()
            self.bytes_out += len(data)
        if self._queue:
            self._filled.set()

    def end(self, end: End, *, goodbye: bool = False) -> None:
        """Break the link; no effect on one that has ended.

        Args:
            end: why.
            goodbye: whether the peer is told, so that it need not take it for a failure.
        """
        if self.ended.is_set():
            return
        self.was_planned = end.planned
        self.ended.set()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for timer in self._questions.values():
            timer.cancel()
        self._questions.clear()
        writer = self.greeted.writer
        if goodbye:
            # In the middle of a frame it could not be read; frames are handed out whole.
            self._queue.urgent(FrameType.BYE, end.why.encode())
            with suppress(OSError):
                write(writer, b"".join(self._queue.take(0)))
                writer.close()
            self._loop.call_later(GOODBYE, writer.transport.abort)
        else:
            writer.transport.abort()
        for answer, message in self._answers.values():
            if not answer.done():
                what = f"the link to {self.peer.node} broke: {end.why}"
                answer.set_exception(Silent(what) if message.begun else NoLink(what))
        self._on_end(self, end)

    async def close(self, end: End) -> None:
        """Hang up, and wait until nothing of it runs any more."""
        self.end(end, goodbye=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _unread(self) -> str:
        return f"{self.peer.node} does not read fast enough, and the queue of its link was full"

    def _check(self, size: int) -> None:
        if self.ended.is_set():
            raise NoLink(f"the link to {self.peer.node} has ended")
        if size > self._limits.message:
            raise TooLarge(f"a message of {size} bytes, and {self._limits.message} are the most")

    def _put(self, type_: FrameType, stream: int, body: bytes) -> Outgoing:
        self._filled.set()
        return self._queue.put(type_, stream, body)

    def _next_number(self) -> int:
        self._asked = self._asked % LARGEST_STREAM + 1
        while self._asked in self._answers:
            self._asked = self._asked % LARGEST_STREAM + 1
        return self._asked

    def _give_up(self, message: Outgoing, why: str) -> NoReturn:
        if self._queue.withdraw(message):
            raise NoLink(f"{why}; the question had not left this node") from None
        raise Silent(why) from None

    # --- Work ---------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        frames, taken = self.greeted.frames, 0
        try:
            while True:
                while (frame := frames.next()) is not None:
                    if taken == TURN_FRAMES:
                        await self._end_turn(taken)
                        taken = 0
                    taken += 1
                    self.frames_in += 1
                    self._take(frame)
                    if self.ended.is_set():
                        return  # what came behind a good-bye is of no link
                    if self._share.is_full:
                        await self._share.room()
                        self._heard = self._loop.time()
                data = await self.greeted.reader.read(READ_BYTES)
                if not data:
                    self.end(End("the other node closed the connection"))
                    return
                self._heard = self._loop.time()
                self.bytes_in += len(data)
                frames.feed(data)
                # ``read`` does not wait while something is there.
                await self._end_turn(taken)
                taken = 0
        except FrameError as error:
            self.end(End(f"it broke the protocol: {error}"))
        except OSError as error:
            self.end(End(f"the connection broke: {error.strerror or error}"))

    async def _end_turn(self, frames: int) -> None:
        """Let others have their turn, and read on later if the peer has sent more than its share of frames."""
        wait = self._pace.charge(self._loop.time(), frames)
        await asyncio.sleep(wait)
        if wait:
            self._heard = self._loop.time()

    async def _write(self) -> None:
        writer = self.greeted.writer
        try:
            while True:
                await self._filled.wait()
                self._filled.clear()
                while data := b"".join(self._queue.take(WRITE_BYTES)):
                    self._wrote = self._loop.time()
                    self.bytes_out += len(data)
                    write(writer, data)
                    await writer.drain()
        except OSError as error:
            self.end(End(f"the connection broke: {error.strerror or error}"))

    async def _beat(self) -> None:
        while True:
            before = self._loop.time()
            await asyncio.sleep(max(self._heartbeat - (before - self._wrote), self._heartbeat / 4))
            now = self._loop.time()
            if now - self._wrote >= self._heartbeat and not self._queue:
                self._queue.urgent(FrameType.BEAT)
                self._filled.set()
            if now - before > LATE_BEATS * self._heartbeat:
                continue
            if self.silence() > SILENT_BEATS * self._heartbeat and not self._share.is_full:
                self.end(End(f"nothing was heard for {self.silence():.1f} s"))
                return

    # --- What the peer says -------------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        if frame.version != self.greeted.protocol:
            raise FrameError(f"a frame of version {frame.version}, and {self.greeted.protocol} was agreed on")
        match frame.type:
            case FrameType.BEAT:
                self._says_nothing()
            case FrameType.BYE:
                self.end(End(f"the other node hung up: {shown(frame.body.decode('utf-8', 'replace'))}", planned=True))
            case FrameType.RECORD | FrameType.QUESTION | FrameType.ANSWER:
                body = self._assembler.take(frame)
                if body is not None:
                    self._take_message(frame.type, frame.stream, body)
            case _:
                raise FrameError(f"a {frame.type.name.lower()} in the middle")

    def _take_message(self, type_: FrameType, stream: int, body: bytes) -> None:
        if type_ is FrameType.RECORD:
            if stream:
                raise FrameError("a record in another stream than 0")
            kind, content = read_record(body)
            self._received += 1
            self._deliver(Record(self.peer, self._received, kind, content), body)
        elif type_ is FrameType.QUESTION:
            within, kind, content = read_question(body)
            if not stream or stream in self._questions:
                raise FrameError(f"a question of the number {stream}, which is none or in use")
            if len(self._questions) >= self._limits.questions:
                # It costs no more than a question that is answered, and whoever has given up many asks rightly.
                self._reply(stream, AnswerStatus.BUSY)
                return
            self._questions[stream] = self._loop.call_later(within, self._questions.pop, stream, None)
            reply = self._replier(stream)
            self._deliver(Question(self.peer, kind, content, within, reply), body)
        else:
            status, content = read_answer(body)
            waiting = self._answers.get(stream)
            if waiting is not None and not waiting[0].done():
                waiting[0].set_result((status, content))
            elif self._given_up:
                self._given_up -= 1  # it comes too late
            else:
                self._says_nothing()

    def _deliver(self, event: Record | Question, body: bytes) -> None:
        self._inbox.put(event, self._share, len(body) + MESSAGE_OVERHEAD)

    def _replier(self, stream: int) -> Callable[[AnswerStatus, bytes], None]:
        def reply(status: AnswerStatus, content: bytes) -> None:
            timer = self._questions.pop(stream, None)
            if timer is None or self.ended.is_set():
                return
            timer.cancel()
            fits = len(content) <= self._limits.message and self._queue.bytes + len(content) <= self._limits.queue
            if fits:
                self._reply(stream, status, content)
            else:
                self._reply(stream, AnswerStatus.FAILED)

        return reply

    def _reply(self, stream: int, status: AnswerStatus, content: bytes = b"") -> None:
        if self._queue.bytes >= self._limits.queue:
            # Answers that say no are small, and a peer that asks on and on and reads nothing gets them for ever.
            self.end(End(self._unread))
            return
        self._put(FrameType.ANSWER, stream, answer_body(status, content))

    def _says_nothing(self) -> None:
        if self._idle.charge(self._loop.time()) > 0:
            raise FrameError("too many frames that say nothing")
