"""Every key of the grid: name, type, content, who writes it, when it goes away.

Keys that change together share a hash tag, the part in braces, so that on Redis Cluster they share a slot and one
script can change them in one step. Scripts touch only keys that are passed to them.

===============================  ======  ==========================================================================
key                              type    content
===============================  ======  ==========================================================================
``P:{s17}:session:<id>``         hash    One session; fields below. Written by its owner, by claims and by reapers;
                                         deleted when it ends. No time to live, and nothing is written while it is idle.
``P:{s17}:owned``                zset    ``<owner> <id>`` of each connected session, all with score 0, so that the
                                         sessions of one node incarnation are a range by name. Changes with the session.
``P:{s17}:deadlines``            zset    id of each disconnected or ending session → when a reaper may end it, in
                                         milliseconds of the time of the grid. Changes with the session.
``P:{s17}:ids``                  zset    id of each session, all with score 0, so that sessions can be listed page by
                                         page. Written when a session is, deleted with it.
``P:{s17}:ended``                zset    ``<reason>:<short hash of the id>`` → when to forget it. Lets a refusal say
                                         "closed", "expired" or "revoked" for one window; bounded; expires as a whole.
``P:{s17}:call-key:<name>``      string  Fingerprint of the first body that came with an idempotency key, of a call by
                                         HTTP. Expires after an hour, as what was published under it is forgotten.
``P:{s17}:opened``               string  ``seal`` of the newest generation that was opened here. Written by adoption;
                                         stays. Where it is another one, what is not there was lost and has not ended.
``P:{s17}:transactions:<id>``    hash    Of a session: number of each transaction → its state, turn, request of its
                                         commit, times, sizes and outcome (``transactions.lua``). Written by its owner;
                                         what is over goes when its client knows it, and all with the session, unless a
                                         commit is under way: then as soon as that is finished.
``P:{s17}:operations:<id>``      hash    Of a session: ``<number>.<request>`` → an operation of a transaction that is
                                         not over, by who asked for it. As the transactions.
``P:{s17}:transactions-due``     zset    session → when the first of its transactions is to be looked after (ms). As the
                                         transactions.
``P:{t17}:values``               hash    topic → ``<version> <generation>-<sequence> <value>``; without a value it was
                                         removed. The empty topic → ``<version>.0<bytes>``: that those of new topics
                                         must be above, and bytes of all values in 15 digits; ``scripts/sizes.lua``.
                                         Written by publishes and removals; stays.
``P:{t17}:sizes``                hash    ``block``, bytes of the newest part of the stream; ``marks`` of its older
                                         parts; ``values``, bytes of values when that was last looked at. Written by
                                         publishes and removals; stays. Deleted by hand, the values are counted anew.
``P:{t17}:removed``              zset    removed topic → when the removal may be forgotten. Written by removals.
``P:{t17}:origins``              hash    Of each topic of which an event has left for another cluster, or has come from
                                         one: ``<mark>|<cluster> <ranges>;…``, and of the empty topic
                                         ``<link> <term>;…`` (``scripts/origins.lua``). Goes when a removed topic is
                                         forgotten; the empty topic stays.
``P:{t17}:endings``              hash    topic → ``<when (ms)> <generation>-<sequence>`` of a value that ends, as its
                                         publish; ``endings.lua``. Written with the value; deleted when its time is
                                         over, also where another value has taken its place meanwhile.
``P:{t17}:ends``                 zset    topic → when its value ends (ms of the time of the grid). As ``endings``.
``P:{t17}:stream``               stream  ``<generation>-<sequence>`` → ``[topic, "<version> <value>"]``; of a restored
                                         value also ``["event", <id of its publish>]``, and behind that of one that
                                         ends ``["ends", <when (ms)>]``, of one of another cluster
                                         ``["event", <its own id>, "zone", <how it came>]``. A value that ends has its
                                         own id as ``event``. Entry 0 of each generation is a marker with an empty
                                         topic. Trimmed to about ``stream_length`` entries; stays.
``P:{t17}:log:<topic>``           stream  History of a topic: ``<generation>-<sequence>`` of the last event that was
                                         published in one step → ``[<ms> <id of the event before the first of them>,
                                         "<version> <value>"]`` of the last, and ``[<sequence>, "<version> <value>"]``
                                         of each before it. Written by publishes and removals; cut by them and by
                                         sweeps; deleted when the topic has no history any more, or is forgotten.
``P:{t17}:logs``                 hash    topic → what was appended to its log since its last mark, as events * 2^32 +
                                         bytes; ``scripts/logs.lua``. As the logs.
``P:{t17}:log-marks``            hash    topic → ``<id> <events> <bytes>;`` of each complete block of its log. The empty
                                         topic → bytes of all of them, and the newest event of all logs that were
                                         deleted with their topic. As the logs; the empty topic stays.
``P:{t17}:receipts:<session>``   list    ``<epoch> <request> <version> <event> <settled>`` of a session's publishes, by
                                         request. Trimmed when settled; deleted when the session ends, and should that
                                         be missed: expires eight days after the last, beyond every window. Of a session
                                         that the grid does not hold (replication off): an hour after it.
``P:{t17}:closed``               zset    short hash of each ended session that published here → when to forget it. Keeps
                                         a delayed publish out for one window, and ten minutes at least; bounded, and
                                         expires as a whole an hour after the last of them.
``P:{t17}:queue:<queue>``        hash    Of a queue: ``bytes`` of its messages, ``dead`` of dead letters, ``turn``,
                                         the newest tag, ``sent``, messages that were ever put into it, and ``holder``,
                                         the consumer that an exclusive one serves; of one that was declared also its
                                         ``owner``, a session, or ``source``, ``fed`` and ``used``: the shared
                                         subscription that it is of, up to where its events
                                         have become messages, and when it was opened, or
                                         its last consumer left. This and the next eight
                                         are written by each step of the queue
                                         (``queue.lua``), and deleted when it has neither
                                         messages nor consumers, or, if it was declared,
                                         with its session or subscription.
``P:{t17}:queue-messages:<q>``   hash    id → ``<sent> <expires> <bytes of headers> <headers><value>``.
``P:{t17}:queue-ready:<q>``      zset    id → id, of messages that wait for a consumer.
``P:{t17}:queue-timers:<q>``     zset    ``r<id>`` (delayed), ``e<id>`` (expires), ``d<id>`` (a dead letter goes),
                                         ``a<member of held>`` (is taken back) → when.
``P:{t17}:queue-held:<q>``       zset    ``<session> <tag> <id>`` of each message that somebody holds, all with score 0;
                                         with ``<session>~<number>`` what a transaction holds that is being prepared.
``P:{t17}:queue-consumers:<q>``  hash    session → ``<epoch> <credit> <held> <seen> <joined>``.
``P:{t17}:queue-idle:<q>``       zset    consumer with credit left → the tag that it was given last.
``P:{t17}:queue-dead:<q>``       zset    id of each dead letter → since when, in milliseconds, with
                                         a fraction that has those of one millisecond in order.
``P:{t17}:queue-notes:<q>``      hash    id → ``<failed deliveries> <reason>``, of what was given to somebody before.
``P:{t17}:queues``               hash    queue → its bounds; the empty name → ``<generation> <newest id of a message>``.
                                         Written by each step of a queue; stays.
``P:{t17}:queues-due``           zset    queue → when the first of its timers is over (ms). As the queue.
``P:{t17}:deliveries``           stream  ``<generation>-<sequence>`` → ``[queue, "<session> <epoch> <tag> <id> …"]``:
                                         who was given what. Trimmed to about 10,000 entries; stays.
``P:{t17}:consuming:<session>``  hash    queue → empty, of each queue that the session consumes from, and ``/[principal,
                                         name]`` → empty, of each durable subscription that it uses, and ``?/`` → empty
                                         if it asked or handled questions there, and a line break with the path of each
                                         tree that it is a member of → empty, and a line break → the highest epoch that
                                         said so; deleted with it.
``P:{t17}:handlers``             hash    session → what it handles: its epoch, how many questions it has and takes, its
                                         selectors (``exchange.lua``). This and the next ten are written by each step
                                         of questions and answers. Deleted when the session ends.
``P:{t17}:handler-order``        zset    For each selector those who handle it, the one with the fewest questions
                                         first, all with score 0; and likewise for each selector and principal.
``P:{t17}:handler-selectors``    hash    selector → how many sessions handle it.
``P:{t17}:questions``            hash    ``<asker> <number>`` → state, deadline and handler of a question. Deleted when
                                         its client knows the answer, ten seconds after its time is over, or with the
                                         asker.
``P:{t17}:question-texts``       hash    the same → what its handler is given, until it is over.
``P:{t17}:question-timers``      zset    the same → when something is due (ms).
``P:{t17}:questions-held``       zset    ``<handler> <tag> <asker> <number>`` of what a handler has, all with score 0.
``P:{t17}:questions-asked``      zset    ``<asker> <number>``, all with score 0.
``P:{t17}:answers``              hash    the same → how the question ended. As the question.
``P:{t17}:exchange-state``       hash    generation, newest tag, bytes, and the revision of the selectors. Stays.
``P:{t17}:exchanges``            stream  ``<generation>-<sequence>`` → ``["?", <given to whom>]`` or ``["!", <which is
                                         over>]``. Trimmed to about 10,000 entries; stays.
``P:{t17}:durable:<principal>``  hash    name → ``<life (ms)> <made (ms)> <session, -, + or !> <epoch> <position or ->
                                         <selector>`` of each durable subscription of a principal, in the partition that
                                         the principal decides. Written by who uses it; deleted when it is removed or
                                         has not been used for its life.
``P:{t17}:durables``             zset    ``[principal,name]`` (JSON) of each of them → when it is forgotten (ms), or
                                         2^53 - 1 while a session uses it. As above.
``P:{t17}:prepared``             hash    ``<session> <number>`` of a transaction → ``<turn> <when (ms)>`` and its
                                         queues, one a line. On a Redis Cluster, from when its part in this partition is
                                         prepared until it is executed or undone; what nobody finishes is found by
                                         whoever looks after the partition.
``P:{t17}:present:<tree>``       hash    Of a tree of topics with presence: session → ``1`` if there is a topic of it,
                                         else ``0`` and what is told of it. Written when sessions subscribe and end;
                                         gone with the last member.
``P:{t17}:presence``             hash    tree → ``<members that are listed> <when its count was told (ms)>``. As above.
``P:{t17}:presence-due``         zset    tree → when its count is to be told (ms), later than at once. As above.
``P:{t17}:watched``              string  ``<until when somebody watches trees with presence (ms)> <since when (ms)>
                                         <1 if all is told of them, else 0>``. Written by nodes of those who do; stays.
``P:{nodes}:grid``               hash    ``run_id`` of the Redis processes that are the grid, ``generation`` adopted for
                                         them, its ``seal`` (``<generation>.<random>``: no two grids share one), the
                                         generation that is ``opened`` in every partition, when writes were ``lost``
                                         for the last time, ``shift`` of the clock of Redis against the time of the
                                         grid (both ms; ``clock.py``), the node ``shift_by`` which it was recorded, when
                                         an ``outage_over`` was told by who had been cut off, has waited or found that
                                         nobody renewed, ``term`` of the newest lease,
                                         ``master_term`` of the newest master,
                                         ``revision`` of the revocations, ``destination_revision``, ``zone_revision``,
                                         ``interest_revision``, ``carrier_term`` of the newest carrier of a link, and
                                         the id of the ``cluster``, which nodes say to each other. Written by adoption,
                                         joining, and whoever changes what is counted, and the last one by who first
                                         asks for it; stays.
``P:{nodes}:leases``             zset    node incarnation → end of its lease. Removed by leaving or a finished takeover.
``P:{nodes}:members``            hash    node incarnation → ``<length of its lease in ms> <term>``. As the lease.
``P:{nodes}:takeovers``          hash    expired incarnation → ``<end of the right (ms)> <who has it> [<stage> <step>
                                         <sessions> <generation>]``, ``-`` in the place of who has it while what is
                                         transient is left alone (``takeovers.lua``). Deleted when that is cleaned up,
                                         or the node joins again.
``P:{nodes}:renewed``            string  when any node last took or renewed a lease; tells an outage. Stays.
``P:{nodes}:saved``              hash    node incarnation → up to when (ms) all that happened to its sessions is in the
                                         grid. Written when it joins and renews; as the lease.
``P:{nodes}:master``             string  ``<node incarnation> <term>`` of the master. Written by its own renewal when
                                         there is none; deleted by whoever finds its lease over, and when it yields.
``P:{nodes}:clocks``             hash    node incarnation → ``<what the clock of Redis said when it last fitted> <shift
                                         by which it did> <what it said when the node began to follow it by that shift>
                                         <how long it had followed it>``, in milliseconds; ``clock.py``. As the lease.
``P:{nodes}:reports``            hash    node incarnation → what it tells of itself (JSON). As the lease.
``P:{nodes}:lost``               hash    node incarnation that died and was taken over → ``<when its lease ended (ms)>
                                         <its last report (JSON)>``. Written by who finishes the takeover; for people
                                         alone. Bounded; each entry is forgotten after an hour, and expires as a whole.
``P:{nodes}:backups``            hash    node incarnation → ``<how long it is kept without the node (ms)> <when it is
                                         forgotten (ms), 0 while the node has a lease> <which node has copies of its
                                         sessions, how, and of how many (JSON)>``. Written by the node, while its lease
                                         holds; outlives it by its longest window, as the copies do. Bounded, and
                                         expires as a whole when no such node has a lease.
``P:{nodes}:inbox:<node>``       stream  ``["claimed", "<session> <epoch> <owner>"]`` told to a node. As the lease.
``P:{nodes}:revocations``        hash    ``<kind>:<value>`` → ``<made> <until or -> <reason>``, times in seconds since
                                         1970. Written by whoever revokes; nodes delete those that are over.
``P:{nodes}:revoked``            zset    the same names, all with score 0, so that they can be read in pages. As above.
``P:{nodes}:revisions``          stream  ``<revision>-0`` → ``[name, "<made> …"]``, or ``[name, ""]`` of one that is no
                                         more. Revisions follow without a hole; trimmed to about 1,000; stays.
``P:{nodes}:destinations``       hash    ``<origin> <selector>`` → ``<made> <what it is (JSON)>``, time in seconds since
                                         1970. Written by administrators and by nodes that read their file; bounded.
``P:{nodes}:destination-news``   stream  ``<revision>-0`` → ``[name, "<made> …"]``, or ``[name, ""]`` of one that is no
                                         more. As ``revisions``.
``P:{nodes}:zones``              hash    ``zone <uid>``, ``member <uid> <cluster>``, ``join <name>``, ``membership`` →
                                         ``<rank> <what it is (JSON)>`` (``gateway/core/zones/records.py``). Written by
                                         administrators, and of members by links; bounded.
``P:{nodes}:zone-news``          stream  ``<revision>-0`` → ``[name, "<rank> …"]``, or ``[name, ""]`` of one that is no
                                         more. As ``revisions``.
``P:{nodes}:interest``           hash    ``<node incarnation> <selector>`` → ``1``, of what the node's sessions select,
                                         compacted. Written by the node while the cluster is in a zone; outlives it by
                                         the longest window of its sessions.
``P:{nodes}:interest-tellers``   hash    node incarnation → ``<how long its interest outlives it (ms)> <when it ends
                                         (ms), 0 while it has a lease> <selectors>``. With its interest.
``P:{nodes}:interest-news``      stream  ``<revision>-0`` → ``["<node incarnation> <selector>", "1"]``, or ``[…, ""]``.
                                         As ``revisions``.
``P:{nodes}:carriers``           hash    link, or share of one → ``<node incarnation> <term> <until (ms)>`` of who has
                                         it. Written by that node; deleted when it gives it back, or by who next takes
                                         a link after its time.
``P:{nodes}:cursors:<link>``     hash    topic partition → ``<generation>-<sequence>`` up to where a link has come; the
                                         empty partition → term of its carrier. Deleted when the link is no more.
``P:{nodes}:hook-holders``       hash    hook → ``<node incarnation> <term> <until (ms)>`` of who delivers for it. As
                                         the carriers, whose terms these are, too.
``P:{nodes}:hooks``              hash    hook → what is said of it (JSON, ``gateway/core/hooks/status.py``), and
                                         ``again <hook>`` → ``1`` if it is to be tried at once. Written by who delivers
                                         and by administrators; deleted when the hook is forgotten.
``P:{j7}:journal``               stream  ``<generation>-<sequence>`` → ``["events", <JSON, one event a line>, "count",
                                         <how many>, "total", <how many in the stream so far>]``. Appended to by nodes,
                                         trimmed by the reader when it has committed, and by the cap ``journal_length``;
                                         stays.
``P:{j7}:journal-state``         hash    Beside the stream; fields below. Stays.
===============================  ======  ==========================================================================

Fields of a session: ``principal``, ``properties`` (JSON), ``s:<selector>`` for each entry of the list of selections
(its sign, ``+`` or ``-``, and its rank, which grows along the list), ``rank`` (the highest one given; a node of the
first release wrote ``selections`` in place of these, a JSON array of all), ``window`` (s), ``owner``, ``epoch``,
``generation``, ``confirmed``, ``attempt``, ``connected`` (``1`` or ``0``), ``partitions`` (topic partitions that may
hold receipts, comma-separated), ``previous`` (owner before the last claim), ``before`` (owner before that one, missing
until the first claim), ``term`` (of the lease under which the owner took it), what the credentials gave: ``roles`` and
``principal_properties`` (JSON), ``credential_expires`` (seconds since 1970), ``credential`` (its id), and what it
handles: ``handlers`` (JSON: selector → concurrency), each empty for nothing and missing in what an older node wrote;
and, once it is being ended, ``ended`` (the reason), and of one with wills (its
property ``$wills``) also ``ended_as`` (for which of them that counts) and ``executed`` (they are).

Fields of the state of a journal stream: ``incarnation`` (random; another one when the grid had lost the stream),
``producer:<incarnation of a node>`` (``<number of its last batch> <when, in ms>``; forgotten a day after the last one),
``events`` (how many the stream ever had), ``lost`` (events that the cap cut before the reader had committed them),
``unclaimed`` (events that it cut while nobody had ever committed, and no hook was there); of each event hook
``hook:<name>`` (``<term> <incarnation> <id>[.<events>] <events passed>``, its cursor; ``hook_read.lua``), and ``hooks``
(how many these are); and, written by the reader: ``reader`` (its name) and ``committed`` (id up to which it needs
nothing any more).
"""

