"""Bytes that are no export, or not as they were written, are refused with one error, and nothing else comes of them."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.session.export import export, restore
from gateway.core.stream.byte_form import join, part, seal, unseal
from gateway.core.wire.errors import InvalidExport
from tests.support.session_twins import lived

NOW: Final = 192.0


EXPORTED: Final = export(lived().first, NOW)
MACHINE, SESSION = part(unseal(EXPORTED))


def tried(data: bytes) -> None:
    """Restore a session of bytes that may be wrong; what comes of it has to be whole."""
    try:
        restored = restore(data, NOW)
    except InvalidExport:
        return
    again = export(restored, NOW)
    assert export(restore(again, NOW), NOW) == again


def test_the_export_that_is_spoilt_here_is_a_good_one() -> None:
    restored = restore(EXPORTED, NOW)

    assert export(restored, NOW) == EXPORTED
    assert restored.machine.is_folded
    assert restored.machine.unacknowledged
    assert restored.pending.started == 2
    assert len(restored.pending) == 6


def test_whatever_is_cut_off_is_missed() -> None:
    for length in range(len(EXPORTED)):
        with pytest.raises(InvalidExport):
            restore(EXPORTED[:length], NOW)


@given(place=st.integers(0, len(EXPORTED) - 1), change=st.integers(1, 255))
def test_a_byte_that_was_altered_is_noticed(place: int, change: int) -> None:
    altered = bytearray(EXPORTED)
    altered[place] ^= change

    with pytest.raises(InvalidExport):
        restore(bytes(altered), NOW)


@given(more=st.binary(min_size=1, max_size=20))
def test_bytes_that_follow_are_noticed(more: bytes) -> None:
    with pytest.raises(InvalidExport):
        restore(EXPORTED + more, NOW)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidExport):
        restore(data, NOW)


@given(st.binary(max_size=200))
def test_any_bytes_with_a_good_seal_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidExport):
        restore(seal(data), NOW)


@given(
    place=st.integers(0, len(unseal(EXPORTED)) - 1),
    cut=st.integers(0, 8),
    put=st.binary(max_size=8),
)
def test_whoever_makes_a_seal_of_his_own_gets_a_whole_session_or_the_error(place: int, cut: int, put: bytes) -> None:
    payload = unseal(EXPORTED)
    tried(seal(payload[:place] + put + payload[place + cut :]))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.sampled_from((2**53, 2**53 - 1, -1, 1e300, 0.5))
    | st.text(max_size=5)
    | st.sampled_from(("attached", "gap", "+a/**", "publish", "subscribe")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the ways to everything within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *[found for key, each in inner for found in places_in(each, (*path, key))]]


@given(data=st.data(), in_machine=st.booleans(), value=json_values, removes=st.booleans())
def test_any_other_value_of_a_field_is_refused_or_makes_a_whole_session(
    data: st.DataObject, in_machine: bool, value: Any, removes: bool
) -> None:
    fields, *bodies = part(MACHINE if in_machine else SESSION)
    content = orjson.loads(fields)
    *way, last = data.draw(st.sampled_from(places_in(content)[1:]))
    within = content
    for key in way:
        within = within[key]
    if removes:
        del within[last]
    else:
        within[last] = value
    record = join([orjson.dumps(content), *bodies])

    tried(seal(join([record, SESSION] if in_machine else [MACHINE, record])))


@pytest.mark.parametrize("in_machine", [True, False])
def test_each_field_has_to_be_there_and_no_other_one(in_machine: bool) -> None:
    fields, *bodies = part(MACHINE if in_machine else SESSION)
    content = orjson.loads(fields)
    changed = [{name: value for name, value in content.items() if name != missing} for missing in content]
    changed.append(content | {"newer": 1})
    for each in changed:
        record = join([orjson.dumps(each), *bodies])
        with pytest.raises(InvalidExport, match="has the fields"):
            restore(seal(join([record, SESSION] if in_machine else [MACHINE, record])), NOW)
