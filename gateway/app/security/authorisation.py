"""The policy in force: what sessions ask for, what they hold, and what of it a changed policy takes away.

Every right is judged by the policy of this moment, in three places: when a client asks for something (``Requests``),
when it resumes, on whichever rung (``SessionClaimer``), and for all sessions of the node when the policy is read again.

**What is withdrawn is gone at once.** ``enforce`` takes it out of the index and out of what waits for the session,
without waiting for anything; whoever is just preparing another list for the session notices and begins anew. Then the
grid is told. Should the node die before that, the next one judges the list it finds by the policy, too. So it is right
to enforce first and write then: promises need the grid (P4), taking away does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.app.context import Context
from gateway.app.journal.session_events import SelectionsWithdrawn
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.session.consumer import Consumer
from gateway.app.session.session import Session
from gateway.app.session.subject import Subject
from gateway.catalogue import metrics as catalogue
from gateway.catalogue import policy_log_events as events
from gateway.core.destinations.reserved import TEMPORARY
from gateway.core.policy.permissions import OPEN, Narrowed, Permissions, Policy
from gateway.core.policy.system_roles import is_of_system, permissions_of_system
from gateway.core.topics.selections import Selections
from gateway.core.topics.selector_sets import Common
from gateway.core.topics.selectors import Selector
from gateway.core.topics.topics import is_reserved, shown
from gateway.core.topics.work import Work
from gateway.core.types import TopicPath
from gateway.core.wire.codes import ErrorCode, MirrorMode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Notice, NoticeCode
from gateway.ports import Directory

REVIEW_SLICE: Final = 0.002
"""Seconds for which sessions are judged anew before others get their turn: some dozens of sessions, and less than a
client notices."""

NAMED: Final = 5
"""Selectors that a message names; a policy may allow very many, and one sentence is read by a person."""


class Authorisation:
    """Judges what the sessions of a node may do.

    Args:
        context: of the node.
        store: writes what is left of selections.
        sessions: the sessions held here.
        policy: who may do what; None for everything but the system's topics.
        directory: knows the roles that principals have at this moment; None if their sessions' records must do.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        policy: Policy | None,
        directory: Directory | None = None,
    ) -> None:
        self._directory = directory
        self._announced = context.parameters.limits
        self._clock = context.clock
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._announce = context.announce
        self._store = store
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._policy = policy or OPEN
        self._metrics.watch(catalogue.PERMISSION_ANSWER_BYTES, lambda: self._policy.remembered_bytes)
        self._reviewing = False
        self._review_again = False
        self._replaced = False
        self._when_changed: list[Callable[[Session], None]] = []

    @property
    def policy(self) -> Policy:
        """The policy of this moment."""
        return self._policy

    def tell_of_change(self, when_changed: Callable[[Session], None]) -> None:
        """Have *when_changed* called with each session that may do something else than before.

        It takes from the session at once what else it may not have any more. Its selections are seen to here.
        """
        self._when_changed.append(when_changed)

    # --- What is asked for --------------------------------------------------------------------------------------------

    def mirror_mode(self, session: Session) -> MirrorMode:
        """Tell what the roles of a session ask its output to wait for."""
        known = None if self._directory is None else self._directory.find(session.principal)
        principal, given = (session.principal, session.roles) if known is None else (known.principal, known.roles)
        return self._policy.mirror_mode(self._policy.roles_of(principal, given))

    @property
    def asks_for_mirrors(self) -> bool:
        """Whether some role asks for that."""
        return self._policy.mirror_mode(self._policy.roles) is not MirrorMode.ASYNC

    def permissions_of(self, session: Session) -> Permissions:
        """Tell what a session may do; that of a console is no matter of a policy."""
        if is_of_system(session.roles):
            return permissions_of_system(session.roles)
        return self.permissions_for(session.principal, session.roles, session.principal_properties)

    def permissions_for(self, principal: str, roles: frozenset[str], properties: Mapping[str, str]) -> Permissions:
        """Tell what a principal may do; what a directory knows of it counts, if there is one.

        Args:
            principal: who.
            roles: that its credentials give.
            properties: that they vouch for.
        """
        known = None if self._directory is None else self._directory.find(principal)
        if known is not None:
            return self._policy.permissions_of(known.principal, known.roles, known.properties)
        return self._policy.permissions_of(principal, roles, properties)

    def check_select(self, subject: Subject, selector: Selector, work: Work) -> None:
        """Let pass what a session, or who calls without one, may select.

        Args:
            subject: whose permissions count.
            selector: which topics.
            work: what the judgement may cost (P20).

        Raises:
            RequestRefused: it may not select all of it, and the message names the part that it may (protocol 6.5.2); or
                it takes too much work to tell.
        """
        permissions = subject.permissions
        if permissions.may_select(selector, work):
            return
        self._metrics.add(catalogue.FORBIDDEN, label="select")
        if work.is_spent:
            raise _forbidden(
                f"the selector {shown(selector.text)} is too complicated to be judged against the policy; use a "
                "simpler one, with fewer '*' and '**', or several"
            )
        raise _forbidden(f"you may not select {_part(selector, permissions.allowed(selector, work, most=NAMED))}")

    def allowed(self, session: Session, selections: Selections, work: Work) -> Selections:
        """Return what of a list the session may select, as far as that can be told with the work."""
        return self._narrow(session.permissions, selections, work).selections

    def _narrow(self, permissions: Permissions, selections: Selections, work: Work | None = None) -> Narrowed:
        limits = self._announced
        return permissions.narrow(selections, most=limits.selections, most_bytes=limits.selection_bytes, work=work)

    def check_publish(self, subject: Subject, topic: TopicPath) -> None:
        """Let pass a publish; not to be asked if the permissions say that they allow all of them.

        Raises:
            RequestRefused: the subject may not publish to the topic.
        """
        if not subject.permissions.may_publish(topic):
            self._metrics.add(catalogue.FORBIDDEN, label="publish")
            raise _forbidden(f"you may not publish to {shown(topic)}")

    def check_read(self, subject: Subject, topic: TopicPath) -> None:
        """Let pass the reading of one topic's value.

        Raises:
            RequestRefused: the subject may not select the topic.
        """
        if not subject.permissions.may_receive(topic):
            self._metrics.add(catalogue.FORBIDDEN, label="select")
            raise _forbidden(f"you may not select {shown(topic)}")

    def check_send(self, subject: Subject, queue: TopicPath) -> None:
        """Let pass a message for a queue.

        Raises:
            RequestRefused: the subject may not send to the queue.
        """
        permissions = subject.permissions
        # Nobody's rules name a temporary queue. Its path is no secret, so who may send to any queue may send to it.
        if not (permissions.send if queue.startswith(TEMPORARY) else permissions.may_send(queue)):
            self._metrics.add(catalogue.FORBIDDEN, label="send")
            raise _forbidden(f"you may not send to {shown(queue)}")

    def check_consume(self, session: Session, queue: TopicPath) -> None:
        """Let pass a consumer.

        Raises:
            RequestRefused: the session may not consume from the queue.
        """
        if not session.permissions.may_consume(queue):
            self._metrics.add(catalogue.FORBIDDEN, label="consume")
            raise _forbidden(f"you may not consume from {shown(queue)}")

    @staticmethod
    def may_go_on(session: Session, consumer: Consumer) -> bool:
        """Tell whether a consumer of a session is allowed by what the session may do now."""
        if consumer.selector is not None:
            return session.permissions.may_select(consumer.selector)
        # A temporary queue is the session's own.
        return is_reserved(consumer.queue) or session.permissions.may_consume(consumer.queue)

    def check_request(self, session: Session, path: TopicPath, *, addressed: bool) -> None:
        """Let pass a question.

        Raises:
            RequestRefused: the session may not ask it, or not one principal or session alone.
        """
        if not session.permissions.may_request(path):
            self._metrics.add(catalogue.FORBIDDEN, label="request")
            raise _forbidden(f"you may not ask {shown(path)}")
        if addressed and not session.permissions.may_address(path):
            self._metrics.add(catalogue.FORBIDDEN, label="address")
            raise _forbidden(f"you may not choose who is asked {shown(path)}")

    def check_handle(self, session: Session, selector: Selector, work: Work) -> None:
        """Let pass a handler of questions.

        Raises:
            RequestRefused: the session may not handle all of them.
        """
        if not session.permissions.may_handle(selector, work):
            self._metrics.add(catalogue.FORBIDDEN, label="handle")
            raise _forbidden(f"you may not handle all questions of {shown(selector.text)}")

    def check_declare(self, session: Session) -> None:
        """Let pass the declaration of a temporary queue.

        Raises:
            RequestRefused: the session may declare none.
        """
        if not session.permissions.declare:
            self._metrics.add(catalogue.FORBIDDEN, label="declare")
            raise _forbidden("you may not declare temporary queues")

    def check_properties(self, permissions: Permissions, names: Iterable[str]) -> None:
        """Let pass properties that a client sets, changes or removes.

        Raises:
            RequestRefused: the session may not set one of them.
        """
        for name in names:
            if not permissions.may_set(name):
                self._metrics.add(catalogue.FORBIDDEN, label="properties")
                allowed = ", ".join(map(shown, sorted(permissions.properties)[:NAMED]))
                rest = f"; you may set {allowed}" if allowed else "; you may set none"
                raise _forbidden(f"you may not set the property {shown(name)}{rest}")

    # --- What is held -------------------------------------------------------------------------------------------------

    def enforce(self, session: Session) -> tuple[str, ...]:
        """Judge a session by the policy of this moment, and take from it what it may not have any more.

        Done without waiting: when it returns, no update of a topic that is not allowed is on its way to the session,
        except for bytes that the transport has taken already.

        Returns:
            The selectors that were withdrawn; to be declared by ``declare`` when the session can be told.
        """
        permissions = self.permissions_of(session)
        has_changed = permissions is not session.permissions
        if has_changed:
            session.permissions = permissions
            self.withhold(session)
        in_force = self._delivery.in_force(session)
        selections, withdrawn = self._narrow(permissions, session.selections)
        if withdrawn:
            self._delivery.withdraw(session, selections)
        elif in_force is not selections and self._narrow(permissions, in_force).withdrawn:
            # Another node has had the session since, and what was in force here is not what it has selected now.
            self._delivery.mute(session)
        if has_changed:
            for tell in self._when_changed:
                tell(session)
        return tuple(each.text for each in withdrawn)

    def withhold(self, session: Session) -> None:
        """Send a session nothing of topics that it may not select, not even what was due before (protocol 6.5)."""
        permissions, machine = session.permissions, session.machine
        if machine.waiting or machine.unacknowledged:
            machine.withhold(lambda topic: not permissions.may_receive(TopicPath(topic)))

    def declare(self, session: Session, withdrawn: tuple[str, ...]) -> None:
        """Tell the client, the grid and the journal what ``enforce`` has withdrawn, if anything."""
        if not withdrawn:
            return
        named = _named(withdrawn)
        self._delivery.notify(
            (session,),
            Notice(
                NoticeCode.PERMISSIONS_WITHDRAWN,
                f"you may not select all of {named} any more; what is left is in 'selections'",
                withdrawn=withdrawn,
                selections=session.selections.to_wire(),
            ),
        )
        self._announce(SelectionsWithdrawn(session, withdrawn))
        self.record(session)

    def declare_consumers(self, session: Session, queues: Sequence[TopicPath]) -> None:
        """Tell the client and the log from which queues a session may not consume any more."""
        self._delivery.notify(
            (session,),
            Notice(
                NoticeCode.PERMISSIONS_WITHDRAWN,
                f"you may not consume from {_named(queues)} any more",
                withdrawn=(),
                selections=session.selections.to_wire(),
                queues=tuple(queues),
            ),
        )
        self._log.emit(events.CONSUMERS_WITHDRAWN, session=session.id, principal=session.principal, queues=list(queues))

    def record(self, session: Session) -> None:
        """Have the grid hold the session's selections as they are here, soon."""
        self._background.once(self._record(session), f"withdraw-{session.id}")

    async def _record(self, session: Session) -> None:
        # Behind whoever prepares another list just now, and may have written it already.
        async with session.selecting:
            if not session.dropped:
                await self._store.attempt(partial(self._store.select, session, session.selections))

    # --- A new policy -------------------------------------------------------------------------------------------------

    def reload(self, policy: Policy | None) -> None:
        """Put another policy in force: from now on for what is asked, and soon for all that sessions hold."""
        self._policy = policy or OPEN
        self._replaced = True
        self.review()

    def review(self) -> None:
        """Judge all sessions again, soon: the policy has changed, or the roles of principals have."""
        self._sessions.readers.look_again()
        self._review_again = True
        if not self._reviewing:
            self._reviewing = True
            self._background.once(self._review(), "review-sessions")

    async def _review(self) -> None:
        try:
            while self._review_again:
                self._review_again = False
                await self._review_all()
        finally:
            self._reviewing = False

    async def _review_all(self) -> None:
        policy, replaced = self._policy, self._replaced
        self._replaced = False
        withdrawn_from = looked_at = 0
        turn = self._clock.monotonic() + REVIEW_SLICE
        for session in self._sessions:
            if session.dropped:
                continue
            try:
                if withdrawn := self.enforce(session):
                    withdrawn_from += 1
                    self.declare(session, withdrawn)
            except Exception as bug:  # noqa: BLE001 - the others must be judged
                # It must not keep what it may not have any more. It is judged again when its client resumes it.
                self._sessions.fail(session, bug)
            looked_at += 1
            if self._clock.monotonic() >= turn:
                await asyncio.sleep(0)
                turn = self._clock.monotonic() + REVIEW_SLICE
        if not replaced:
            self._log.emit(events.SESSIONS_REVIEWED, sessions=looked_at, withdrawn=withdrawn_from)
            return
        self._log.emit(
            events.POLICY_RELOADED,
            roles=len(policy.roles),
            principals=len(policy.principals),
            sessions=looked_at,
            withdrawn=withdrawn_from,
        )


def _forbidden(message: str) -> RequestRefused:
    return RequestRefused(message, code=ErrorCode.FORBIDDEN)


def _named(names: Sequence[str]) -> str:
    """Name some of what is withdrawn."""
    return ", ".join(map(shown, names[:NAMED])) + (", …" if len(names) > NAMED else "")


def _part(selector: Selector, allowed: Common) -> str:
    """Say what of a selector is allowed."""
    if not allowed.selectors:
        if allowed.complete:
            return f"{shown(selector.text)}, nor any part of it"
        return (
            f"all of {shown(selector.text)}, and the part that you may cannot be said in few words; ask for less of it"
        )
    named = " and ".join(shown(each.text) for each in allowed.selectors[:NAMED])
    more = "" if allowed.complete and len(allowed.selectors) <= NAMED else ", among others"
    return f"all of {shown(selector.text)}, but of it {named}{more}"