from __future__ import annotations

import hashlib
from typing import Final

from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.topics.topics import SESSION_PARTITIONS, TOPIC_PARTITIONS, principal_partition, session_partition
from gateway.core.types import NodeRef, SessionId, TopicPath

_SHORT_HASH_BYTES: Final = 8
"""Of a session id, in records of ended sessions: with 10,000 of them in a partition, two share one with probability
10^-12, and all that follows is a refusal with the wrong reason."""


_QUEUE_PARTS: Final = (
    "queue",
    *(f"queue-{part}" for part in ("messages", "ready", "timers", "held", "consumers", "idle", "dead", "notes")),
)
"""Beginnings of the names of a queue's own keys, in the order in which scripts take them."""

_EXCHANGE_PARTS: Final = (
    *("handlers", "handler-order", "handler-selectors", "questions", "question-texts", "question-timers"),
    *("questions-held", "questions-asked", "exchange-state", "exchanges", "answers"),
)
"""Names of what questions and answers are kept in, in the order in which scripts take them."""

_EXCHANGES: Final = _EXCHANGE_PARTS.index("exchanges")
"""Place of the stream among them."""

NODES_TAG: Final = "nodes"
"""Hash tag of what belongs to no partition."""

SESSION_TAGS: Final = tuple(f"s{number}" for number in range(SESSION_PARTITIONS))
"""Hash tags of the session partitions."""

