"""The node's end of a link pair, which may go on from where another node has stopped (see ``link_pair``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.core.session.export import export, restore
from gateway.core.session.handoff import Given, GiveStatus, assume, is_outdated
from gateway.core.session.pending import PendingRequests
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import Role, State
from gateway.core.types import EventId, GridGeneration, SessionId, TokenGeneration, Version
from gateway.core.wire import codec
from gateway.core.wire.codes import FailoverReason, Outcome
from gateway.core.wire.packets import Notice, Packet, Ping, Publish, Reply, Resume
from gateway.ports import StreamPosition
from tests.support.link_ends import PLENTY, Connection, End, Ledger

if TYPE_CHECKING:
    from tests.support.link_pair import LinkPair


class ServerEnd(End):
    """A node and its application, for one session.

    Args:
        pair: it belongs to.
        machine: of the session.
        former: the node whose numbering it goes on with, as that one was when it stopped; None to begin anew.

    Attributes:
        life: number of the numbering; a new one for every restart and every new node.
        submitted: session packets handed to the machine in this life.
        notices: notices handed in, in this life.
        pending: requests of the client without a reply.
        stopped: the session as it was when the node stopped serving it; None while it does.
    """

    def __init__(self, pair: LinkPair, machine: SessionMachine, *, former: ServerEnd | None = None) -> None:
        super().__init__(pair, machine)
        self.life = 0
        self.submitted = 0
        self._conflated = 0
        self.notices: list[str] = []
        self.pending = PendingRequests()
        self.stopped: ServerSession | None = None
        self._handed_out = TokenGeneration(1)
        self._cut = 0
        """Of what was published, the session has been handed so much by who served it before."""
        self._is_successor = former is not None
        if former is None:
            self.new_life()
        else:
            self._go_on_as(former)

    def new_life(self) -> None:
        """Numbering has begun anew."""
        self.life = len(self.pair.ledgers)
        self.sent = Ledger()
        self.pair.ledgers.append(self.sent)
        self.taken_in = self.submitted = self._conflated = 0
        self.notices.clear()

    def _go_on_as(self, former: ServerEnd) -> None:
        self.life = former.life
        self.sent = self.pair.ledgers[self.life] = former.sent.copy()
        self.taken_in, self.submitted, self._conflated = former.taken_in, former.submitted, former._conflated
        self.notices = list(former.notices)
        self._handed_out = former._handed_out

    @property
    def is_serving(self) -> bool:
        """Whether there is a session here, and not only what was kept of it."""
        return self.machine.state is not State.FRESH and self.stopped is None

    # --- Handoff ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Serve the session no more, and keep it as it is for the next node."""
        self.give_up()
        self.stopped = _session(self.machine)
        self.stopped.pending, self.stopped.token_generation = self.pending, self._handed_out
        self._cut = len(self.pair.log)
        self.sent = self.sent.copy()  # the next node writes into the one that was
        self.pair.seen["handed over with requests"] += len(self.pending) > 0
        self.pair.seen["handed over with begun requests"] += self.pending.started > 0

    def succeed(self, presented: TokenGeneration) -> ServerEnd | None:
        """Have another node go on with what this one kept when it stopped, for a client that has shown a token.

        Returns:
            That node; None if the client has been served elsewhere since.
        """
        assert self.stopped is not None
        now = self.pair.now
        cut = StreamPosition(GridGeneration(1), self._cut).event(0)
        given = Given.decode(Given(GiveStatus.GIVEN, export(self.stopped, now), {0: cut}).encode())
        restored = restore(given.session, now)
        if is_outdated(restored, presented):
            self.pair.seen["outdated"] += 1
            return None
        session = _session(SessionMachine(Role.SERVER, self.machine.parameters))
        assume(session, restored)
        assert session.machine.export(now) == self.machine.export(now)
        assert not session.pending.started
        other = ServerEnd(self.pair, session.machine, former=self)
        other.pending = session.pending
        other._cut = StreamPosition.of(given.cuts[0]).sequence
        return other

    # --- Requests -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Have the grid execute what is next; its answer comes later."""
        if self.is_serving and self.pending and not self.pending.started:
            for each in self.pending.start()[0]:
                assert isinstance(each, Publish)
                self.pair.execute(each.request)

    def answer(self) -> None:
        """Reply to what was begun."""
        if not self.is_serving:
            return
        begun = list(self.pending)[: self.pending.started]
        self.pending.finish()
        for each in begun:
            assert isinstance(each, Publish)
            self.submit(None, codec.encode_reply(Reply(request=each.request)))

    def work(self) -> None:
        """Reply to all requests."""
        while self.is_serving and self.pending:
            self.begin()
            self.answer()

    # --- The application ----------------------------------------------------------------------------------------------

    def submit(self, topic: str | None, body: bytes) -> None:
        """Hand in a body; without a connection in a new life there is nobody to number it for."""
        self._submit_run(Run.of(Outgoing(topic, body)))

    def _submit_run(self, run: Run, *, room: int = 0) -> None:
        """Hand in bodies, and have them written in the same step if there is room and the machine finds it simple."""
        if not self.is_serving:
            return
        self.submitted += run.count
        before = self.machine.state
        now = self.pair.now
        twin = SessionMachine.restore(self.machine.export(now), now)
        message = self.machine.send_now(SharedFrame(run), room)
        if message is None:
            assert self.machine.export(now) == twin.export(now), "it did something, and said that it did nothing"
        else:
            self.pair.seen["sent at once"] += 1
            twin.submit_run(run)
            assert twin.flush(room) == [message], "one step wrote something else than two"
            assert twin.export(now) == self.machine.export(now)
            self._write([message])
            return
        self.machine.submit_run(run)
        if self.machine.state is State.GAP and before is not State.GAP:
            self.pair.seen["gap"] += 1
        assert before is not State.GAP or self.machine.discarded > 0

    def update(self, topic: str) -> None:
        """Change a topic."""
        self.update_all([topic], room=0)

    def update_all(self, topics: Sequence[str], *, room: int) -> None:
        """Change topics, some perhaps more than once, and send that as one run."""
        bodies = []
        for topic in topics:
            self.pair.versions[topic] = version = self.pair.versions.get(topic, 0) + 1
            self.pair.log.append((topic, version))
            bodies.append(self._value(topic, version, snapshot=False))
        self._submit_run(Run(tuple(bodies)), room=room)

    def notify(self) -> None:
        """Say something that must arrive, or be declared lost."""
        self.pair.notices += 1
        message = str(self.pair.notices)
        if self.is_serving:
            self.notices.append(message)
        self.submit(None, codec.encode_notice(Notice("values_reread", message)))

    def _value(self, topic: str, version: int, *, snapshot: bool) -> Outgoing:
        event = EventId(f"0-1-{version}")
        return Outgoing(topic, codec.encode_update(topic, Version(version), event, b"%d" % version, snapshot=snapshot))

    def renew_token(self) -> None:
        """Hand out a newer token by a ping."""
        if self.machine.state is State.ATTACHED:
            self._hand_out()
            self.machine.ping(str(self.pair.generation))

    def _hand_out(self) -> TokenGeneration:
        self.pair.generation += 1
        self._handed_out = TokenGeneration(self.pair.generation)
        return self._handed_out

    def deliver(self, packets: list[Packet]) -> None:
        """Take a message in that came over the connection of the moment."""
        self.receive(packets)

    def resumed(self, connection: Connection, resume: Resume) -> None:
        """Serve a resume on the best rung (protocol 5.4)."""
        pair, machine = self.pair, self.machine
        if resume.attempt <= pair.attempt_served:
            pair.seen["stale attempt"] += 1
            return
        pair.attempt_served = resume.attempt
        if self.connection is not None:
            self.give_up()
        self.connection = connection
        generation = self._hand_out()
        handed_out = generation if pair.tells_generations else None
        reason: FailoverReason | None = None
        resent, lost = 0, None
        if machine.state is State.FRESH:
            machine.open(pair.now, generation=handed_out)
            outcome, reason = Outcome.FAILED_OVER, FailoverReason.OTHER_NODE
        elif self._can_reattach(connection, resume):
            resent = machine.reattach(received=resume.received, now=pair.now)
            self.sent.acknowledged = max(self.sent.acknowledged, resume.received)
            outcome = Outcome.HANDED_OVER if self._is_successor else Outcome.REATTACHED
        else:
            lost = self._lost(connection, resume)
            machine.restart(pair.now, generation=handed_out)
            outcome, reason = Outcome.FAILED_OVER, FailoverReason.GAP
            self.new_life()
            self.pending = PendingRequests()
        pair.seen[outcome.value] += 1
        machine.send_link(pair.welcome(outcome, reason, self, resent, lost))
        self._catch_up(outcome)
        self.flush(PLENTY)
        if not pair.is_slow:
            self.work()

    def _presented(self, resume: Resume) -> TokenGeneration | None:
        return TokenGeneration(int(resume.token)) if self.pair.tells_generations else None

    def _can_reattach(self, connection: Connection, resume: Resume) -> bool:
        machine = self.machine
        machine.resume()
        self._conflated += machine.conflated
        same_life = connection.life == self.life
        if not same_life:
            self.pair.seen["client in an earlier numbering"] += 1
        can = machine.can_reattach(received=resume.received, oldest=resume.oldest, generation=self._presented(resume))
        assert same_life or not can, "reattached a client whose packet ids belong to another numbering"
        return can

    def _lost(self, connection: Connection, resume: Resume) -> int | None:
        same_life = connection.life == self.life
        lost = self.machine.lost(resume.received, generation=self._presented(resume))
        if same_life and self.pair.tells_generations:
            assert lost == self.submitted - resume.received - self._conflated
            assert lost or self.machine.state is State.RESUMING
        elif not same_life:
            assert lost is None, "a number was declared that nobody can know"
        return lost

    def _catch_up(self, outcome: Outcome) -> None:
        """Send what follows the welcome: all values, or what was published while no node served the session."""
        pair = self.pair
        if outcome is Outcome.FAILED_OVER:
            for topic, version in pair.versions.items():
                self._submit_run(Run.of(self._value(topic, version, snapshot=True)))
        elif outcome is Outcome.HANDED_OVER:
            missed = pair.log[self._cut :]
            pair.seen["missed meanwhile"] += bool(missed)
            for topic, version in missed:
                self._submit_run(Run.of(self._value(topic, version, snapshot=False)))
        self._is_successor = False

    def take_in(self, item: object) -> None:
        if isinstance(item, Ping):
            return
        self.taken_in += 1
        assert isinstance(item, Publish)
        self.pending.put(item)
        if not self.pair.is_slow:
            self.work()


def _session(machine: SessionMachine) -> ServerSession:
    return ServerSession(SessionId("s"), principal="p", window=60.0, machine=machine, declared=GridGeneration(1))
