"""Links between nodes of one process, for tests: ``PeerLinks`` whose network is cut, slow or deaf when it is told to.

```python
network = MemoryPeerNetwork()
n1, n2 = (MemoryPeerLinks(network, ref, started=1.0) for ref in (N1, N2))
network.stall(N1, N2)  # what n1 says does not arrive; what n2 says does
```
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final, TypeAlias

from gateway.adapters.known_runs import KnownRuns
from gateway.core.types import NodeRef
from gateway.ports.peers import (
    DOWN,
    KIND_BYTES,
    AnswerStatus,
    Declined,
    Down,
    LinkEvent,
    LinkLimits,
    LinkState,
    NoLink,
    PeerPlace,
    Question,
    Record,
    Silent,
    TooLarge,
    Up,
)

SILENCE: Final = 5.0
"""Seconds without a sign of life after which a link is broken, as in the real adapter by default."""

OVERHEAD: Final = 64
"""Bytes that a message counts beside its body, as in the real adapter."""

PROTOCOLS: Final = (1,)
"""Versions of a protocol that it speaks as little as any other."""

_Way: TypeAlias = tuple[NodeRef, NodeRef]
"""From whom to whom."""

_Answer: TypeAlias = "asyncio.Future[tuple[AnswerStatus, bytes]]"


@dataclass(slots=True)
class _Faults:
    """What one way suffers; it stays when links come and go.

    Attributes:
        delay: seconds for which everything is held back.
        stalled: since when nothing arrives; None while it does.
        drop_after: messages that still arrive before the link breaks; None for no end.
    """

    delay: float = 0.0
    stalled: float | None = None
    drop_after: int | None = None


@dataclass(eq=False)
class _Line:
    """A link that is up.

    Attributes:
        ends: its two nodes.
        waiting: what is under way, by way: when it is due, and what happens then.
        bytes: that are under way, or were not taken yet, by way.
        sequences: of records, by way.
        up: False from its end on.
    """

    ends: _Way
    waiting: dict[_Way, deque[tuple[float, Callable[[], None]]]] = field(default_factory=dict)
    bytes: dict[_Way, int] = field(default_factory=dict)
    sequences: dict[_Way, int] = field(default_factory=dict)
    up: bool = True

    def __post_init__(self) -> None:
        a, b = self.ends
        for way in ((a, b), (b, a)):
            self.waiting[way] = deque()
            self.bytes[way] = self.sequences[way] = 0

    def peer_of(self, node: NodeRef) -> NodeRef:
        """Tell who is at the other end."""
        return self.ends[0] if self.ends[1] == node else self.ends[1]


class MemoryPeerNetwork:
    """What lies between nodes.

    Args:
        silence: seconds without a sign of life after which a link is broken.
    """

    def __init__(self, silence: float = SILENCE) -> None:
        self.silence = silence
        self._nodes: dict[NodeRef, MemoryPeerLinks] = {}
        self._lines: dict[NodeRef, dict[NodeRef, _Line]] = {}
        """Links that are up, by each of their ends."""
        self._cut: set[frozenset[NodeRef]] = set()
        self._faults: dict[_Way, _Faults] = {}

    # --- Faults -------------------------------------------------------------------------------------------------------

    def cut(self, one: NodeRef, other: NodeRef) -> None:
        """Break the link of two nodes, and let there be none until ``mend``."""
        self._cut.add(frozenset((one, other)))
        self.break_link(one, other, "the network is cut")

    def mend(self, one: NodeRef, other: NodeRef) -> None:
        """End ``cut``, ``stall``, ``delay`` and ``drop_after`` between two nodes."""
        self._cut.discard(frozenset((one, other)))
        for way in ((one, other), (other, one)):
            self._faults.pop(way, None)
            self._pump(way)
        self.look(one)

    def delay(self, seconds: float, sender: NodeRef, receiver: NodeRef) -> None:
        """Hold everything back that *sender* says to *receiver*; order stays."""
        self._fault((sender, receiver)).delay = seconds

    def stall(self, sender: NodeRef, receiver: NodeRef) -> None:
        """Let nothing arrive that *sender* says to *receiver*, until ``mend``; the link stays until that is noticed."""
        loop = asyncio.get_running_loop()
        self._fault((sender, receiver)).stalled = loop.time()
        line = self._line(sender, receiver)
        if line is not None:
            loop.call_later(self.silence, self._notice, line, (sender, receiver))

    def drop_after(self, messages: int, sender: NodeRef, receiver: NodeRef) -> None:
        """Break the link when *sender* says the message after so many, which does not arrive; once."""
        self._fault((sender, receiver)).drop_after = messages

    # --- For nodes ----------------------------------------------------------------------------------------------------

    def enter(self, node: MemoryPeerLinks) -> None:
        """A node listens."""
        self._nodes[node.me] = node

    def leave(self, node: MemoryPeerLinks) -> None:
        """A node has gone."""
        for line in self.lines_of(node.me):
            self._break(line, f"{node.me.node} stops", planned=True)
        self._nodes.pop(node.me, None)

    def look(self, node: NodeRef) -> None:
        """See a moment later whether there are links to be had."""
        asyncio.get_running_loop().call_soon(self._connect, node)

    def break_link(self, one: NodeRef, other: NodeRef, why: str, *, planned: bool = False) -> None:
        """Break a link, if there is one; another one follows unless there must be none."""
        line = self._line(one, other)
        if line is not None:
            self._break(line, why, planned=planned)

    def carry(
        self, sender: NodeRef, receiver: NodeRef, size: int, arrive: Callable[[_Line, MemoryPeerLinks], None]
    ) -> _Line:
        """Have a message of *size* bytes arrive, later.

        Raises:
            NoLink: there is no link.
        """
        line = self._line(sender, receiver)
        if line is None:
            raise NoLink(f"there is no link to {receiver}")
        way, loop = (sender, receiver), asyncio.get_running_loop()
        faults = self._faults.get(way, _Faults())
        if faults.drop_after is not None:
            faults.drop_after -= 1
            if faults.drop_after < 0:
                faults.drop_after = None
                loop.call_soon(self._break, line, "the network dropped it")
                line.waiting[way].append((inf, lambda: None))
                return line
        line.bytes[way] += size + OVERHEAD
        line.waiting[way].append((loop.time() + faults.delay, partial(arrive, line, self._nodes[receiver])))
        loop.call_later(faults.delay, self._pump, way)
        return line

    def under_way(self, sender: NodeRef, receiver: NodeRef) -> int:
        """Tell how many bytes are under way, or were not taken."""
        line = self._line(sender, receiver)
        return 0 if line is None else line.bytes[sender, receiver]

    def lines_of(self, node: NodeRef) -> list[_Line]:
        """List the links of a node."""
        return [*self._lines.get(node, {}).values()]

    def silence_of(self, sender: NodeRef, receiver: NodeRef) -> float | None:
        """Tell for how long *receiver* has not heard of *sender*; None if there is no link."""
        if self._line(sender, receiver) is None:
            return None
        faults = self._faults.get((sender, receiver)) if self._faults else None
        if faults is None or faults.stalled is None:
            return 0.0
        return asyncio.get_running_loop().time() - faults.stalled

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _fault(self, way: _Way) -> _Faults:
        return self._faults.setdefault(way, _Faults())

    def _line(self, one: NodeRef, other: NodeRef) -> _Line | None:
        lines = self._lines.get(one)
        return None if lines is None else lines.get(other)

    def _connect(self, ref: NodeRef) -> None:
        node = self._nodes.get(ref)
        if node is None:
            return
        for other in tuple(self._nodes.values()):
            if node is other or self._line(ref, other.me) is not None or frozenset((ref, other.me)) in self._cut:
                continue
            if any(way in self._faults and self._faults[way].stalled for way in ((ref, other.me), (other.me, ref))):
                continue
            if (node.wants(other) or other.wants(node)) and node.accepts(other) and other.accepts(node):
                line = _Line((ref, other.me))
                self._lines.setdefault(ref, {})[other.me] = self._lines.setdefault(other.me, {})[ref] = line
                node.begin(other)
                other.begin(node)

    def _break(self, line: _Line, why: str, *, planned: bool = False) -> None:
        if not line.up:
            return
        line.up = False
        a, b = line.ends
        del self._lines[a][b], self._lines[b][a]
        for end, peer in ((a, b), (b, a)):
            node = self._nodes.get(end)
            if node is not None:
                node.ended(line, peer, why, planned=planned)
                self.look(end)

    def _notice(self, line: _Line, way: _Way) -> None:
        faults = self._faults.get(way)
        if faults is not None and faults.stalled is not None:
            self._break(line, f"nothing was heard for {self.silence:g} s")

    def _pump(self, way: _Way) -> None:
        line = self._line(*way)
        if line is None:
            return
        faults = self._faults.get(way)
        now = asyncio.get_running_loop().time()
        waiting = line.waiting[way]
        while line.up and waiting and waiting[0][0] <= now and (faults is None or faults.stalled is None):
            waiting.popleft()[1]()


class MemoryPeerLinks:
    """``PeerLinks`` over a ``MemoryPeerNetwork``.

    Args:
        network: between the nodes.
        me: this node.
        started: when it started, in seconds since 1970.
        features: what it can do beyond the protocol.
        limits: what a link may cost.
    """

    def __init__(
        self,
        network: MemoryPeerNetwork,
        me: NodeRef,
        *,
        started: float,
        features: Iterable[str] = (),
        limits: LinkLimits = LinkLimits(),  # noqa: B008 - it does not change
    ) -> None:
        self.me = me
        self.protocols = PROTOCOLS
        self._started = started
        self._network = network
        self._features = frozenset(features)
        self._limits = limits
        self._cluster = ""
        self._runs = KnownRuns()
        self._events: deque[tuple[LinkEvent, _Line | None, int]] = deque()
        self._filled = asyncio.Event()
        self._asked: dict[_Answer, _Line] = {}

    # --- The port -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """See the port; nobody can connect there."""
        return f"{self.me.node}.memory:1"

    async def start(self) -> None:
        """See the port."""
        self._network.enter(self)
        self._network.look(self.me)

    def meet(self, cluster: str, peers: Mapping[NodeRef, PeerPlace]) -> None:
        """See the port."""
        before, self._cluster = self._cluster, cluster
        self._runs.meet({run: place for run, place in peers.items() if run.node != self.me.node})
        for line in self._network.lines_of(self.me):
            peer = line.peer_of(self.me)
            if cluster != before or self._runs.has_left(peer):
                self._network.break_link(self.me, peer, f"{self.me.node} hung up", planned=True)
        self._network.look(self.me)

    def state(self, node: NodeRef) -> LinkState:
        """See the port."""
        silence = self._network.silence_of(node, self.me)
        return DOWN if silence is None else LinkState(up=True, silence=silence)

    async def ask(self, to: NodeRef, kind: str, question: bytes, *, within: float) -> bytes:
        """See the port."""
        self._check(kind, question)
        under_way = sum(line.up and to in line.ends for line in self._asked.values())
        if under_way >= self._limits.questions:
            raise NoLink(f"{to.node} has {under_way} questions of this node to answer already")
        if self._network.under_way(self.me, to) + len(question) > self._limits.queue:
            raise NoLink(f"{to.node} does not read fast enough, and the queue of its link is full")
        answer: _Answer = asyncio.get_running_loop().create_future()

        def arrive(line: _Line, receiver: MemoryPeerLinks) -> None:
            receiver.put(
                Question(self.me, kind, question, within, self._replier(line, to, answer)), line, len(question)
            )

        self._asked[answer] = self._network.carry(self.me, to, len(question), arrive)
        try:
            async with asyncio.timeout(within):
                status, content = await answer
        except TimeoutError:
            raise Silent(f"{to.node} has not answered within {within:g} s") from None
        finally:
            del self._asked[answer]
        match status:
            case AnswerStatus.ANSWERED:
                return content
            case AnswerStatus.NOT_UNDERSTOOD:
                raise Declined(f"{to.node} does not know the question {kind!r}: it runs another version")
            case _:
                raise Silent(f"{to.node} could not answer {kind!r}")

    def send(self, to: NodeRef, kind: str, record: bytes) -> int:
        """See the port."""
        self._check(kind, record)
        if self._network.under_way(self.me, to) + len(record) > self._limits.queue:
            why = f"{to.node} does not read fast enough, and the queue of its link was full"
            self._network.break_link(self.me, to, why)
            raise NoLink(why)

        def arrive(line: _Line, receiver: MemoryPeerLinks) -> None:
            receiver.put(Record(self.me, sequence, kind, record), line, len(record))

        line = self._network.carry(self.me, to, len(record), arrive)
        line.sequences[self.me, to] += 1
        sequence = line.sequences[self.me, to]
        return sequence

    async def events(self) -> AsyncIterator[LinkEvent]:
        """See the port."""
        while True:
            while not self._events:
                self._filled.clear()
                await self._filled.wait()
            event, line, size = self._events.popleft()
            if line is not None:
                line.bytes[event.peer, self.me] -= size
            yield event

    async def close(self) -> None:
        """See the port."""
        self._network.leave(self)

    # --- For the network ----------------------------------------------------------------------------------------------

    def wants(self, other: MemoryPeerLinks) -> bool:
        """Tell whether this node would dial *other*, or a former run of it, which has the same address."""
        return bool(self._cluster) and any(
            # Of one run, the table and the links tell times that differ by a little.
            run == other.me or (run.node == other.me.node and (place.started, run) <= (other._started, other.me))
            for run, place in self._runs.wanted().items()
        )

    def accepts(self, other: MemoryPeerLinks) -> bool:
        """Tell whether this node would let *other* in."""
        known = bool(self._cluster) and self._cluster == other._cluster
        fits = self.me.node != other.me.node and not self._runs.is_old(other.me, other._started)
        return known and fits

    def begin(self, other: MemoryPeerLinks) -> None:
        """A link is up."""
        for line in self._network.lines_of(self.me):
            peer = line.peer_of(self.me)
            if peer != other.me and peer.node == other.me.node:
                self._network.break_link(self.me, peer, f"{other.me} is a newer run", planned=True)
        self._runs.greeted(other.me, other._started)
        self.put(Up(other.me, self._features & other._features))

    def ended(self, line: _Line, peer: NodeRef, why: str, *, planned: bool) -> None:
        """A link is gone."""
        for answer, asked in self._asked.items():
            if asked is line and not answer.done():
                answer.set_exception(Silent(f"the link to {peer.node} broke: {why}"))
        self.put(Down(peer, why, planned=planned))

    def put(self, event: LinkEvent, line: _Line | None = None, size: int = 0) -> None:
        """Something has come; its bytes count until it is taken."""
        self._events.append((event, line, size + OVERHEAD))
        self._filled.set()

    def _check(self, kind: str, body: bytes) -> None:
        if not 1 <= len(kind.encode("ascii")) <= KIND_BYTES:
            raise ValueError(f"{kind!r} is no kind of a message: a word of at most {KIND_BYTES} ASCII characters")
        if len(body) > self._limits.message:
            raise TooLarge(f"a message of {len(body)} bytes, and {self._limits.message} are the most")

    def _replier(self, line: _Line, by: NodeRef, answer: _Answer) -> Callable[[AnswerStatus, bytes], None]:
        """Make what *by* answers with."""

        def arrive(line: _Line, _asker: MemoryPeerLinks) -> None:
            line.bytes[by, self.me] -= len(content) + OVERHEAD
            if not answer.done():
                answer.set_result((status, content))

        status, content, replied = AnswerStatus.FAILED, b"", False

        def reply(given: AnswerStatus, body: bytes) -> None:
            nonlocal status, content, replied
            if replied or not line.up:
                return
            replied = True
            if len(body) <= self._limits.message:
                status, content = given, body
            self._network.carry(by, self.me, len(content), arrive)

        return reply
