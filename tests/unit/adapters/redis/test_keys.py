from __future__ import annotations

import re

import pytest

from gateway.adapters.redis import keys as module
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.core.topics.topics import session_partition
from gateway.core.types import Incarnation, NodeId, NodeRef, SessionId, TopicPath

KEYS = Keys("app")
SESSION = SessionId("s-1")
NODE = NodeRef(NodeId("n1"), Incarnation("a"))


def all_keys() -> list[str]:
    inbox = KEYS.inbox(NODE)
    fixed = [
        KEYS.backups,
        KEYS.grid,
        KEYS.leases,
        KEYS.members,
        KEYS.takeovers,
        KEYS.renewed,
        KEYS.reports,
        KEYS.clocks,
        KEYS.lost,
        KEYS.master,
        KEYS.saved,
    ]
    zones = [KEYS.zones.records, KEYS.zones.news, KEYS.zones.carriers, KEYS.zones.cursors("there/1")]
    zones += [KEYS.zones.interest, KEYS.zones.interest_tellers, KEYS.zones.interest_news]
    tables = [*zones, KEYS.revocations, KEYS.revoked, KEYS.revisions, KEYS.destinations, KEYS.destination_news]
    partitioned = [
        *KEYS.owned,
        *KEYS.ids,
        *KEYS.deadlines,
        *KEYS.ended,
        *KEYS.opened,
        *KEYS.values,
        *KEYS.stream,
        *KEYS.closed,
        *KEYS.removed,
        *KEYS.origins,
        *KEYS.endings,
        *KEYS.ends,
        *KEYS.sizes,
        *KEYS.logs,
        *KEYS.log_marks,
        *KEYS.queues,
        *KEYS.queues_due,
        *KEYS.deliveries,
        *KEYS.durables,
        *KEYS.transactions_due,
        *KEYS.prepared,
        *KEYS.presence,
        *KEYS.presence_due,
        *KEYS.watched,
        *KEYS.journal,
        *KEYS.journal_state,
    ]
    single = [KEYS.session(SESSION), KEYS.receipts(17, SESSION), KEYS.log(17, TopicPath("a/b"))]
    single += [KEYS.consuming(17, SESSION), *KEYS.queue(17, TopicPath("a/b"))[:9]]
    single += [each for each in KEYS.exchange(17, SESSION) if each not in (*single, KEYS.closed[17])]
    single += [KEYS.call_key(SESSION), KEYS.durable("alice")[0], *KEYS.transactions(SESSION)[:2]]
    single += [KEYS.present(17, TopicPath("rooms/7"))]
    hooks = [KEYS.hooks, KEYS.hook_holders]
    return [*fixed, inbox, *tables, *hooks, *partitioned, *single]


def test_names_are_unique_and_begin_with_the_prefix() -> None:
    names = all_keys()
    assert len(set(names)) == len(names)
    assert all(name.startswith("app:{") for name in names)


def test_keys_that_change_together_share_a_hash_tag() -> None:
    partition = session_partition(SESSION)
    tag = f"{{s{partition}}}"
    together = [KEYS.session(SESSION), KEYS.owned[partition], KEYS.deadlines[partition], KEYS.ended[partition]]
    assert all(tag in each for each in together)
    topics = [KEYS.values[17], KEYS.stream[17], KEYS.sizes[17], KEYS.closed[17], KEYS.receipts(17, SESSION)]
    topics += [KEYS.origins[17], KEYS.removed[17], KEYS.logs[17], KEYS.log_marks[17], KEYS.log(17, TopicPath("a/b"))]
    topics += [KEYS.consuming(17, SESSION), *KEYS.queue(17, TopicPath("a/b"))]
    assert all("{t17}" in each for each in topics)
    assert all("{j7}" in each for each in (KEYS.journal[7], KEYS.journal_state[7]))
    assert all(len(re.findall(r"\{[^}]+\}", each)) == 1 for each in all_keys())


def test_every_key_is_documented() -> None:
    assert module.__doc__ is not None
    documented = set(re.findall(r"^``P:\{(?:s17|t17|j7|nodes)\}:([a-z-]+)", module.__doc__, re.MULTILINE))
    assert {re.sub(r"^app:\{\w+\}:", "", name).split(":")[0] for name in all_keys()} == documented


@pytest.mark.parametrize("prefix", ["a{b", "a}b", "{x}"])
def test_a_prefix_with_braces_would_take_the_place_of_the_hash_tag(prefix: str) -> None:
    with pytest.raises(ValueError, match="braces"):
        Keys(prefix)


def test_short_hashes_are_short_and_do_not_contain_the_id() -> None:
    assert len(short_hash(SESSION)) == 16
    assert short_hash(SESSION) != short_hash(SessionId("s-2"))
    assert short_hash(SESSION) == short_hash(SESSION)
