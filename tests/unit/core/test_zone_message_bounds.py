"""What a message of a zone link may hold: the longest that honest clusters send fits, and more is not read (P20)."""

from __future__ import annotations

import orjson
import pytest

from gateway.app.zone_links.talk import MEMBERS_AT_ONCE
from gateway.core.topics.selectors import Selector, parse_selector, partitions
from gateway.core.topics.topics import MAX_PATH_BYTES
from gateway.core.types import TopicPath, Version
from gateway.core.zones.compaction import MOST_INTEREST_BYTES, MOST_SELECTORS, compact
from gateway.core.zones.interest import HeardInterest, InterestTeller
from gateway.core.zones.messages import Kind, decode, encode, json_of
from gateway.core.zones.protocol import (
    BATCH_EVENTS,
    HEAD_BYTES,
    MOST_HEARD,
    Events,
    InterestAll,
    Members,
    SentEvent,
    ZoneTooMuch,
)
from gateway.core.zones.records import MOST_ENCODED_BYTES, MOST_MEMBERS, MOST_URLS, Member, ZoneUid
from gateway.core.zones.routes import MOST_HOPS, ClusterId, Place
from gateway.core.zones.stamps import Origin, Stamp
from gateway.core.zones.work import ITEM_WORK, SELECTOR_WORK, json_work, message_work

pytestmark = pytest.mark.promise("P20")


def longest_selectors(name: str) -> set[Selector]:
    """As many as there may be, as long as they may be, of a character that has two bytes in JSON."""
    rest = '"' * (MAX_PATH_BYTES - len(name) - len("/0000/"))
    return {parse_selector(f"{name}/{number:04}/{rest}") for number in range(MOST_SELECTORS)}


def raw(kind: Kind, **fields: object) -> bytes:
    return bytes((kind,)) + orjson.dumps(fields)


def test_a_change_of_all_the_longest_interest_is_no_longer_than_a_message_may_be() -> None:
    teller = InterestTeller()
    for name in ("a", "b"):
        told = compact(longest_selectors(name))
        assert len(orjson.dumps([each.text for each in told])) <= MOST_INTEREST_BYTES
        change = teller.change(told)
        assert change is not None
        assert decode(encode(change)) == change
        whole = InterestAll(teller.revision, tuple(each.text for each in told))
        assert decode(encode(whole)) == whole


def test_interest_of_usual_length_is_told_as_it_is() -> None:
    usual = {parse_selector(f"prices/{number:04}/{'x' * 300}/*") for number in range(MOST_SELECTORS)}
    assert compact(usual) == usual


def test_the_longest_events_are_no_longer_than_a_message_may_be() -> None:
    word = "x" * 64
    longest = SentEvent(
        TopicPath("😀" * (MAX_PATH_BYTES // 4)),
        b"1",
        Origin(ClusterId(word), Version(2**53 - 1)),
        Stamp(2**53 - 1, ClusterId(word)),
        (Place(word),) * (MOST_HOPS + 1),
    )
    message = Events((longest,) * BATCH_EVENTS)
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(raw(Kind.INTEREST_ALL, revision=1, selectors=[7] * (MOST_HEARD + 1)), id="interest"),
        pytest.param(raw(Kind.INTEREST_CHANGE, revision=1, added=["a"], dropped=[7] * (MOST_HEARD + 1)), id="a change"),
        pytest.param(raw(Kind.MEMBERS, members=[7] * (MOST_MEMBERS + 1)), id="members"),
        pytest.param(bytes((Kind.BEAT,)) + b"x" * (HEAD_BYTES + 1), id="a long message"),
        pytest.param(bytes((Kind.EVENTS,)) + (HEAD_BYTES + 1).to_bytes(4) + b"x" * (HEAD_BYTES + 1), id="events"),
    ],
)
def test_more_than_there_may_be_is_refused_before_any_of_it_is_read(data: bytes) -> None:
    # Each of these would be refused for another reason if it were read.
    with pytest.raises(ZoneTooMuch):
        decode(data)


def test_as_many_of_the_longest_members_as_are_told_at_once_fit() -> None:
    url = f"wss://{'x' * 500}:8401"
    largest = Member(
        zone=ZoneUid("z" * 64),
        cluster=ClusterId("c" * 64),
        urls=(url,) * MOST_URLS,
        fingerprints=("ab" * 32,) * MOST_URLS,
    )
    message = Members((largest,) * MEMBERS_AT_ONCE)
    assert decode(encode(message)) == message
    # Nor can there be larger ones: the grid's records are shorter than that.
    assert MEMBERS_AT_ONCE * (MOST_ENCODED_BYTES + 1024) < HEAD_BYTES


def test_work_is_estimated_by_what_is_in_a_message() -> None:
    assert json_work(b'"' + b"x" * 100_000 + b'"') == 0
    assert json_work(b"[" + b"[]," * 999 + b"[]]") == pytest.approx(2000 * ITEM_WORK)
    whole = InterestAll(1, tuple(f"t/{number}" for number in range(1000)))
    data = encode(whole)
    assert message_work(data, whole) == pytest.approx(1000 * SELECTOR_WORK + json_work(json_of(data)))
    # Values of events are charged when they are parsed.
    events = Events((SentEvent(TopicPath("t"), b"[1,2,3,4]", Origin(ClusterId("c"), Version(1)), None),))
    assert message_work(encode(events), events) == message_work(
        encode(Events((events.events[0]._replace(value=b"1"),))), events
    )


def test_which_selectors_reach_a_partition_is_known_without_looking_at_all() -> None:
    heard = HeardInterest(depth=1, most=10)
    everywhere, there, elsewhere = map(parse_selector, ("**", "a/*", "b/*"))
    heard.whole(1, [there, elsewhere])
    (partition,) = heard.partitions - partitions(elsewhere, 1)
    assert heard.selectors_in(partition) == {there}
    heard.whole(2, [there, everywhere])
    assert len(heard.partitions) == 64
    assert heard.selectors_in(partition) == {there, everywhere}
    heard.whole(3, [everywhere])
    assert heard.selectors_in(partition) == {everywhere}
    heard.whole(4, [elsewhere])
    assert heard.partitions == partitions(elsewhere, 1)
    assert heard.selectors_in(partition) == set()
