"""Settings that say how much of a node may be used: by one session, by those who share something, and in a storm."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from gateway.settings.declaration import optional, setting
from gateway.settings.kinds import Several
from gateway.settings.places import Net, Network
from gateway.settings.quantities import Bytes, Rate, Seconds, Whole


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """What one session may use of a node. The welcome announces those that a client can keep to."""

    limit_message_bytes: int = setting(
        Bytes(1024, 16 * 1024**2),
        64 * 1024,
        "Largest WebSocket message accepted.",
        reason="Holds the largest value with room to spare; larger messages would delay other clients.",
    )
    limit_value_bytes: int = setting(
        Bytes(1, 8 * 1024**2),
        32 * 1024,
        "Largest JSON text of one published value.",
        reason="Every subscriber's queue may hold it.",
    )
    limit_requests: int = setting(
        Whole("requests", 1, 65_536),
        256,
        "Requests of a session that may await their reply at once.",
        reason="Fills a round trip of 2 ms at 100,000 requests a second, and bounds what a failover resubmits.",
    )
    limit_request_bytes: int = setting(
        Bytes(0, 1024**3),
        1024**2,
        "Bytes of a session's requests that may await their reply at once, besides one message; reading from the "
        "client pauses above. 0 sets no limit.",
        reason="A round trip of 10 ms at 100 MB a second. A client that repeats unanswered requests while "
        "the grid is unreachable uses no more.",
    )
    limit_selections: int = setting(
        Whole("selections", 1, 1_000_000),
        1000,
        "Subscriptions of a session: the entries of its list of selections.",
        reason="All of them are read when the session fails over; wildcards make long lists unnecessary.",
    )
    limit_selection_bytes: int = setting(
        Bytes(1024, 1024**3),
        64 * 1024,
        "Bytes of the selectors in a session's list of selections, each with its sign.",
        reason="As many entries as limit_selections allows, of 64 bytes each; the list goes into every welcome.",
    )
    limit_questions: int = setting(
        Whole("questions", 1, 10_000),
        64,
        "Requests to handlers (questions) of a session that may await their answer at once; above, further ones are "
        "refused with too_many_questions.",
        reason="What one program waits for at a time. A service that asks for many people at once needs more.",
    )
    limit_handlers: int = setting(
        Whole("selectors", 1, 1000),
        32,
        "Selectors of the questions that a session may handle; above, further handlers are refused with "
        "too_many_handlers.",
        reason="What a program does, and not what it is asked about: wildcards make long lists unnecessary. All are "
        "told to their partitions again when the session fails over.",
    )
    limit_page_values: int = setting(
        Whole("values", 1, 10_000),
        1000,
        "Values of a page that is read over HTTP (GET /v1/values) or by a session, whatever is asked for.",
        reason="Some milliseconds of the node.",
    )
    limit_page_bytes: int = setting(
        Bytes(1024, 1024**2),
        128 * 1024,
        "Bytes of paths and values, and 80 for each, above which such a page is ended.",
        reason="A page waits for a slow reader in memory. Who reads many values of 1 KB needs a call for each 120.",
    )
    limit_resend_packets: int = setting(
        Whole("packets", 1, 1_000_000),
        1024,
        "Packets kept per session and direction until they are acknowledged.",
        reason="Some seconds of a busy session: the longest gap after which it can reattach.",
    )
    limit_resend_bytes: int = setting(
        Bytes(1024, 1024**3),
        1024**2,
        "Bytes kept per session and direction until they are acknowledged.",
        reason="A thousand packets of common size; sessions that wait for the same update share its bytes.",
    )
    limit_outbox_packets: int = setting(
        Whole("packets", 1, 10_000_000),
        65_536,
        "Packets that may wait for a slow client before it is closed with a code that lets it resume.",
        reason="One update per topic at most waits, so this is the number of topics a slow client may follow.",
    )
    limit_outbox_bytes: int = setting(
        Bytes(1024, 16 * 1024**3),
        8 * 1024**2,
        "Bytes that may wait for a slow client before it is closed likewise.",
        reason="A hundred slow clients stay below a gigabyte.",
    )
    rate_packets: float = setting(
        Rate("packets", 0),
        2000.0,
        "Packets a client may send, averaged; reading from it pauses above. 0 sets no limit.",
        reason="No single client takes more than a few hundredths of a node.",
    )
    rate_burst: int = setting(
        Whole("packets", 1, 10_000_000),
        4000,
        "Packets a client may send at once after it was quiet.",
        reason="Two seconds' worth; a client that resends a full buffer after a reconnect is not slowed down.",
    )
    new_topic_packets: int = setting(
        Whole("packets", 1, 10_000),
        5,
        "How many packets a publish that creates its topic counts as, in rate_packets and the other rates of packets. "
        "With 1 it counts as any other.",
        reason="Every node that follows its partition has to find the subscriptions that match it, which takes up to a "
        "quarter of a millisecond for each 1,000 selectors made for it: with 400 new topics a second, after 800 at "
        "once, a tenth of a node. A service that starts with 10,000 topics has created them after 23 s.",
    )
    rate_bytes: float = setting(
        Rate("bytes", 0),
        1024.0**2,
        "Bytes of messages of any kind that a client may send, averaged; reading from it pauses above. 0 sets no "
        "limit.",
        reason="8 Mbit/s: 32 of the largest values a second, or 2000 packets of 500 bytes, for which a node needs one "
        "to two hundredths of its time.",
    )
    rate_bytes_burst: int = setting(
        Bytes(1024, 1024**3),
        8 * 1024**2,
        "Bytes that a client may send at once after it was quiet.",
        reason="All that a client may have unanswered by default, 256 of the largest values: a client that "
        "sends them again after a reconnect is not slowed down.",
    )


@dataclass(frozen=True, kw_only=True)
class SharedLimitSettings:
    """What one address, one principal, and all together may use of a node; see [Set limits](../how-to/set-limits.md).

    0 sets no limit. Addresses are limited by default, because their clients may be unauthenticated. Principals are not:
    only the operator knows whether a principal is a person, or an application with all its users.
    """

    limit_connections: int = setting(
        Whole("connections", 0, 10_000_000),
        50_000,
        "Connections of a node; above, new ones are answered 503, and HAProxy tries another node. A process that may "
        "open fewer files accepts fewer: up to 4,096 are reserved for connections without a request, and up to 768 "
        "for the admin port, Redis and the rest.",
        reason="1 to 2 GB of memory. A node raises its own limit of open files as far as the system allows.",
    )
    memory_limit: int | None = optional(
        Bytes(16 * 1024**2, 1024**5),
        "Memory that the process may have. From 85 % of it on, the node accepts no new connections, and gives up "
        "what it keeps for disconnected clients.",
        absent="the least of memory.max of its control group, RLIMIT_AS, and what the machine has",
        reason="The system knows these bounds; set a lower one where other programs share the machine.",
    )
    limit_node_selections: int = setting(
        Whole("selections", 0, 1_000_000_000),
        0,
        "Entries in the lists of selections of all sessions of a node.",
        reason="limit_selections bounds each session; set this if sessions make full use of that.",
    )
    rate_node_packets: float = setting(
        Rate("packets", 0),
        0.0,
        "Packets that all clients of a node may send together; above, reading pauses for the clients that send.",
        reason="rate_packets keeps a single client from harming others; the sum depends on the size of the node.",
    )
    rate_node_publish_bytes: float = setting(
        Rate("bytes", 0),
        0.0,
        "JSON text of values that all clients of a node may publish together; above, as for rate_node_packets.",
        reason="As for rate_node_packets.",
    )
    limit_node_request_bytes: int = setting(
        Bytes(0, 1024**4),
        64 * 1024**2,
        "Bytes of requests of all sessions of a node that may await their reply at once; above, reading pauses for "
        "sessions that have more than an equal share. 0 sets no limit.",
        reason="64 sessions that use all they may. Redis processes as much in a few tenths of a second.",
    )
    limit_node_questions: int = setting(
        Whole("questions", 0, 10_000_000),
        20_000,
        "Questions of all sessions of a node that may await their answer at once; above, further ones are refused with "
        "too_many_questions. 0 sets no limit.",
        reason="Some 10 MB, and more than a node could deliver in the time for which people wait.",
    )
    limit_node_pages: int = setting(
        Whole("pages", 0, 100_000),
        0,
        "Pages of values that a node reads at the same time; above, calls are answered 503 with Retry-After, and "
        "sessions wait. 0 sets no limit.",
        reason="Each is charged to its principal, and takes turns with everything else. Set it where many principals "
        "read pages of very many topics.",
    )
    limit_disconnected: int = setting(
        Whole("sessions", 0, 100_000_000),
        100_000,
        "Disconnected sessions of a node whose windows have not ended, held by it or given back to the grid; above, "
        "the node opens no new sessions. From half of it on, new sessions get at most window_default as their window. "
        "0 sets no limit.",
        reason="Twice limit_connections: all clients may disconnect at once, and return with new sessions.",
    )
    limit_disconnected_bytes: int = setting(
        Bytes(0, 1024**4),
        512 * 1024**2,
        "Memory of a node that disconnected sessions may take, buffers included; above, the node gives up the buffers "
        "of those disconnected for longest, and then its copies. The sessions stay in the grid. 0 sets no limit.",
        reason="A hundred thousand sessions with a few selections, or a thousand that share no update with "
        "others. A body that several sessions wait for counts once.",
    )
    limit_buffer_bytes: int = setting(
        Bytes(0, 1024**4),
        512 * 1024**2,
        "Memory of a node that may be kept for connected clients, unacknowledged or waiting; above, the connections of "
        "those for which most is kept are closed with 4001, so that they resume. What several wait for counts once. "
        "0 sets no limit.",
        reason="As much as disconnected sessions may take. Clients that read keep some kilobytes each.",
    )
    limit_session_bytes: int = setting(
        Bytes(0, 1024**4),
        256 * 1024**2,
        "Bytes of the grid that sessions may take on all nodes together, until their windows end: properties and "
        "selectors, 64 for each selector, 2,048 for each topic partition they published to, and 2,048 for each "
        "session. What would exceed it is refused: new sessions, selections, properties. Likewise what would give "
        "one principal more than is left for all others. 0 sets no limit. The same on all nodes.",
        reason="100,000 sessions with a few selections each. Redis needs up to 320 MiB for it, which fits the 2 GB "
        "of the shipped redis.conf beside all topics. Raise it with maxmemory.",
    )
    limit_address_connections: int = setting(
        Whole("connections", 0, 10_000_000),
        10_000,
        "Connections from one address (of IPv6: one /64 network) to a node; above, new ones are answered 429. If the "
        "process may open fewer files than limit_connections needs, this is less by the same proportion.",
        reason="More than the people of any office behind one address, and a fifth of limit_connections.",
    )
    rate_address_handshakes: float = setting(
        Rate("handshakes", 0),
        500.0,
        "Requests to connect from one address, averaged over 10 s; above, they are answered 429.",
        reason="Five thousand clients behind one address may reconnect in the same moment, and after that about as "
        "many as a node accepts.",
    )
    rate_address_verifications: float = setting(
        Rate("verifications", 0),
        5.0,
        "Credentials that are hashed, or that an external service is asked about, for one address from which wrong "
        "ones came often, limit_exempt or not; others wait for their turn, and are asked to come again after 2 s. 0 "
        "sets no limit.",
        reason="A secret takes up to a fifth of a second to be hashed, so who guesses takes a core at most; people "
        "behind the same address with secrets not verified before go first.",
    )
    rate_address_packets: float = setting(
        Rate("packets", 0),
        0.0,
        "Packets that all clients of one address may send together; above, reading pauses for the clients that send.",
        reason="An address may stand for many people, and each of their connections is limited by rate_packets.",
    )
    rate_address_publish_bytes: float = setting(
        Rate("bytes", 0),
        0.0,
        "JSON text of values that all clients of one address may publish together; above, as for rate_address_packets.",
        reason="As for rate_address_packets.",
    )
    limit_exempt: tuple[Network, ...] = setting(
        Several(Net(), "addresses or networks"),
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        "Addresses and networks to which the limits of one address do not apply.",
        reason="Programs on the node's own machine, a load balancer among them. Name a proxy elsewhere in "
        "trusted_proxies: then the addresses of its clients count, and not its own.",
        absent="none",
    )
    rate_exempt_tls_handshakes: float = setting(
        Rate("handshakes", 0),
        1000.0,
        "Handshakes of TLS from each address of limit_exempt, and from each proxy of trusted_proxies, averaged over "
        "10 s; above, connections are closed before a handshake is computed. 0 sets no limit.",
        reason="Twice what another address may: 10,000 clients behind one proxy may come back in the same moment. With "
        "a certificate of RSA they take less than half of a core.",
    )
    limit_principal_sessions: int = setting(
        Whole("sessions", 0, 10_000_000),
        25_000,
        "Sessions of one principal on a node, connected or not; above, the principal opens no new ones there. Resumed "
        "sessions are not refused, but count.",
        reason="Half of limit_connections: one account alone leaves room for others. A session has at most one "
        "connection, so this limits connections, too.",
    )
    limit_principal_disconnected: int = setting(
        Whole("sessions", 0, 100_000_000),
        50_000,
        "Disconnected sessions of one principal on a node, as for limit_disconnected; above, the principal opens no "
        "new ones there.",
        reason="Half of what a node may have, and five times the users of a large application.",
    )
    limit_principal_disconnected_bytes: int = setting(
        Bytes(0, 1024**4),
        256 * 1024**2,
        "Memory of a node that these sessions may take, as for limit_disconnected_bytes.",
        reason="Half of what all may take: an application with 10,000 users, all disconnected, needs some 50 MB.",
    )
    rate_principal_verifications: float = setting(
        Rate("verifications", 0),
        1.0,
        "The same for one principal that failed often, at each address; wrong secrets shown elsewhere do not count "
        "against it.",
        reason="Who guesses one principal's secret gets one guess a second; the right one gets its turn when it is "
        "shown a few times.",
    )
    limit_principal_buffer_bytes: int = setting(
        Bytes(0, 1024**4),
        256 * 1024**2,
        "Memory of a node that may be kept for the connected clients of one principal, as for limit_buffer_bytes.",
        reason="Half of what all may take: thirty slow clients with as much as each may have, if they share nothing.",
    )
    limit_principal_session_bytes: int = setting(
        Bytes(0, 1024**4),
        128 * 1024**2,
        "Bytes of the grid that the sessions of one principal may take on all nodes together, as for "
        "limit_session_bytes. 0 sets no limit.",
        reason="Half of what all may take: 40,000 sessions with a few selections each.",
    )
    rate_principal_handshakes: float = setting(
        Rate("sessions", 0),
        0.0,
        "Sessions that one principal may open at a node, averaged over 10 s.",
        reason="See above.",
    )
    rate_principal_packets: float = setting(
        Rate("packets", 0),
        0.0,
        "Packets that all sessions of one principal may send to a node together; above, reading pauses for the "
        "sessions that send.",
        reason="See above.",
    )
    rate_principal_publish_bytes: float = setting(
        Rate("bytes", 0),
        0.0,
        "JSON text of values that one principal may publish through a node; above, as for rate_principal_packets.",
        reason="See above.",
    )
    limit_principal_selections: int = setting(
        Whole("selections", 0, 1_000_000_000),
        0,
        "Entries in the lists of selections of all sessions that one principal has on a node.",
        reason="See above.",
    )
    rate_principal_topics: float = setting(
        Rate("topics", 0),
        0.0,
        "New topics that one principal may create through a node, averaged over a minute.",
        reason="See above. Publishes to existing topics do not count.",
    )
    limit_partition_topics: int = setting(
        Whole("topics", 0, 100_000_000),
        100_000,
        "Topics in each of the 64 topic partitions of the grid. The same on all nodes.",
        reason="A node that follows a partition holds all its values in memory: with 1 KB each, 100 MB. Topics of the "
        "same root share a partition; raise topic_depth to spread them before you raise this.",
    )
    limit_partition_bytes: int = setting(
        Bytes(0, 64 * 1024**3),
        8 * 1024**2,
        "Bytes of topics and values, and 128 for each, in each of the 64 topic partitions of the grid. A publish that "
        "would exceed it is refused, unless it makes the value no larger. 0 sets no limit. The same on all nodes.",
        reason="All partitions together hold 512 MiB, which Redis needs up to 640 MiB for: beside stream_bytes that "
        "leaves a third of the 2 GB of the shipped redis.conf for sessions. A node that follows everything needs up to "
        "1.2 GiB for it, which fits the 3 GiB of the shipped containers. Raise it with maxmemory, and with the memory "
        "of the nodes.",
    )
    limit_partition_questions: int = setting(
        Whole("questions", 0, 10_000_000),
        10_000,
        "Questions in each of the 64 topic partitions of the grid whose answers who asked has not yet acknowledged; "
        "above, further ones are refused with too_many_questions. 0 sets no limit. The same on all nodes.",
        reason="As many as Redis answers in some seconds: clients give up what would wait for longer.",
    )
    limit_partition_question_bytes: int = setting(
        Bytes(0, 64 * 1024**3),
        16 * 1024**2,
        "Bytes of these questions and of their answers, and 512 for each; above, further questions are refused with "
        "too_many_questions, and answers are lost with answer_lost. 0 sets no limit. The same on all nodes.",
        reason="As many questions of 1 KB as may be there, or 500 of the largest values. They are forgotten when who "
        "asked has the answer, or 10 s after the deadline. All partitions at once would take a gibibyte: lower it "
        "where many roots are asked about and Redis has little memory.",
    )


@dataclass(frozen=True, kw_only=True)
class StormSettings:
    """What happens when many clients reconnect at the same time; see [Storms](../explanation/storms.md)."""

    admission_rate: float = setting(
        Rate("clients", 0),
        600.0,
        "Clients that a node accepts while it delivers updates. Others wait, returning ones ahead of new ones, or are "
        "answered 503. A node with nothing to deliver accepts clients as fast as it can. 0 sets no limit.",
        reason="A third of a core, at some 0.6 ms for each client. The rest is for connected clients: a node that is "
        "nearly fully loaded delivers late.",
    )
    admission_wait: float = setting(
        Seconds(0, 60),
        1.0,
        "How long a client may wait to be accepted before it is answered 503, with the time after which to try again.",
        reason="Half of the load balancer's timeout server, so that it gets an answer in time.",
    )
    claim_rate: float = setting(
        Rate("sessions", 0),
        10_000.0,
        "Sessions that all nodes together open or take over in the grid; each node takes an equal share. 0 sets no "
        "limit.",
        reason="A third to a half of the capacity of one Redis.",
    )
    claims_at_once: int = setting(
        Whole("handshakes", 0, 100_000),
        64,
        "Handshakes that a node processes at the same time. 0 sets no limit.",
        reason="Enough to keep Redis busy for a round trip, and few enough that their answers, which arrive together, "
        "delay other clients by some milliseconds at most.",
    )