TOPIC_TAGS: Final = tuple(f"t{number}" for number in range(TOPIC_PARTITIONS))
"""Hash tags of the topic partitions."""

JOURNAL_TAGS: Final = tuple(f"j{number}" for number in range(JOURNAL_PARTITIONS))
"""Hash tags of the partitions of the journal."""

TAGS: Final = (NODES_TAG, *SESSION_TAGS, *TOPIC_TAGS, *JOURNAL_TAGS)
"""All hash tags."""


class ZoneKeys:
    """Names of the keys of zones.

    Args:
        beginning: what they begin with.
    """

    def __init__(self, beginning: str) -> None:
        self.records = f"{beginning}zones"
        self.news = f"{beginning}zone-news"
        self.interest = f"{beginning}interest"
        self.interest_tellers = f"{beginning}interest-tellers"
        self.interest_news = f"{beginning}interest-news"
        self.carriers = f"{beginning}carriers"
        self._cursors = f"{beginning}cursors:"

    def cursors(self, link: str) -> str:
        """Name the hash of how far a link has come."""
        return f"{self._cursors}{link}"


class Keys:
    """Names of all keys below one prefix.

    Args:
        prefix: what they begin with, so that several gateways can share a Redis. Must not contain braces, which would
            take the place of the hash tag.

    Raises:
        ValueError: there are braces in *prefix*.
    """

    def __init__(self, prefix: str) -> None:  # noqa: PLR0915 - a name for each kind of key
        if "{" in prefix or "}" in prefix:
            raise ValueError(f"the key prefix {prefix!r} must not contain braces")
        self._prefix, self.grid = prefix, f"{prefix}:{{nodes}}:grid"
        self.leases = f"{prefix}:{{nodes}}:leases"
        self.members = f"{prefix}:{{nodes}}:members"
        self.takeovers = f"{prefix}:{{nodes}}:takeovers"
        self.clocks = f"{prefix}:{{nodes}}:clocks"
        self.reports = f"{prefix}:{{nodes}}:reports"
        self.lost = f"{prefix}:{{nodes}}:lost"
        self.backups = f"{prefix}:{{nodes}}:backups"
        self.master = f"{prefix}:{{nodes}}:master"
        self.renewed = f"{prefix}:{{nodes}}:renewed"
        self.saved = f"{prefix}:{{nodes}}:saved"
        self._inbox = f"{prefix}:{{nodes}}:inbox:"
        nodes = f"{prefix}:{{nodes}}:"
        self.revocations, self.revoked, self.revisions = f"{nodes}revocations", f"{nodes}revoked", f"{nodes}revisions"
        self.destinations, self.destination_news = f"{nodes}destinations", f"{nodes}destination-news"
        self.hooks, self.hook_holders = f"{nodes}hooks", f"{nodes}hook-holders"
        self.zones = ZoneKeys(nodes)
        sessions = [f"{prefix}:{{{tag}}}:" for tag in SESSION_TAGS]
        topics = [f"{prefix}:{{{tag}}}:" for tag in TOPIC_TAGS]
        self.owned = tuple(f"{each}owned" for each in sessions)
        self.deadlines = tuple(f"{each}deadlines" for each in sessions)
        self.ids = tuple(f"{each}ids" for each in sessions)
        self.ended = tuple(f"{each}ended" for each in sessions)
        self.opened = tuple(f"{each}opened" for each in sessions)
        self._session = tuple(f"{each}session:" for each in sessions)
        self._call_key = tuple(f"{each}call-key:" for each in sessions)
        self._transactions = tuple(f"{each}transactions:" for each in sessions)
        self._operations = tuple(f"{each}operations:" for each in sessions)
        self.transactions_due = tuple(f"{each}transactions-due" for each in sessions)
        self.values = tuple(f"{each}values" for each in topics)
        self.stream = tuple(f"{each}stream" for each in topics)
        self.sizes = tuple(f"{each}sizes" for each in topics)
        self.removed = tuple(f"{each}removed" for each in topics)
        self.origins = tuple(f"{each}origins" for each in topics)
        self.endings, self.ends = (tuple(f"{each}{part}" for each in topics) for part in ("endings", "ends"))
        self.closed = tuple(f"{each}closed" for each in topics)
        self.logs = tuple(f"{each}logs" for each in topics)
        self.log_marks = tuple(f"{each}log-marks" for each in topics)
        self._log = tuple(f"{each}log:" for each in topics)
        self._receipts = tuple(f"{each}receipts:" for each in topics)
        self.queues = tuple(f"{each}queues" for each in topics)
        self.queues_due = tuple(f"{each}queues-due" for each in topics)
        self.deliveries = tuple(f"{each}deliveries" for each in topics)
        self.durables = tuple(f"{each}durables" for each in topics)
        self._durable = tuple(f"{each}durable:" for each in topics)
        self.presence, self.presence_due = (
            tuple(f"{each}{part}" for each in topics) for part in ("presence", "presence-due")
        )
        self.watched = tuple(f"{each}watched" for each in topics)
        self._present = tuple(f"{each}present:" for each in topics)
        self.prepared = tuple(f"{each}prepared" for each in topics)
        self._consuming = tuple(f"{each}consuming:" for each in topics)
        self._queue = tuple(tuple(f"{each}{part}:" for part in _QUEUE_PARTS) for each in topics)
        self._exchange = tuple(tuple(f"{each}{part}" for part in _EXCHANGE_PARTS) for each in topics)
        self.journal = tuple(f"{prefix}:{{{tag}}}:journal" for tag in JOURNAL_TAGS)
        self.journal_state = tuple(f"{each}-state" for each in self.journal)

    def session(self, session: SessionId) -> str:
        """Name the hash of a session."""
        return self._session[session_partition(session)] + session

    def call_key(self, publisher: SessionId) -> str:
        """Name what the idempotency key of a call is bound to."""
        return self._call_key[session_partition(publisher)] + publisher

    def transactions(self, session: SessionId) -> tuple[str, str, str]:
        """Name the hashes of a session's transactions and of their operations, and the set of what is overdue."""
        partition = session_partition(session)
        return (
            self._transactions[partition] + session,
            self._operations[partition] + session,
            self.transactions_due[partition],
        )

    def receipts(self, partition: int, session: SessionId) -> str:
        """Name the list of a session's receipts in a topic partition."""
        return self._receipts[partition] + session

    def log(self, partition: int, topic: TopicPath) -> str:
        """Name the stream of a topic's history."""
        return self._log[partition] + topic

    def consuming(self, partition: int, session: SessionId) -> str:
        """Name the hash of the queues in a topic partition that a session consumes from."""
        return self._consuming[partition] + session

    def present(self, partition: int, tree: str) -> str:
        """Name the hash of the members of a tree."""
        return self._present[partition] + tree

    def durable(self, principal: str) -> tuple[str, str]:
        """Name the hash of a principal's durable subscriptions, and the set of those of its partition."""
        partition = principal_partition(principal)
        return self._durable[partition] + principal, self.durables[partition]

    def queue(self, partition: int, queue: TopicPath) -> tuple[str, ...]:
        """Name the keys of a queue in the order of ``queue.lua``, those of its partition at the end."""
        shared = (self.queues[partition], self.queues_due[partition], self.deliveries[partition])
        return (*(each + queue for each in self._queue[partition]), *shared)

    def exchange(self, partition: int, session: SessionId) -> tuple[str, ...]:
        """Name the keys of the questions of a partition, for a step of a session, in the order of ``exchange.lua``."""
        *shared, answers = self._exchange[partition]
        mine = (self.consuming(partition, session), answers, self.receipts(partition, session))
        return (*shared, *mine, self.closed[partition])

    def exchanges(self, partition: int) -> str:
        """Name the stream of what happens to questions in a partition."""
        return self._exchange[partition][_EXCHANGES]

    def probe(self, tag: str) -> str:
        """Name a key of a hash tag that is never there: a master that gives its slot away redirects who asks for it."""
        return f"{self._prefix}:{{{tag}}}:never"

    @staticmethod
    def tag(key: str) -> str:
        """Tell the hash tag of a key of this class."""
        # The prefix has no braces, so that the first ones are those of the tag.
        return key[key.index("{") + 1 : key.index("}")]

    def inbox(self, node: NodeRef) -> str:
        """Name the stream of what others tell a node."""
        return f"{self._inbox}{node}"


def short_hash(session: SessionId) -> str:
    """Shorten a session id to what is remembered of it after its end."""
    return hashlib.blake2b(session.encode(), digest_size=_SHORT_HASH_BYTES).hexdigest()
