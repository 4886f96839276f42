from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.topics.selectors import parse_selector
from gateway.core.zones.records import (
    MOST_ENCODED_BYTES,
    MOST_SELECTORS_OF_A_JOIN,
    MOST_URLS,
    InvalidRecord,
    Join,
    JoinDirection,
    Member,
    Membership,
    Record,
    UnreadableRecord,
    Zone,
    ZoneUid,
    check_fingerprints,
    check_hops,
    check_link_urls,
    check_member,
    check_name,
    check_selectors,
    decode_record,
    encode_record,
    zone_key,
)
from gateway.core.zones.routes import ClusterId

KEY = zone_key(b"sixteen bytes at least")
HASH = "ab" * 32
ZONE = Zone(uid=ZoneUid("z1"), name="north", key=KEY, made=1.5, seeds=("wss://a.example:8300",))
MEMBER = Member(
    zone=ZoneUid("z1"),
    cluster=ClusterId("c1"),
    name="south",
    urls=("wss://a.example:1", "wss://[::1]:2"),
    fingerprints=(HASH,),
    revision=7,
)
JOIN = Join(
    name="to-south",
    direction=JoinDirection.OUT,
    selectors=(parse_selector("prices/**"), parse_selector("a/ünïcode ✓")),
    urls=("wss://b.example:8300",),
    fingerprints=(HASH,),
    key=KEY,
    made=2.0,
    most_hops=2,
)
RECORDS: tuple[Record, ...] = (
    ZONE,
    MEMBER,
    replace(MEMBER, left=True, urls=()),
    JOIN,
    Membership(zone=ZoneUid("z1"), made=3.0),
    Membership(zone=None, made=4.0),
)


@pytest.mark.parametrize("record", RECORDS)
def test_what_is_written_is_read(record: Record) -> None:
    encoded = encode_record(record)
    assert float(encoded.partition(b" ")[0]) == record.rank
    assert decode_record(record.row, encoded) == record


def test_fields_of_later_releases_are_ignored() -> None:
    encoded = encode_record(ZONE).replace(b'{"v":1', b'{"later":[1],"v":1')
    assert decode_record(ZONE.row, encoded) == ZONE


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x {}",
        b"nan {}",
        b"1 []",
        b"1 {",
        b'1 {"v":2}',
        b'1 {"v":1,"zone":7,"name":7}',
        b"1 " + b" " * MOST_ENCODED_BYTES,
    ],
)
def test_what_is_no_record_is_refused(record: Record, data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(record.row, data)


@pytest.mark.parametrize(
    "row", ["", "zone", "zone a b", "member z", "join ", "other x", "membership x", "zone " + "x" * 65]
)
def test_what_is_no_name_of_a_record_is_refused(row: str) -> None:
    for record in RECORDS:
        with pytest.raises(UnreadableRecord):
            decode_record(row, encode_record(record))


def test_secrets_and_keys_are_shown_nowhere() -> None:
    assert KEY not in repr(ZONE) + repr(JOIN)
    assert zone_key(b"sixteen bytes at least") == KEY != zone_key(b"sixteen bytes at most.")
    with pytest.raises(InvalidRecord, match="15 bytes"):
        zone_key(b"x" * 15)


@pytest.mark.parametrize(
    "url",
    [
        "ws://a.example:8300",
        "https://a.example:8300",
        "wss://a.example",
        "wss://:8300",
        "wss://a.example:8300/path",
        "wss://a.example:8300?x=1",
        "wss://a.example:99999",
        "wss://user:password@a.example:8300",
        "wss://" + "a" * 600 + ":1",
        "",
    ],
)
def test_links_are_taken_at_places_with_tls_only(url: str) -> None:
    with pytest.raises(InvalidRecord) as raised:
        check_link_urls("urls", [url])
    assert "password" not in str(raised.value)
    with pytest.raises(InvalidRecord):
        check_link_urls("urls", ["wss://a:1"] * (MOST_URLS + 1))


def test_fingerprints_are_taken_as_tools_print_them() -> None:
    assert check_fingerprints("f", [":".join(["AB"] * 32)]) == (HASH,)
    for text in ("ab", HASH + "ab", "zz" * 32):
        with pytest.raises(InvalidRecord):
            check_fingerprints("f", [text])


def test_bounds_of_joins() -> None:
    for texts in ([], ["a//b"], ["$gateway/x"], ["a"] * (MOST_SELECTORS_OF_A_JOIN + 1)):
        with pytest.raises(InvalidRecord):
            check_selectors("selectors", texts)
    for hops in (0, 5):
        with pytest.raises(InvalidRecord):
            check_hops("hops", hops)
    for name in ("", "-a", "a b", "a" * 65, "ä"):
        with pytest.raises(InvalidRecord):
            check_name("name", name)


@pytest.mark.parametrize(
    "changes",
    [{"cluster": ""}, {"cluster": "a b"}, {"zone": "z;1"}, {"revision": 0}, {"revision": 2**41}, {"name": "a b"}],
)
def test_a_member_that_others_tell_of_is_checked(changes: dict[str, str | int]) -> None:
    check_member.cache_clear()
    assert check_member(MEMBER) is MEMBER
    assert check_member(replace(MEMBER)) is MEMBER, "what was right is not looked at again"
    with pytest.raises(InvalidRecord):
        check_member(replace(MEMBER, **changes))  # type: ignore[arg-type]
