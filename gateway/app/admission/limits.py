"""Keeps the accounts of a node, and refuses what is above a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from gateway.app.admission.addresses import AddressConnection, Addresses, AddressKeys, account_key
from gateway.app.admission.refusals import RETRY_DELAY, HandshakeRefused
from gateway.app.admission.stored_sessions import StoredSessions
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.parameters import NodeParameters
from gateway.app.session.meter import Meter
from gateway.app.session.session import Session
from gateway.app.session.subject import Subject
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.accounts import Account, AccountLimits, Accounts
from gateway.core.pacing.rates import TokenBucket
from gateway.core.session.stored_size import RECEIPTS_BYTES, handlers_bytes, selections_bytes, text_bytes
from gateway.core.topics.selections import Selections
from gateway.core.wire.codes import LIMIT_EXCEEDED, TRY_LATER, ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.ports import MOST_HISTORIES, NO_NEW_TOPICS, ConnectionRejected, EventLog, Metrics

MOST_ACCOUNTS: Final = 32_768
"""Addresses, and principals, that are remembered besides those with an open connection: at most some 20 MB each."""

TELL_AGAIN: Final = 10.0
"""Seconds between two notices about reading that pauses, for one connection: they take room in its resend buffer."""

LOG_AGAIN: Final = 1.0
"""Seconds between two log lines about the same limit: an attacker must not fill the disk. The metric counts all."""

BUSY_RETRY: Final = 5.0
"""Seconds after which somebody comes back to a node, or from an address, that has as many connections as it may: they
last, so that looking more often is no use."""


CROWDED: Final = 2
"""Half of what sessions without a client may be, or take: from there on new sessions get no longer window than the
default. Whoever fills the node with sessions that it leaves has to open them ever anew, which rates bound."""


class OwnBuckets(NamedTuple):
    """What one connection has of its own, and shares with nobody.

    Attributes:
        packets: what its packets are charged to; None if they are not limited.
        read: what its bytes are charged to; None likewise.
    """

    packets: TokenBucket | None
    read: TokenBucket | None


class Limits:
    """Keeps the accounts of a node.

    Args:
        parameters: with the limits.
        clock: time.
        metrics: where what was exceeded is counted.
        log: where it is told.

    Attributes:
        address_keys: tells as what addresses count, and which do not.
        node: the account of the node itself.
        topics: whether new topics of a principal are limited.
        stored: what sessions take in the grid.
        memory_short: whether the process runs out of memory, so that nobody new is taken on.
    """

    def __init__(self, parameters: NodeParameters, *, clock: Clock, metrics: Metrics, log: EventLog) -> None:
        usage = parameters.usage
        self._parameters = parameters
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._told: dict[str, float] = {}
        self.address_keys = AddressKeys(usage.exempt)
        self._addresses = Addresses(usage.address, self.address_keys, MOST_ACCOUNTS) if usage.address.any else None
        exempt = usage.exempt_handshakes
        self._exempt = Accounts[str](AccountLimits(handshakes=exempt), MOST_ACCOUNTS) if exempt else None
        self._principals = Accounts[str](usage.principal, MOST_ACCOUNTS) if usage.principal.any else None
        self.node = Account(usage.node)
        self.stored = StoredSessions(parameters, metrics, self.exceeded)
        self.memory_short = False
        self.topics = usage.principal.topics > 0
        self._counts_selections = bool(usage.principal.selections or usage.node.selections)
        metrics.watch(catalogue.LIMITED_ACCOUNTS, lambda: len(self._addresses or ()), label="address")
        metrics.watch(catalogue.LIMITED_ACCOUNTS, lambda: len(self._principals or ()), label="principal")

    # --- Connections --------------------------------------------------------------------------------------------------

    def arrive(self, address: str) -> AddressConnection:
        """Count a connection; see ``Admission.arrive``.

        Raises:
            ConnectionRejected: the address, or the node, has too many.
        """
        account = self._account_of(address)
        if account is not None:
            self._check_address(account, address)
        if self.memory_short:
            raise self.rejection("memory_limit", "this node is short of memory", BUSY_RETRY, elsewhere=True)
        node = self.node
        most = node.limits.connections
        if most and node.connections >= most:
            raise self.rejection(
                "limit_connections", f"this node has {most} connections, as many as it may", BUSY_RETRY, elsewhere=True
            )
        counted = (node,) if account is None else (node, account)
        for each in counted:
            each.connections += 1
        return AddressConnection(counted)

    def shake_hands(self, peer: str, *, proxy: bool) -> None:
        """Count a handshake of TLS; see ``Admission.shake_hands``.

        Raises:
            ConnectionRejected: there are too many from an exempt address, or from a proxy.
        """
        if self._exempt is None or not (proxy or self._account_of(peer) is None):
            return
        now = self._clock.monotonic()
        account = self._exempt.of(account_key(peer), now)
        wait = 0.0 if account.handshakes is None else account.handshakes.take(now)
        if wait > 0:
            raise self.rejection(
                "rate_exempt_tls_handshakes",
                f"{account.limits.handshakes:g} handshakes of TLS a second may come from your address",
                wait,
                address=peer,
            )

    def _check_address(self, account: Account, address: str) -> None:
        limits = account.limits
        if limits.connections and account.connections >= limits.connections:
            raise self.rejection(
                "limit_address_connections",
                f"there are {limits.connections} connections from your address, as many as one may have",
                BUSY_RETRY,
                address=address,
            )
        wait = 0.0 if account.handshakes is None else account.handshakes.take(self._clock.monotonic())
        if wait > 0:
            raise self.rejection(
                "rate_address_handshakes",
                f"one address may make {limits.handshakes:g} handshakes a second, and yours has made more",
                wait,
                address=address,
            )

    def rejection(
        self, limit: str, why: str, retry_after: float, *, address: str = "", elsewhere: bool = False
    ) -> ConnectionRejected:
        """Make and count a refusal before the handshake."""
        self.exceeded(limit, address)
        return ConnectionRejected(f"{limit}: {why}", limit=limit, retry_after=retry_after, elsewhere=elsewhere)

    def _account_of(self, address: str) -> Account | None:
        return None if self._addresses is None else self._addresses.of(address, self._clock.monotonic())

    # --- Principals ---------------------------------------------------------------------------------------------------

    def open(self, principal: str, *, at_admin_port: bool = False) -> None:
        """Check whether a principal may open one more session.

        Args:
            principal: whose session it would be.
            at_admin_port: whether it comes to the admin port, which what clients have filled must not close.

        Raises:
            HandshakeRefused: it has too many, or opens them too fast; or the node has too many without a client.
        """
        node = self.node
        if not at_admin_port and self.memory_short:
            self.exceeded("memory_limit")
            raise HandshakeRefused(
                ErrorCode.TRY_LATER, "memory_limit: this node is short of memory; try again", TRY_LATER, BUSY_RETRY
            )
        if not at_admin_port and 0 < node.limits.absent <= node.absent:
            self.exceeded("limit_disconnected")
            why = f"this node has {node.absent} disconnected sessions, as many as it may; try again"
            raise HandshakeRefused(ErrorCode.TRY_LATER, f"limit_disconnected: {why}", TRY_LATER, BUSY_RETRY)
        if not at_admin_port and 0 < node.limits.absent_bytes < node.absent_bytes:
            # The grid is unreachable, or has not been told of them yet: else what is above the bound has been given up.
            self.exceeded("limit_disconnected_bytes")
            why = f"disconnected sessions take {node.absent_bytes} bytes of this node, more than they may"
            raise HandshakeRefused(ErrorCode.TRY_LATER, f"limit_disconnected_bytes: {why}", TRY_LATER, RETRY_DELAY)
        if self._principals is None:
            return
        account = self._principals.of(principal, self._clock.monotonic())
        limits = account.limits
        if 0 < limits.absent <= account.absent:
            raise self._refused(
                "limit_principal_disconnected",
                f"{account.absent} sessions of your principal on this node have no client, as many as one may have",
                ErrorCode.TOO_MANY_SESSIONS,
                BUSY_RETRY,
                principal,
            )
        if 0 < limits.absent_bytes < account.absent_bytes:
            raise self._refused(
                "limit_principal_disconnected_bytes",
                f"disconnected sessions of your principal take {account.absent_bytes} bytes of this node",
                ErrorCode.TOO_MANY_SESSIONS,
                BUSY_RETRY,
                principal,
            )
        if limits.connections and account.connections >= limits.connections:
            raise self._refused(
                "limit_principal_sessions",
                f"this node holds {limits.connections} sessions of your principal, as many as one may have",
                ErrorCode.TOO_MANY_SESSIONS,
                BUSY_RETRY,
                principal,
            )
        wait = 0.0 if account.handshakes is None else account.handshakes.take(self._clock.monotonic())
        if wait > 0:
            raise self._refused(
                "rate_principal_handshakes",
                f"one principal may open {limits.handshakes:g} sessions a second, and yours has opened more",
                ErrorCode.RATE_LIMITED,
                wait,
                principal,
            )

    @property
    def crowded(self) -> bool:
        """Whether so many sessions wait for their clients that no new one may wait for longer than by default."""
        node = self.node
        return 0 < node.limits.absent <= CROWDED * node.absent or 0 < node.limits.absent_bytes <= CROWDED * (
            node.absent_bytes + node.buffered_bytes
        )

    def _refused(self, limit: str, why: str, code: ErrorCode, retry_after: float, who: str) -> HandshakeRefused:
        self.exceeded(limit, who)
        return HandshakeRefused(code, f"{limit}: {why}", LIMIT_EXCEEDED, max(RETRY_DELAY, retry_after))

    @contextmanager
    def opening(self, session: Session, *, at_admin_port: bool) -> Iterator[None]:
        """Count a new session that ``open`` has allowed while it is written; whoever takes it in calls ``enter``.

        Nothing may be waited for between ``open`` and this, or others are allowed meanwhile.

        Args:
            session: which.
            at_admin_port: as for ``open``.

        Raises:
            HandshakeRefused: it would take too much of the grid; see ``StoredSessions.opening``.
        """
        account = None if self._principals is None else self._principals.of(session.principal, self._clock.monotonic())
        with self.stored.opening(session, at_admin_port=at_admin_port):
            if account is None:
                yield
                return
            account.connections += 1
            try:
                yield
            finally:
                account.connections -= 1

    def enter(self, session: Session) -> None:
        """The node holds a session from now on."""
        if self._principals is not None:
            session.account = self._principals.of(session.principal, self._clock.monotonic())
            session.account.connections += 1
        self.recount(session)

    def leave(self, session: Session) -> None:
        """The node holds it no more."""
        self._count_selections(session, -session.counted)
        self.stored.leave(session)
        if session.account is not None:
            session.account.connections -= 1
            session.account = None

    # --- Streams ------------------------------------------------------------------------------------------------------

    def check_stream(self, subject: Subject, selections: Selections) -> None:
        """Check whether a principal may read one more stream of events, by what it selects; see ``open``, too.

        Raises:
            RequestRefused: these are more selections than one stream, all of its principal's, or the node may have.
        """
        limits = self._parameters.limits
        wanted, size = len(selections), selections.text_bytes
        if wanted > limits.selections or size > limits.selection_bytes:
            name = "limit_selections" if wanted > limits.selections else "limit_selection_bytes"
            why = f"a stream may have {limits.selections} selectors, of {limits.selection_bytes} bytes together"
            raise self._too_many(name, why, subject)
        self._check_room(subject, wanted)

    def enter_stream(self, session: Session) -> None:
        """A stream is read by a session from now on."""
        if self._principals is not None:
            session.account = self._principals.of(session.principal, self._clock.monotonic())
            session.account.connections += 1
        if self._counts_selections:
            self._count_selections(session, len(session.selections))

    def leave_stream(self, session: Session) -> None:
        """It is no more."""
        self._count_selections(session, -session.counted)
        if session.account is not None:
            session.account.connections -= 1
            session.account = None

    # --- Selections ---------------------------------------------------------------------------------------------------

    def recount(self, session: Session) -> None:
        """The selections of a session that the node holds may have changed, or what else the grid holds of it."""
        self.stored.recount(session)
        # What was asked for may be executed after the session has gone, and nobody would take it off again.
        if self._counts_selections and not session.dropped:
            self._count_selections(session, len(session.selections) - session.counted)

    def _count_selections(self, session: Session, change: int) -> None:
        session.counted += change
        self.node.selections += change
        if session.account is not None:
            session.account.selections += change

    def check_selections(self, session: Session, selections: Selections) -> None:
        """Check whether a session may have a list of selections in place of its own, and count that already.

        What became of it in the end is counted by ``recount``, which the caller calls in any case. What a limit that
        was lowered meanwhile allows no more stays, and may become less.

        Raises:
            RequestRefused: it would have too many, its principal or the node, or too many bytes of them.
        """
        limits = self._parameters.limits
        wanted, size = len(selections), selections.text_bytes
        if wanted > limits.selections and wanted >= len(session.selections):
            why = f"the session would hold {wanted} selections; limits.selections is {limits.selections}"
            raise self._too_many("limit_selections", why, session)
        if size > limits.selection_bytes and size >= session.selections.text_bytes:
            why = f"the session's selectors would have {size} bytes; limits.selection_bytes is {limits.selection_bytes}"
            raise self._too_many("limit_selection_bytes", why, session)
        self._check_counted(session, wanted)
        self.stored.check(
            session,
            selections_bytes(selections) - selections_bytes(session.selections),
            ErrorCode.TOO_MANY_SELECTIONS,
            "Use wider selectors, unsubscribe first, or end sessions that are not needed.",
        )

    def _check_counted(self, session: Session, wanted: int) -> None:
        more = wanted - session.counted
        self._check_room(session, more)
        if self._counts_selections and more > 0 and not session.dropped:
            self._count_selections(session, more)

    def _check_room(self, subject: Subject, more: int) -> None:
        if not self._counts_selections or more <= 0:
            return
        account = subject.account
        if account is not None and 0 < account.limits.selections < account.selections + more:
            raise self._too_many(
                "limit_principal_selections",
                f"the sessions of your principal on this node would hold {account.selections + more} selections "
                f"together; it may have {account.limits.selections}",
                subject,
            )
        if 0 < self.node.limits.selections < self.node.selections + more:
            raise self._too_many(
                "limit_node_selections",
                f"this node holds {self.node.selections} selections; it may hold {self.node.limits.selections}",
                subject,
            )

    def _too_many(self, limit: str, why: str, subject: Subject) -> RequestRefused:
        self.exceeded(limit, subject.principal)
        return RequestRefused(
            f"{limit}: {why}. Use wider selectors, or unsubscribe first.", code=ErrorCode.TOO_MANY_SELECTIONS
        )

    def check_properties(self, session: Session, properties: Mapping[str, str]) -> None:
        """Check whether a session may have properties in place of its own; ``recount`` follows in any case.

        Raises:
            RequestRefused: its sessions, or all, would take too many bytes of the grid.
        """
        change = text_bytes(properties) - text_bytes(session.properties)
        self.stored.check(session, change, ErrorCode.TOO_MANY_BYTES, "Remove properties, or end other sessions, first.")

    def check_handlers(self, session: Session, handlers: Mapping[str, int]) -> None:
        """Check whether a session may handle these questions in place of its own; ``recount`` follows in any case.

        Raises:
            RequestRefused: its sessions, or all, would take too many bytes of the grid.
        """
        change = handlers_bytes(handlers) - handlers_bytes(session.handlers)
        self.stored.check(session, change, ErrorCode.TOO_MANY_BYTES, "Handle less, or end other sessions, first.")

    # --- Topics -------------------------------------------------------------------------------------------------------

    def check_receipts(self, session: Session, partitions: int) -> None:
        """Check whether a session may leave receipts in so many topic partitions; ``recount`` follows in any case.

        Raises:
            RequestRefused: its sessions, or all, would take too many bytes of the grid.
        """
        self.stored.check(
            session,
            RECEIPTS_BYTES * (partitions - len(session.publish_partitions)),
            ErrorCode.TOO_MANY_BYTES,
            "Nothing was published; publish below fewer roots, or end other sessions, first.",
        )

    def most_topics(self, subject: Subject) -> int:
        """Tell how many topics a partition may hold for this session to create one; see ``PublishCommand``."""
        if self.topics and not self.may_create(subject):
            return NO_NEW_TOPICS
        return self._parameters.partition_topics

    def may_create(self, subject: Subject) -> bool:
        """Tell whether a session's principal may create topics at the moment; to be asked only if ``topics``."""
        bucket = None if subject.account is None else subject.account.topics
        return bucket is None or bucket.charge(self._clock.monotonic(), 0) == 0

    def created(self, subject: Subject, count: int) -> None:
        """A session has created topics: they count as more packets than other publishes (P20).

        Those that were under way together may be more than were allowed. What they count is paid off by a pause of
        reading, when the client sends more.
        """
        self.charge_work(subject, count * (self._parameters.new_topic_packets - 1))
        if subject.account is not None and subject.account.topics is not None:
            subject.account.topics.charge(self._clock.monotonic(), count)

    def too_many_topics(self, subject: Subject) -> RequestRefused:
        """Say and count that a topic was not created."""
        if self.topics and not self.may_create(subject):
            assert subject.account is not None  # noqa: S101 - or everything could be created
            limit = "rate_principal_topics"
            why = f"one principal may create {subject.account.limits.topics:g} topics a second, and yours created more"
        else:
            limit = "limit_partition_topics"
            why = (
                f"the part of the grid that this topic belongs to holds {self._parameters.partition_topics} topics, or "
                f"{MOST_HISTORIES} topics with history, as many as it may"
            )
        self.exceeded(limit, subject.principal)
        return RequestRefused(f"{limit}: {why}; the topic was not created", code=ErrorCode.TOO_MANY_TOPICS)

    def too_many_bytes(self, subject: Subject) -> RequestRefused:
        """Say and count that a value was not stored."""
        self.exceeded("limit_partition_bytes", subject.principal)
        return RequestRefused(
            f"limit_partition_bytes: the part of the grid that this topic belongs to may hold "
            f"{self._parameters.partition_bytes} bytes, and would hold more; the value was not stored. Smaller values "
            "are still taken; to make room, have topics removed.",
            code=ErrorCode.TOO_MANY_BYTES,
        )

    # --- Packets ------------------------------------------------------------------------------------------------------

    def meter(self, session: Session, address: str) -> Meter | None:
        """Make what one connection's packets are charged to; None if nothing limits them."""
        return self._meter(self.buckets(), address, session.account)

    def buckets(self) -> OwnBuckets:
        """Make what one connection has of its own, to which its packets and its bytes are charged."""
        parameters = self._parameters
        return OwnBuckets(
            TokenBucket(parameters.packet_rate, parameters.packet_burst) if parameters.packet_rate else None,
            TokenBucket(parameters.byte_rate, parameters.byte_burst) if parameters.byte_rate else None,
        )

    def call_meter(self, principal: str, address: str, own: OwnBuckets) -> tuple[Meter | None, Account | None]:
        """Make what a call is charged to.

        Args:
            principal: who calls.
            address: where from.
            own: what all calls of the principal share, as if they came over one connection.

        Returns:
            That; and what the principal uses of this node, if that is limited.
        """
        account = None if self._principals is None else self._principals.of(principal, self._clock.monotonic())
        return self._meter(own, address, account), account

    def _meter(self, own: OwnBuckets, address: str, account_of_principal: Account | None) -> Meter | None:
        packets: list[tuple[TokenBucket, str]] = []
        sizes: list[tuple[TokenBucket, str]] = []
        read: list[tuple[TokenBucket, str]] = []
        if own.packets is not None:
            packets.append((own.packets, "rate_packets"))
        for subject, account in (
            ("address", self._account_of(address)),
            ("principal", account_of_principal),
            ("node", self.node),
        ):
            if account is not None and account.packets is not None:
                packets.append((account.packets, f"rate_{subject}_packets"))
            if account is not None and account.publish_bytes is not None:
                sizes.append((account.publish_bytes, f"rate_{subject}_publish_bytes"))
        if own.read is not None:
            read.append((own.read, "rate_bytes"))
        return Meter(packets, sizes, read) if packets or sizes or read else None

    def charge_work(self, subject: Subject, effort: float) -> None:
        """Charge a session's budget of packets for requests that cost more than others (P20).

        Until that is paid off its next selection rests; and with the next packets that it sends, reading pauses.

        Args:
            subject: whose requests they are.
            effort: packets that could have been served in that time.
        """
        if subject.meter is not None and effort > 0:
            now = self._clock.monotonic()
            subject.rests_until = now + subject.meter.charge_work(now, effort)

    def slowed(self, session: Session, meter: Meter, pause: float) -> str | None:
        """Count that reading pauses.

        Returns:
            What the client should be told; None if it has been told lately.
        """
        now = self._clock.monotonic()
        limit = meter.exceeded(now)
        self.exceeded(limit, session.principal)
        if now < meter.tell_at:
            return None
        meter.tell_at = now + TELL_AGAIN
        return f"{limit}: you send faster than {self._value(limit)} allows; nothing is read from you for {pause:.3g} s"

    def _value(self, limit: str) -> str:
        usage = self._parameters.usage
        scope = {"address": usage.address, "principal": usage.principal, "node": usage.node}.get(limit.split("_")[1])
        if limit == "rate_bytes":
            return f"{self._parameters.byte_rate:g} bytes a second"
        if scope is None:
            return f"{self._parameters.packet_rate:g} packets a second"
        if limit.endswith("packets"):
            return f"{scope.packets:g} packets a second"
        return f"{scope.publish_bytes:g} published bytes a second"

    def count(self, limit: str) -> None:
        """Count a limit that was exceeded and is reported by its own means."""
        self._metrics.add(catalogue.LIMITS_EXCEEDED, label=limit)

    def exceeded(self, limit: str, who: str = "") -> None:
        """Count a limit that was met, and tell of it in the log.

        Args:
            limit: the name of the setting.
            who: the address or principal that met it; '' for a limit that is nobody's in particular.
        """
        self.count(limit)
        now = self._clock.monotonic()
        if now >= self._told.get(limit, now):
            self._told[limit] = now + LOG_AGAIN
            self._log.emit(events.LIMIT_EXCEEDED, limit=limit, who=who)
