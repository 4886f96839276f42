"""The public face of the client: ``connect`` and ``Session``."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from ssl import SSLContext
from types import MappingProxyType, TracebackType
from typing import Final, Literal, Self, overload
from weakref import WeakSet

import orjson

from gateway.client.arguments import ages_of, check_times, headers_of, properties_of, text_of, tls_of, ttl_of
from gateway.client.consumers import DEFAULT_CREDIT, MOST_CREDIT, Ack, MessageConsumer
from gateway.client.credential_source import CredentialsSource
from gateway.client.durable_streams import flush
from gateway.client.durables import DurableCalls
from gateway.client.exchanges import ExchangeCalls
from gateway.client.history_streams import HistoryFeed, HistoryStream, read_history
from gateway.client.options import CLOSE_TIMEOUT, LONGEST_WINDOW, Options, follows_master, time_limit
from gateway.client.presence import PresenceCalls
from gateway.client.queues import QUEUE_BYTES, QUEUE_SIZE
from gateway.client.streams import UpdateStream
from gateway.client.supervisor import Supervisor
from gateway.client.transactions import Transaction
from gateway.client.values import ValueCalls
from gateway.client.wills import WillCalls
from gateway.core.client.errors import (
    ClearTextWarning,
    InvalidPosition,
    InvalidSelector,
    InvalidTopic,
    RequestRefused,
    SessionEnded,
    ValueTooLarge,
)
from gateway.core.client.log_reader import parse_position
from gateway.core.client.options import CONNECT_TIMEOUT
from gateway.core.client.request_table import PACKET_OVERHEAD, UNNUMBERED, encode_within
from gateway.core.client.types import Notice, Receipt, Recovery, SendReceipt, SessionState, Update
from gateway.core.client.urls import check_urls, in_clear_text
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.wire.codec import json_text
from gateway.core.wire.packets import (
    Authenticate,
    Publish,
    SetProperties,
    Subscribe,
)
from gateway.core.wire.properties import check_properties, is_unicode
from gateway.core.wire.queue_packets import (
    Send,
)

HISTORY_LIMIT: Final = 1_000
"""Events that ``Session.history`` reads unless it is told otherwise."""


class Session(DurableCalls, ExchangeCalls, PresenceCalls, ValueCalls, WillCalls):
    """A session at a gateway: it outlives its connections, the nodes that serve it and their deploys.

    Made by ``connect``. All methods belong to the event loop it was made in. Methods that ask something of the server
    wait while the session recovers; the order of calls that wait for each other is the order of execution. Calls made
    at the same time (``asyncio.gather``) are sent in the order in which they were made, but may be executed in another
    order if the grid becomes unreachable and comes back between them.

    A call may be cancelled at any time. Whether its request is executed is then unknown, and the session is unharmed.
    """

    _supervisor: Supervisor

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._durables = WeakSet()

    def __repr__(self) -> str:
        return f"<Session {self.id} of {self.principal} at {self.node}: {self.state.value}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # --- What it is ---------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's identity in the whole cluster; the same for its whole life."""
        return self._supervisor.welcome.session

    @property
    def principal(self) -> str:
        """Who it belongs to."""
        return self._supervisor.welcome.principal

    @property
    def node(self) -> str:
        """The node that serves it, or served it last."""
        return self._supervisor.welcome.node

    @property
    def backup(self) -> str | None:
        """The node that keeps a copy of it, as of the last welcome; None if none does."""
        return self._supervisor.welcome.backup

    @property
    def mirror(self) -> str | None:
        """What its node waits for before packets leave: ``async`` for nothing, ``sync`` or ``strict`` for the backup.

        As of the last welcome; None without a backup. The notice ``unmirrored`` says that ``sync`` is ``async`` now.
        """
        return self._supervisor.welcome.mirror

    @property
    def following(self) -> bool | None:
        """Whether its node was the master when it welcomed the session; None if it does not follow the master."""
        return self._supervisor.welcome.following

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it connects: the URLs that were given, then those of the nodes that the cluster lists at the moment.

        None of them is less safe than those that were given.
        """
        return self._supervisor.urls

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, as of the last welcome and the changes since; names with ``$`` are the server's."""
        return MappingProxyType(self._supervisor.properties)

    @property
    def state(self) -> SessionState:
        """Where it stands: connected, recovering or closed."""
        return self._supervisor.state

    @property
    def replicated(self) -> bool:
        """Whether it survives the loss of its node (P1)."""
        return self._supervisor.welcome.replicated

    @property
    def window(self) -> float:
        """Seconds it survives without a connection, as the node granted."""
        return self._supervisor.welcome.window

    @property
    def closed_reason(self) -> SessionEnded | None:
        """Why it is over; None while it is not."""
        return self._supervisor.ended

    # --- Topics -------------------------------------------------------------------------------------------------------

    @overload
    async def subscribe(
        self,
        selector: str,
        *,
        start: None = None,
        queue_size: int = QUEUE_SIZE,
        queue_bytes: int = QUEUE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> UpdateStream: ...

    @overload
    async def subscribe(
        self,
        selector: str,
        *,
        start: str,
        on_gap: Literal["tell", "refuse"] = "tell",
        queue_size: int = QUEUE_SIZE,
        queue_bytes: int = QUEUE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> HistoryStream: ...

    async def subscribe(
        self,
        selector: str,
        *,
        start: str | None = None,
        on_gap: Literal["tell", "refuse"] = "tell",
        queue_size: int = QUEUE_SIZE,
        queue_bytes: int = QUEUE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> UpdateStream:
        """Select topics and be sent their values.

        Returns once the grid has accepted the selection, so that it survives the node (P4). Further calls extend the
        session's selections; each returns a stream of its own with the updates that match its selector. What the
        session selects is what its living streams want: leaving ``async with stream``, ``stream.close()`` or losing
        the last reference to a stream gives its selection up, unless another stream wants it, too.

        With *start*, every event of topics with history comes, from there on, once and in order, whatever happens to
        the session: none is folded, and a slow reader may be as slow as it likes, as the history waits for it.

        Args:
            selector: ``*`` matches one segment, ``**`` any number, such as ``prices/*/bid`` or ``prices/**``.
            start: ``earliest`` for all that is kept, ``now``, or what ``HistoryStream.position`` or the event id of an
                update was, for what came after that; None for current values and updates, without history.
            on_gap: what becomes of events behind *start* that are not kept any more: ``tell`` marks the first update
                that follows by ``gap``, and ``refuse`` raises ``PositionGone`` in its place.
            queue_size: updates kept for a reader that is slow, before they are conflated to the newest per topic.
            queue_bytes: bytes of updates kept, likewise. If the newest of each topic alone have more, the stream ends.
            timeout: seconds; None for the session's default.

        Raises:
            InvalidSelector: it breaks the rules of protocol section 6.
            RequestRefused: the node refuses; see ``errors``.
            RequestTimedOut: there was no answer in time; the selection may have been made.
            SessionEnded: the session is over.
            InvalidPosition: *start* is none.
            ValueError: *queue_size* or *queue_bytes* is below 1.
        """
        parsed = parse_selector(text_of("selector", selector, InvalidSelector))
        streams = self._supervisor.streams
        # It listens before it asks, so that no update can come too early for it.
        feed: HistoryFeed | None = None
        stream: UpdateStream
        if start is None:
            stream = streams.open(parsed, size=queue_size, octets=queue_bytes)
        else:
            start = text_of("start", start, InvalidPosition)
            stream, feed = streams.open_history(
                parsed, self._supervisor, start=start, on_gap=on_gap, size=queue_size, octets=queue_bytes
            )
        try:
            await self._supervisor.request(Subscribe(UNNUMBERED, parsed.text), timeout)
            if feed is not None:
                await feed.begin(timeout)
        except RequestRefused:
            streams.refused(stream)
            raise
        except BaseException:
            # It may be executed, and then nothing of it shall stay.
            stream.close()
            raise
        return stream

    async def history(self, topic: str, *, after: str | None = None, limit: int = HISTORY_LIMIT) -> Sequence[Update]:
        """Read the history of a topic without subscribing.

        Args:
            topic: its path.
            after: an event id, or a position, behind which to begin; None for the earliest event that is kept.
            limit: most events to read.

        Returns:
            The events, the oldest first. If something before the first is not kept any more, that says so by ``gap``.

        Raises:
            InvalidTopic: the path breaks the rules of protocol section 6.
            InvalidPosition: *after* is none.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``subscribe``.
        """
        path = parse_topic(text_of("topic", topic, InvalidTopic))
        places = {} if after is None else parse_position(text_of("after", after, InvalidPosition))
        return await read_history(self._supervisor.read_history, path, places, limit)

    async def unsubscribe(self, selector: str, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """End the streams of exactly this selector; if there are none, take its topics out of wider ones.

        Streams that are narrower, or only overlap, lose nothing. Cancelling the call, or its time limit, ends the
        waiting and nothing else.

        Args:
            selector: as for ``subscribe``.
            timeout: seconds; None for the session's default.

        Raises:
            InvalidSelector, RequestRefused, RequestTimedOut, SessionEnded: as for ``subscribe``.
        """
        await self._supervisor.unsubscribe(parse_selector(text_of("selector", selector, InvalidSelector)), timeout)

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        ttl: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> Receipt:
        """Set the value of a topic, exactly once however often the client has to ask (P5).

        Args:
            topic: its path, such as ``prices/ACME``.
            value: anything that orjson encodes: JSON values, dataclasses, datetimes and others.
            ttl: seconds after which it ends, unless another one has taken its place: subscribers get an update that is
                ``removed``. 0 for ever, whatever the topic's destination says; None as that says, or for ever.
            timeout: seconds; None for the session's default.

        Returns:
            The receipt, once the publish is in the grid (P4).

        Raises:
            ValueError: *ttl* is no such time.
            InvalidTopic: the path breaks the rules of protocol section 6.
            ValueTooLarge: the value is larger than the node accepts.
            InvalidValue: the value is not JSON, not Unicode, or has more than 128 arrays and objects within each other.
            RequestRefused: the node refuses.
            RequestTimedOut: there was no answer in time; its ``sent`` says whether the publish may have happened.
            SessionEnded: the session ended before there was an answer; the publish may have happened.
        """
        path = parse_topic(text_of("topic", topic, InvalidTopic))
        text = json_text(value)
        limits = self._supervisor.welcome.limits
        most = min(limits.value_bytes, limits.message_bytes - len(orjson.dumps(path)) - PACKET_OVERHEAD)
        if len(text) > most:
            raise ValueTooLarge(f"the value has {len(text)} bytes of JSON; the node accepts {most}")
        reply = await self._supervisor.request(Publish(UNNUMBERED, path, text, ttl=ttl_of(ttl)), timeout)
        return Receipt(event_id=reply.event or "", version=reply.version or 0)

    # --- Queues -------------------------------------------------------------------------------------------------------

    async def send(
        self,
        queue: str,
        value: object,
        *,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        expires: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> SendReceipt:
        """Put a message into a queue, exactly once however often the client has to ask (P5).

        Args:
            queue: its path, such as ``jobs/render``; an administrator has declared it.
            value: anything that orjson encodes, as for ``publish``.
            headers: texts by name, which travel with it.
            delay: seconds until somebody may be given it.
            expires: seconds after which nobody is, and it becomes a dead letter; None as the queue has it.
            timeout: seconds; None for the session's default.

        Returns:
            The receipt, once the message is in the grid (P4).

        Raises:
            NoSuchQueue: nobody has declared it.
            QueueFull: it has no room; the message was not sent.
            ValueError: *delay* or *expires* is no length of time.
            InvalidTopic, ValueTooLarge, InvalidValue, RequestRefused, RequestTimedOut, SessionEnded: as for
                ``publish``.
        """
        path = parse_topic(text_of("queue", queue, InvalidTopic))
        text = json_text(value)
        limits = self._supervisor.welcome.limits
        ask = Send(UNNUMBERED, path, text, dict(headers or {}), *ages_of(delay, expires))
        if len(text) > limits.value_bytes:
            raise ValueTooLarge(f"the value has {len(text)} bytes of JSON; the node accepts {limits.value_bytes}")
        encode_within(ask, limits.message_bytes)
        self._supervisor.check_queues()
        reply = await self._supervisor.request(ask, timeout)
        return SendReceipt(message_id=reply.sent or 0)

    async def declare(self, *, temporary: bool, timeout: float | None = None) -> str:  # noqa: ASYNC109 - public
        """Make a queue for the life of this session, which alone consumes from it; others send to it.

        Args:
            temporary: True; other queues are declared by administrators.
            timeout: seconds; None for the session's default.

        Returns:
            Its path, to be told to those who shall send. After the session it is not there any more.

        Raises:
            ValueError: *temporary* is not True.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``publish``.
        """
        if temporary is not True:
            raise ValueError("only temporary queues are declared by clients")
        return await self._supervisor.declare(timeout)

    async def consume(
        self,
        queue: str,
        *,
        credit: int = DEFAULT_CREDIT,
        ack: Ack | str = Ack.AUTO,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> MessageConsumer:
        """Be given messages of a queue, of which each goes to one consumer.

        Args:
            queue: its path.
            credit: messages that this session may hold without having settled them; 1,000 at most.
            ack: how they are settled: ``auto``, when they have been received here; ``each``, by ``accept``,
                ``reject`` or ``release`` of each; ``client``, likewise, and ``accept`` includes all before it;
                ``none``, before they are sent.
            timeout: seconds; None for the session's default.

        Raises:
            ValueError: *credit* or *ack* make no sense, or the session consumes from this queue already.
            NoSuchQueue: nobody has declared it.
            InvalidTopic, RequestRefused, RequestTimedOut, SessionEnded: as for ``subscribe``.
        """
        path = parse_topic(text_of("queue", queue, InvalidTopic))
        if type(credit) is not int or not 1 <= credit <= MOST_CREDIT:
            raise ValueError(f"credit is a number of messages from 1 to {MOST_CREDIT}, not {credit!r}")
        return await self._supervisor.consume(path, credit, Ack(ack), timeout)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Publish, send and settle as a whole, or not at all (P16): ``async with session.transaction() as t``.

        Args:
            timeout: seconds for each request of it; None for the session's default.
        """
        return Transaction(self._supervisor, timeout)

    async def set_properties(self, changes: Mapping[str, str | None], *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Change user-defined properties; returns once the grid has them.

        Args:
            changes: value by name; None removes a property, and what is not named stays.
            timeout: seconds; None for the session's default.

        Raises:
            InvalidProperties: a name or value is not a string or not Unicode, a name is empty or begins with ``$``, or
                a limit is exceeded.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``publish``.
        """
        ask = SetProperties(UNNUMBERED, properties_of(changes))
        check_properties(ask.changes)
        encode_within(ask, self._supervisor.welcome.limits.message_bytes)
        await self._supervisor.request(ask, timeout)

    # --- What happens to it -------------------------------------------------------------------------------------------

    def recoveries(self) -> AsyncIterator[Recovery]:
        """Iterate over the session's recoveries: first the ones there were (the last 256), then each new one (P2).

        The iteration stops when the session is closed, and raises ``SessionEnded`` if it died of something.
        """
        return self._supervisor.recoveries.listen()

    def notices(self) -> AsyncIterator[Notice]:
        """Iterate over what the server declared, like ``recoveries``: for example that its grid lost writes."""
        return self._supervisor.notices.listen()

    async def wait_closed(self) -> None:
        """Wait until the session is over, for whatever reason; ``closed_reason`` tells it."""
        await self._supervisor.wait_closed()

    async def authenticate(self, secret: str, *, principal: str = "", timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Show fresh credentials, before those of the session end; ``connect(credentials=…)`` does so by itself.

        Args:
            secret: the proof.
            principal: who shows it, if the proof does not tell; the session's.
            timeout: seconds it may take; None for the session's default.

        Raises:
            RequestRefused: they are not accepted (``code`` is ``unauthenticated`` or ``revoked``), or it cannot be told
                now (``authentication_unavailable``); the ones from before stay in force until their end.
            RequestTimedOut, SessionEnded: as for ``publish``.
        """
        for name, given in (("secret", secret), ("principal", principal)):
            text_of(name, given, RequestRefused)
        ask = Authenticate(UNNUMBERED, secret, principal)
        encode_within(ask, self._supervisor.welcome.limits.message_bytes)  # tells at once what could not be sent
        await self._supervisor.request(ask, timeout)

    async def close(self, *, timeout: float | None = CLOSE_TIMEOUT) -> None:  # noqa: ASYNC109 - public
        """End the session on purpose; nothing of it stays in the grid (P7).

        Requests without an answer raise ``SessionClosed``; streams and iterators end. Closing twice does no harm.

        Args:
            timeout: seconds to wait until a node has confirmed the end; then connections are dropped and the session is
                left to its window. None to wait for as long as the window.
        """
        seconds = time_limit("timeout", timeout)
        await flush(self._durables, seconds)
        await self._supervisor.close(seconds)


class Connecting(AbstractAsyncContextManager[Session]):
    """What ``connect`` returns: await it for a session, or use it with ``async with`` to have that closed too."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: Session | None = None

    def __await__(self) -> Generator[object, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def _open(self) -> Session:
        supervisor = Supervisor(self._options)
        await supervisor.open()
        return Session(supervisor)


def connect(
    urls: str | Sequence[str],
    principal: str = "anonymous",
    secret: str | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    credentials: CredentialsSource | None = None,
    window: float | None = None,
    connect_timeout: float | None = CONNECT_TIMEOUT,
    request_timeout: float | None = None,
    ssl: SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    ack_packets: int | None = None,
    discover: bool = True,
    follow_master: bool | None = None,
) -> Connecting:
    """Open a session; await the result, or use it as the context of ``async with``.

    Args:
        urls: of a load balancer or a node, such as ``wss://gateway.example``; of several, each is tried in turn. A URL
            without a path gets ``/v1/connect``.
        principal: who you are; empty if your proof tells, as a JSON Web Token does.
        secret: your proof; it travels in the first packet and never in a URL.
        credentials: in the place of *secret*, where proofs end: an async function that returns a fresh one, such as an
            access token. It is asked before the session is opened, and again whenever the server says that the
            credentials will end; the session goes on. It may raise, and is asked again a little later then.
        properties: user-defined properties of the session to start with.
        window: seconds without a connection that the session shall survive; the node may grant less. None for the
            node's default.
        connect_timeout: seconds to try, if no node can be reached; None or infinity to try for as long as it takes.
        request_timeout: seconds that ``subscribe``, ``publish`` and others may take, if they are not told otherwise;
            None to let them wait for as long as the session lives.
        ssl: for ``wss``; None for the system's trust store.
        headers: to send with the HTTP upgrade, such as ``Origin``.
        ack_packets: packets received after which an acknowledgement is sent if nothing else is; None for 256. The
            fewer, the less is sent again after a loss, and the more the node has to read. It is sent after half a
            second in any case, and after a quarter of what the node keeps.
        discover: whether to use the URLs that the cluster lists, beside *urls*; see ``Session.urls``.
        follow_master: whether the session is to be served by the master of the cluster, wherever that goes; None for
            what the environment variable ``GATEWAY_FOLLOW_MASTER`` says, by default not.

    Raises:
        ValueError: an argument makes no sense, or there are both *secret* and *credentials*.
        InvalidProperties: as for ``Session.set_properties``.
        Unauthenticated: when awaited: the principal and secret are not accepted.
        ConnectFailed: when awaited: no session could be opened within *connect_timeout*, or never will be.

    Warns:
        ClearTextWarning: a URL leads to another host, and not by TLS.
    """
    check_times(window=window, connect_timeout=connect_timeout, request_timeout=request_timeout)
    for name, text in (("principal", principal), ("secret", secret or "")):
        if not isinstance(text, str):
            raise ValueError(f"the {name} is a string, and not {type(text).__name__}")  # noqa: TRY004 - as documented
        if not is_unicode(text):
            raise ValueError(f"the {name} is not Unicode: a surrogate in it has no other half")
    checked_headers, checked_ssl = headers_of(headers), tls_of(ssl)
    if ack_packets is not None and not (type(ack_packets) is int and ack_packets > 0):
        raise ValueError(f"ack_packets is a number of packets above 0, not {ack_packets!r}")
    if secret is not None and credentials is not None:
        raise ValueError("give either a secret, or credentials that make fresh ones")
    check_properties(properties_of(properties or {}))
    checked = check_urls(urls)
    if exposed := in_clear_text(checked):
        warnings.warn(exposed, ClearTextWarning, stacklevel=2)
    return Connecting(
        Options(
            urls=checked,
            principal=principal,
            secret=secret,
            renewable=credentials is not None,
            credentials=credentials,
            properties=dict(properties or {}),
            window=None if window is None else min(window, LONGEST_WINDOW),
            connect_timeout=inf if connect_timeout is None else connect_timeout,
            request_timeout=time_limit("request_timeout", request_timeout),
            ssl=checked_ssl,
            headers=checked_headers,
            ack_packets=ack_packets,
            discover=discover,
            follow_master=follows_master() if follow_master is None else follow_master,
        )
    )
