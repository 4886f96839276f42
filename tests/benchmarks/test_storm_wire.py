"""The storm client's frames, values, pictures: what it sends is right, and what is wrong it notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cases.base import Row
from benchmarks.plots import PICTURES, Series, draw, series_of, slope
from benchmarks.storm import values, wire

MASK_AT = {2: 2, 126: 4, 127: 10}


def unmasked(frame: bytes) -> bytes:
    size = frame[1] & 0x7F
    start = MASK_AT.get(size, 2)
    mask, body = frame[start : start + 4], frame[start + 4 :]
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(body))


SIZES = st.one_of(st.integers(0, 300), st.sampled_from([65_535, 65_536, 70_000]))
"""Around the lengths at which the head of a frame grows."""


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=200), SIZES.filter(lambda size: size <= 65_536))
def test_a_frame_holds_its_payload_masked(begin: bytes, size: int) -> None:
    payload = begin[:size].ljust(size, b"x")
    frame = wire.frame(payload)
    assert frame[0] == 0x81
    assert frame[1] & 0x80
    assert unmasked(frame) == payload


def test_a_payload_that_no_node_accepts_is_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        wire.frame(bytes(65_537))


def server_frame(payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes([0x81, size]) + payload
    if size < 65_536:
        return bytes([0x81, 126]) + size.to_bytes(2, "big") + payload
    return bytes([0x81, 127]) + size.to_bytes(8, "big") + payload


@settings(deadline=None)
@given(st.lists(SIZES, max_size=4), st.integers(1, 5_000))
def test_frames_are_read_however_they_are_cut(sizes: list[int], step: int) -> None:
    payloads = [b"x" * size for size in sizes]
    stream = b"".join(map(server_frame, payloads))
    step = max(step, len(stream) // 1_000)
    received = bytearray()
    found: list[bytes] = []
    for start in range(0, len(stream), step):
        received += stream[start : start + step]
        found += [payload for opcode, payload in wire.read_frames(received) if opcode == wire.Opcode.TEXT]
    assert found == payloads
    assert not received


@pytest.mark.parametrize("head", [b"\x01\x00", b"\x81\x80"])
def test_a_fragment_or_a_masked_frame_of_a_server_is_an_error(head: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.read_frames(bytearray(head))


def test_an_upgrade_is_taken_off_and_a_refusal_is_an_error() -> None:
    accepted = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )
    received = bytearray(accepted[:-1])
    assert not wire.read_upgrade(received)
    received += accepted[-1:] + b"rest"
    assert wire.read_upgrade(received)
    assert received == b"rest"
    for wrong in (b"HTTP/1.1 503 No\r\n\r\n", accepted.replace(b"s3pP", b"xxxx")):
        with pytest.raises(wire.WireError):
            wire.read_upgrade(bytearray(wrong))


@given(st.integers(1, 10**9), st.integers(0, 2**63))
def test_a_value_reads_as_it_was_made(sequence: int, nanoseconds: int) -> None:
    value = values.make(sequence, nanoseconds)
    assert len(value) + 2 == values.VALUE_BYTES
    assert values.read(value) == (sequence, nanoseconds)


@pytest.mark.parametrize("change", [lambda v: v[:-1], lambda v: v[:-1] + "!", lambda v: "9" + v, lambda _: 7])
def test_a_changed_value_is_noticed(change: Callable[[str], object]) -> None:
    with pytest.raises(values.CorruptValue):
        values.read(change(values.make(12, 34)))


def test_the_slope_of_linear_and_constant_growth() -> None:
    assert slope([(10, 5), (100, 50), (1_000, 500)]) == pytest.approx(1)
    assert slope([(10, 5), (1_000, 5)]) == pytest.approx(0)
    with pytest.raises(ValueError, match="above 0"):
        slope([(1, 0), (2, 1)])
    with pytest.raises(ValueError, match="two sizes"):
        slope([(1, 1), (1, 2)])


def test_a_picture_is_drawn_from_the_rows_of_a_run(tmp_path: Path) -> None:
    picture = PICTURES[0]
    rows = [
        Row("growth", f"{size:,} stored sessions", contestant, {"claim_server": 2.0 * size})
        for size in (100, 1_000, 10_000)
        for contestant in ("gateway", "other")
    ]
    found = series_of(picture, [*rows, replace(rows[0], variant="5 selections")])
    assert found == [Series("node", [(100.0, 200.0), (1_000.0, 2_000.0), (10_000.0, 20_000.0)])]
    draw(tmp_path / "deep" / "a.svg", title="t", size="s", value="v", series=found)
    draw(tmp_path / "b.svg", title="t", size="s", value="v", series=found)
    text = (tmp_path / "deep" / "a.svg").read_text()
    assert "grows as n^1.00" in text
    assert text == (tmp_path / "b.svg").read_text()
