from __future__ import annotations

from zlib import crc32

import pytest

from gateway.core.topics.topics import (
    MAX_PATH_BYTES,
    MAX_SEGMENTS,
    SESSION_PARTITIONS,
    TOPIC_PARTITIONS,
    parse_topic,
    partition_of,
    segments,
    session_partition,
    topic_partition,
)
from gateway.core.types import SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import InvalidTopic


@pytest.mark.parametrize(
    "text",
    [
        "prices",
        "prices/ACME/bid",
        " / ",
        "$SYS/a",
        "Preise/Zürich/日本/👩‍👩‍👧",
        "a#b/c+d/e?f",
        "/".join(["s"] * MAX_SEGMENTS),
        "x" * MAX_PATH_BYTES,
        "ü" * (MAX_PATH_BYTES // 2),
    ],
)
def test_a_topic_is_kept_as_it_was_written(text: str) -> None:
    assert parse_topic(text) == text


def test_unicode_is_not_normalised() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert parse_topic(composed) != parse_topic(decomposed)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("/", "segment 1 of '/' is empty"),
        ("/prices", "segment 1 of '/prices' is empty"),
        ("prices/", "segment 2 of 'prices/' is empty"),
        ("prices//ACME", "segment 2 of 'prices//ACME' is empty"),
        ("prices/*", "'*' cannot be in it, but is in segment '*'"),
        ("prices/**", "is in segment '**'"),
        ("prices/AC*", "is in segment 'AC*'"),
        ("a\x00", "character 2 is U+0000"),
        ("a\nb", "character 2 is U+000A"),
        ("\x7f", "character 1 is U+007F"),
        ("\x85", "character 1 is U+0085"),
        ("a\u2028", "character 2 is U+2028"),
        ("a\u2029", "character 2 is U+2029"),
        ("a\ud800", "character 2 is U+D800"),
        ("\udfff", "character 1 is U+DFFF"),
        ("/".join(["s"] * (MAX_SEGMENTS + 1)), f"at most {MAX_SEGMENTS} segments, but"),
        ("x" * (MAX_PATH_BYTES + 1), f"at most {MAX_PATH_BYTES} bytes"),
        ("ü" * (MAX_PATH_BYTES // 2 + 1), f"at most {MAX_PATH_BYTES} bytes"),
    ],
)
def test_what_is_not_a_topic_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InvalidTopic) as refused:
        parse_topic(text)
    assert complaint in str(refused.value)
    assert "topic" in str(refused.value)
    assert refused.value.code is ErrorCode.BAD_TOPIC


def test_an_error_message_does_not_repeat_a_flood() -> None:
    with pytest.raises(InvalidTopic) as refused:
        parse_topic("x" * 1_000_000)
    assert len(str(refused.value)) < 200


def test_segments() -> None:
    assert segments(parse_topic("prices/ACME/bid")) == ["prices", "ACME", "bid"]
    assert segments(parse_topic("prices")) == ["prices"]


def test_the_partition_of_a_topic_is_decided_by_its_first_segments() -> None:
    """Fixed values: a change of this function would lose every value in a live grid."""
    assert topic_partition(parse_topic("prices/ACME/bid"), 1) == crc32(b"prices") % 64 == 25
    assert topic_partition(parse_topic("prices"), 1) == 25
    assert topic_partition(parse_topic("prices"), 3) == 25
    assert topic_partition(parse_topic("prices/ACME/bid"), 2) == crc32(b"prices/ACME") % 64
    assert topic_partition(parse_topic("Zürich/x"), 1) == crc32("Zürich".encode()) % 64
    assert partition_of(["prices", "ACME"], 1) == 25


def test_partitions_are_all_used() -> None:
    assert {topic_partition(parse_topic(f"t{n}"), 1) for n in range(1000)} == set(range(TOPIC_PARTITIONS))
    assert {session_partition(SessionId(f"s{n}")) for n in range(1000)} == set(range(SESSION_PARTITIONS))


def test_the_partition_of_a_session() -> None:
    assert session_partition(SessionId("abc")) == crc32(b"abc") % 64


def test_a_partition_needs_a_segment_to_decide_it() -> None:
    with pytest.raises(ValueError, match="at least one segment"):
        topic_partition(parse_topic("prices"), 0)
