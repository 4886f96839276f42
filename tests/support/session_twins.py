"""A session and what was restored from exports of it, which are given the same inputs and have to do the same.

Each twin has a clock of its own, as another node has. Times and differences of clocks are multiples of 1/64 s, so that
sums are exact and everything can be compared to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from gateway.core.session.export import export, restore
from gateway.core.session.handoff import PASSABLE, Given, GiveStatus, assume
from gateway.core.session.pending import Work
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine, StreamParameters
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import Role, State
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import (
    Attempt,
    EventId,
    GridGeneration,
    PacketId,
    RequestNumber,
    SessionId,
    TokenGeneration,
    Version,
)
from gateway.core.wire import codec
from gateway.core.wire.errors import GatewayError, RequestRefused
from gateway.core.wire.exchange_packets import Answer, Ask, Await, Handle
from gateway.core.wire.packets import (
    Ack,
    Authenticate,
    Backoff,
    Bye,
    ClientRequest,
    Malformed,
    Notice,
    Packet,
    Ping,
    Pong,
    Publish,
    Reply,
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from gateway.core.wire.value_packets import ReadValues

PLENTY: Final = 1 << 20
"""Room of a transport that does not push back, in bytes."""

KINDS: Final = (
    *("subscribe", "unsubscribe", "publish", "values", "properties", "authenticate", "malformed", "bye"),
    *("handle", "ask", "await", "answer"),
)
"""Of what a client asks for."""

MOST_TWINS: Final = 3
"""Restored sessions that go along at once: the first of them stays, as one that was restored long ago."""

RECORDED: Final = (
    *("selections", "properties", "handlers", "roles", "principal_properties", "credential", "credential_expires"),
    *("token_generation", "confirmed", "attempt", "publish_partitions", "stored_generation"),
)
"""What the grid holds of a session besides what it is made with."""

WALL: Final = 1_000_000.0
"""Time of day at the start, in seconds since 1970."""

T = TypeVar("T")


def small_parameters(*, packets: int, size: int, message_bytes: int, ack_packets: int) -> StreamParameters:
    return StreamParameters(
        resend_packets=packets,
        resend_bytes=size,
        message_bytes=message_bytes,
        ack_packets=ack_packets,
        ack_delay=0.25,
        ping_interval=10.0,
        ping_timeout=25.0,
    )


def request(  # noqa: C901 - a case for each kind
    kind: str, number: int, *, resubmitted: bool
) -> ClientRequest | Bye:
    """Make something that a client asks for."""
    numbered = RequestNumber(number)
    match kind:
        case "subscribe":
            return Subscribe(numbered, "a/**", resubmitted)
        case "unsubscribe":
            return Unsubscribe(numbered, "a/**", resubmitted, ("a/b",))
        case "publish":
            return Publish(numbered, "a/b", b'{"n":%d}' % number, resubmitted)
        case "handle":
            return Handle(numbered, "a/**", number, resubmitted)
        case "ask":
            return Ask(numbered, "a/b", b'{"n":%d}' % number, 2.5, None, "s" if number % 2 else None, resubmitted)
        case "await":
            return Await(numbered, ((RequestNumber(1), "a/b"),), resubmitted)
        case "answer":
            failed = "no" if number % 2 else None
            return Answer(numbered, "1-2-3-s", b"1" if failed is None else None, failed, resubmitted)
        case "values":
            return ReadValues(numbered, "a/**", "a/b" if number % 2 else None, number, resubmitted)
        case "properties":
            return SetProperties(numbered, {"colour": "blue", "size": None}, resubmitted)
        case "authenticate":
            return Authenticate(numbered, "a secret", "alice", resubmitted)
        case "malformed":
            return Malformed(numbered, "it has no selector")
        case _:
            return Bye("enough")


class Twins:
    """A session, and its restored twins.

    Attributes:
        sessions: with how far the clock of each is ahead; the first one was never restored.
        now: by the clock of the first, in seconds.
        seen: what was there when the session was exported, and how often.
        exported: the newest export.
    """

    def __init__(self, parameters: StreamParameters, *, tells: bool = True) -> None:
        self.now = 100.0
        machine = SessionMachine(Role.SERVER, parameters)
        machine.open(self.now, generation=TokenGeneration(1) if tells else None)
        first = ServerSession(
            SessionId("s"), principal="alice", window=60.0, machine=machine, declared=GridGeneration(1)
        )
        self.sessions: list[tuple[ServerSession, float]] = [(first, 0.0)]
        self.seen: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.exported = b""

    @property
    def first(self) -> ServerSession:
        return self.sessions[0][0]

    # --- Comparing ----------------------------------------------------------------------------------------------------

    def all_do(self, act: Callable[[ServerSession, float], T]) -> T | str:
        """Have all do the same, each at its own time, and compare what comes out, errors as well."""
        outcomes = [self._outcome(act, session, self.now + ahead) for session, ahead in self.sessions]
        for outcome in outcomes[1:]:
            assert outcome == outcomes[0]
        self.compare()
        return outcomes[0]

    def _outcome(self, act: Callable[[ServerSession, float], T], session: ServerSession, now: float) -> T | str:
        try:
            return act(session, now)
        except GatewayError as error:
            self.seen[type(error).__name__] += 1
            return repr(error)

    def compare(self) -> None:
        """Compare the exports of all, and whatever can be asked of them."""
        exports = [export(session, self.now + ahead) for session, ahead in self.sessions]
        views = [view(session, self.now + ahead) for session, ahead in self.sessions]
        for index in range(1, len(self.sessions)):
            assert views[index] == views[0]
            assert exports[index] == exports[0]
        self.exported = exports[0]

    def hand_over(self, ahead: float) -> None:
        """Export the session, and have what is restored from it go along."""
        exported = export(self.first, self.now)
        twin = restore(exported, self.now + ahead)
        assert export(twin, self.now + ahead) == exported
        self._note()
        self._go_along(twin, ahead)

    def take(self, ahead: float) -> None:
        """Have another node take the session, with a record of it from the grid, and what it makes of both go along."""
        self.all_do(self._stop)
        first = self.first
        if first.machine.state not in PASSABLE:
            return
        given = Given.decode(Given(GiveStatus.GIVEN, export(first, self.now)).encode())
        machine = SessionMachine(Role.SERVER, first.machine.parameters)
        twin = ServerSession(
            first.id,
            principal=first.principal,
            window=first.window,
            machine=machine,
            declared=GridGeneration(1),
        )
        for name in RECORDED:
            setattr(twin, name, getattr(first, name))
        assume(twin, restore(given.session, self.now + ahead))
        self._stop(twin, self.now + ahead)
        self.seen["taken"] += 1
        self._go_along(twin, ahead)

    def _stop(self, session: ServerSession, _now: float) -> None:
        """The client has gone, and what follows is for a new connection, here or elsewhere."""
        session.machine.detach()
        session.pending.restart()
        session.token_confirmed = False
        session.credential_notice = 0.0  # it means nothing if they do not end
        session.watch_credentials(self._wall, notice=60.0)

    def _go_along(self, twin: ServerSession, ahead: float) -> None:
        self.sessions.append((twin, ahead))
        if len(self.sessions) > 1 + MOST_TWINS:
            del self.sessions[2]
        self.compare()

    def _note(self) -> None:
        session = self.first
        self.seen["exported"] += 1
        self.seen[session.machine.state.value] += 1
        for what, is_so in {
            "folded": session.machine.is_folded,
            "marked": any(run.folded for run in session.machine.kept()),
            "waiting": session.machine.waiting > 0,
            "kept": session.machine.unacknowledged > 0,
            "half a run": session.machine.unacknowledged != sum(run.count for run in session.machine._buffer.runs()),
            "to be resent": session.machine._sent < session.machine.last_numbered,
            "pending": len(session.pending) > session.pending.started,
            "started": session.pending.started > 0,
            "unseen": bool(session.answers.unseen),
            "refusing": session.refusing,
            "declaring": session.declaring is not None,
            "credentials told": session.credential_told,
            "from a copy": session.from_copy,
            "acknowledgement due": session.machine._ack_due is not None,
            "pinged": session.machine._ping_pending,
        }.items():
            self.seen[what] += is_so

    # --- The application ----------------------------------------------------------------------------------------------

    def submit(self, topics: Sequence[str | None], *, snapshot: bool = False, room: int | None = None) -> None:
        """Hand in a run, which all share; with *room*, in one step with writing it if that is simple."""
        run = Run(tuple([self._body(topic, snapshot=snapshot) for topic in topics]))

        def act(session: ServerSession, _now: float) -> bytes | None:
            if room is not None and (message := session.machine.send_now(SharedFrame(run), room)) is not None:
                return message
            session.machine.submit_run(run)
            return None

        self.all_do(act)

    def _body(self, topic: str | None, *, snapshot: bool) -> Outgoing:
        if topic is None:
            return Outgoing(None, codec.encode_notice(Notice("administrator", "hello")))
        self.versions[topic] += 1
        version = self.versions[topic]
        event = EventId(f"0-1-{version}")
        return Outgoing(topic, codec.encode_update(topic, Version(version), event, b"%d" % version, snapshot=snapshot))

    def flush(self, room: int) -> None:
        self.all_do(lambda session, _: session.machine.flush(room))

    def conflate(self) -> None:
        self.all_do(lambda session, _: session.machine.conflate())

    def withhold(self, topic: str) -> None:
        self.all_do(lambda session, _: session.machine.withhold(lambda each: each == topic))

    def send_link(self) -> None:
        advice = Backoff(initial=1.0, maximum=2.0, stable_after=3.0)
        self.all_do(lambda session, _: session.machine.ping("token", advice))

    def forget_kept(self) -> None:
        self.all_do(lambda session, _: session.machine.forget_kept())

    def adopt(self, parameters: StreamParameters) -> None:
        self.all_do(lambda session, _: session.machine.adopt(parameters))

    def declare_loss(self) -> None:
        def act(session: ServerSession, _now: float) -> None:
            session.machine.submit(Outgoing(None, codec.encode_notice(Notice("grid_lost_writes", "some"))))
            session.loss_declared(GridGeneration(session.declared + 1))

        self.all_do(act)

    def select(self, selector: str, *, selects: bool) -> None:
        def act(session: ServerSession, _now: float) -> None:
            change = session.selections.select if selects else session.selections.deselect
            session.selections = change(parse_selector(selector))

        self.all_do(act)

    def come_from_copy(self) -> None:
        """Go on as a session whose node has died, and whose backup had a copy."""

        def act(session: ServerSession, _now: float) -> None:
            session.from_copy = True

        self.all_do(act)

    def describe(self, name: str, partition: int) -> None:
        """Change what is said of the session, and where its receipts are."""

        def act(session: ServerSession, _now: float) -> None:
            session.properties = {name: "x", **session.properties}
            session.handlers = {f"{name}/**": len(name), **session.handlers}
            session.supports ^= {name}
            session.publish_partitions |= {partition}
            session.stored_generation = GridGeneration(partition)

        self.all_do(act)

    # --- Requests -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        def act(session: ServerSession, _now: float) -> object:
            return session.pending.start() if session.pending and not session.pending.started else None

        self.all_do(act)

    def finish(self, how: str) -> None:
        """Answer what is started: done, refused for good or for now, or dropped with all others."""

        def act(session: ServerSession, _now: float) -> None:
            run = list(session.pending)[: session.pending.started]
            numbers = [work.request for work in run if not isinstance(work, Bye)]
            match how:
                case "done" if numbers:
                    bodies = [codec.encode_reply(Reply(request=number)) for number in numbers]
                    session.reply_run(bodies, min(numbers), max(numbers))
                case "refused":
                    for number in numbers:
                        session.decline(number, RequestRefused("no"))
                case "for now":
                    for number in numbers:
                        session.decline_for_now(number, "the grid is unreachable")
                case "dropped":
                    session.pending.clear()
                case "again":
                    session.pending.restart()
            session.pending.finish()

        self.all_do(act)

    # --- The network --------------------------------------------------------------------------------------------------

    def ask(self, kinds: Sequence[str], *, jump: int, resubmitted: bool, acknowledges: bool, grid: bool) -> None:
        """Receive requests; the first of them is *jump* packets, and its request as many numbers, beyond the next."""
        machine = self.first.machine
        packets: list[Packet] = []
        for place, kind in enumerate(kinds):
            work = request(kind, max(1, self.first.newest + 1 + place + jump), resubmitted=resubmitted)
            if isinstance(work, Bye):
                packets.append(work)
            else:
                received = machine._sent if acknowledges else None
                packets.append(SessionPacket(PacketId(max(1, machine.received + 1 + place + jump)), received, work))

        def act(session: ServerSession, now: float) -> list[tuple[str, bool | None]]:
            return [
                (repr(each), self._take_in(session, each, grid=grid)) for each in session.machine.receive(packets, now)
            ]

        self.all_do(act)

    def _take_in(self, session: ServerSession, item: object, *, grid: bool) -> bool | None:
        if not isinstance(item, Work):
            return None
        admitted = session.admit(item, grid_available=grid)
        if admitted:
            session.pending.put(item)
        return admitted

    def acknowledge(self, back: int, *, alone: bool) -> None:
        """Receive an acknowledgement of all but the last *back* packets; below 0, of more than were sent."""
        packet = PacketId(max(0, self.first.machine._sent - back))

        def act(session: ServerSession, now: float) -> object:
            if alone:
                return session.machine.receive_ack(packet, now)
            return [repr(each) for each in session.machine.receive([Ack(packet)], now)]

        self.all_do(act)

    def hear(self, packet: Ping | Pong) -> None:
        self.all_do(lambda session, now: [repr(each) for each in session.machine.receive([packet], now)])

    def detach(self) -> None:
        self.all_do(lambda session, _: session.machine.detach())

    def give_up(self) -> None:
        self.all_do(lambda session, _: session.machine.give_up())

    def resume(self, back: int, *, oldest: int, generation: int | None, again: bool) -> None:
        """Have the client come back, which has not received the last *back* packets, and serve it on the best rung."""
        received = PacketId(max(0, self.first.machine.last_numbered - back))
        presented = None if generation is None else TokenGeneration(generation)
        held = PacketId(self.first.machine.received + oldest)

        def act(session: ServerSession, now: float) -> object:
            machine = session.machine
            machine.resume()
            if again:  # the connection is lost before there is an answer
                machine.detach()
                return None
            session.token_confirmed = False
            lost = machine.lost(received, generation=presented)
            if machine.can_reattach(received=received, oldest=held, generation=presented):
                return lost, machine.reattach(received=received, now=now)
            session.number_token(TokenGeneration(generation or 1), Attempt(session.attempt + 1))
            machine.restart(now, generation=None if presented is None else session.token_generation)
            session.begin_anew()
            return lost

        self.all_do(act)

    def prove(self) -> None:
        def act(session: ServerSession, _now: float) -> None:
            session.token_confirmed = True
            session.confirmed = session.token_generation

        self.all_do(act)

    def close(self) -> None:
        self.all_do(lambda session, _: session.machine.close())

    # --- Time ---------------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.all_do(lambda session, now: session.machine.tick(now))

    def show_credentials(self, seconds: float | None, notice: float) -> None:
        """Take on credentials that end in so many seconds, or never."""

        def act(session: ServerSession, _now: float) -> float:
            session.roles ^= {"trader"}
            session.principal_properties = {"desk": str(seconds)}
            session.credential = None if seconds is None else f"c{seconds}"
            session.credential_expires = None if seconds is None else self._wall + seconds
            return session.watch_credentials(self._wall, notice=notice)

        self.all_do(act)

    def look_at_credentials(self) -> None:
        self.all_do(lambda session, _: session.look_at_credentials(self._wall))

    @property
    def _wall(self) -> float:
        return WALL + self.now


def lived() -> Twins:
    """Make a session in which something of everything is."""
    twins = Twins(small_parameters(packets=8, size=4096, message_bytes=600, ack_packets=4))
    twins.show_credentials(100.0, 60.0)
    twins.select("a/**", selects=True)
    twins.describe("colour", 7)
    twins.come_from_copy()
    kinds = ("subscribe", "publish", "publish", "properties", "ask", "authenticate", "bye")
    twins.ask(kinds, jump=0, resubmitted=False, acknowledges=False, grid=True)
    twins.start()
    twins.finish("for now")
    twins.start()
    twins.submit(("a", "b", None))
    twins.flush(PLENTY)
    twins.acknowledge(2, alone=True)
    twins.pass_time(60.0)
    twins.look_at_credentials()
    twins.declare_loss()
    twins.ask(("malformed",), jump=0, resubmitted=False, acknowledges=False, grid=True)
    twins.submit(("a", "b"), snapshot=True)
    twins.flush(0)
    twins.submit(("a",))
    twins.hear(Ping())
    twins.send_link()
    return twins


def view(session: ServerSession, now: float) -> dict[str, Any]:
    """Ask a session everything that its node may ask."""
    machine = session.machine
    deadline = machine.next_deadline()
    seen: dict[str, Any] = {
        "deadline": None if deadline is None else deadline - now,
        "settled": session.settled(),
        "refusing": session.refusing,
        "known generation": session.known_generation,
        "pending": list(session.pending),
        "pending bytes": session.pending.bytes,
        "started": session.pending.started,
        "lost": [machine.lost(PacketId(each), generation=None) for each in (0, machine.last_numbered)],
        "exceeds": [machine.exceeds(packets=each, size=each * 50) for each in range(5)],
        "next of outbox": [run.packets for run in machine._outbox.runs()],
        "buffered": list(machine._buffer),
        "room": machine._buffer.room if machine.state is not State.CLOSED else None,
        "full": machine._buffer.full if machine.state is not State.CLOSED else None,
    }
    for name in (
        *(
            "oldest",
            "last_numbered",
            "unacknowledged",
            "resend_bytes",
            "waiting",
            "waiting_bytes",
            "conflated",
            "parameters",
        ),
        *("is_settled", "has_output", "is_folded", "state", "received", "discarded", "duplicates", "role"),
    ):
        seen[name] = getattr(machine, name)
    for name in slots_of(session):
        if name not in {"machine", "pending", "answers"}:
            seen[name] = getattr(session, name)
    for name in ("unseen", "settled", "refused"):
        seen[f"answers.{name}"] = getattr(session.answers, name)
    return seen


def slots_of(session: object) -> Iterable[str]:
    return [name for kind in type(session).__mro__ for name in getattr(kind, "__slots__", ())]
