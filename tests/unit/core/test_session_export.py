"""The form in which a session is exported: its version, its completeness, and what it takes to restore one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.core.session.answers import Answers
from gateway.core.session.export import export, restore
from gateway.core.session.pending import PendingRequests, Work
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.byte_form import MAGIC, VERSION, Bodies, Record, join, part, seal, unseal, write_record
from gateway.core.stream.machine import SessionMachine
from gateway.core.types import GridGeneration, RequestNumber, SessionId
from gateway.core.wire.errors import InvalidExport, LocalProtocolError, UnknownExportVersion
from gateway.core.wire.packets import Malformed, Publish
from gateway.core.wire.transaction_packets import Stage
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import EndKind, SetWills, Will
from tests.support.machines import opened
from tests.support.session_twins import lived

NOW: Final = 192.0
"""Half a minute after the last thing that happens to ``lived``, in seconds."""

GOLDEN: Final = Path(__file__).parent / f"session_export_{VERSION}.bin"
"""What this version writes of ``lived``. Should the form have to change, ``VERSION`` grows and there is a further file:
``.venv/bin/python -m tests.unit.core.test_session_export`` writes it."""


def session() -> ServerSession:
    return ServerSession(SessionId("s"), principal="alice", window=60.0, machine=opened(), declared=GridGeneration(1))


def exported() -> bytes:
    return export(lived().first, NOW)


def test_the_form_is_the_one_of_its_version() -> None:
    """Nodes of two releases meet at every upgrade: what one version means must never change."""
    assert exported() == GOLDEN.read_bytes()
    assert export(restore(GOLDEN.read_bytes(), NOW), NOW) == GOLDEN.read_bytes()


def test_it_begins_with_its_magic_and_version() -> None:
    assert exported().startswith(MAGIC + VERSION.to_bytes(2, "big"))


@pytest.mark.parametrize("version", [0, VERSION + 1, 65_535])
def test_another_version_is_refused_by_its_number_whatever_comes_behind_it(version: int) -> None:
    data = MAGIC + version.to_bytes(2, "big") + b"of a form that is not known here"

    with pytest.raises(UnknownExportVersion, match=f"has version {version}; this release reads version {VERSION}"):
        restore(data, NOW)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "more than 0 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "begins with b'GWSX'"),
        (seal(b"")[:-1], "more than 9 bytes"),
        (seal(b"abc")[:-1], "truncated or altered"),
        (seal(b""), "no count"),
        (seal(b"\xff\xff\xff\xff"), "list of 4294967295 parts"),
        (seal(join([b"", b"", b""])), "2 parts, and not 3"),
        (seal(join([b"", b""])), "no count"),
        (seal(join([join([]), b""])), "has the fields"),
        (seal(join([join([b"{"]), b""])), "are not JSON"),
        (seal(join([join([b"{}"]), b""])), "the machine has the fields"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, why: str) -> None:
    with pytest.raises(InvalidExport, match=why):
        restore(data, NOW)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("window", "long", "window of the session is 'long', and not a number"),
        ("started", 9, "started of the session is '9', and not a whole number from 0 to 6"),
        ("selections", ["a"], "selections of the session: an entry of a selection list begins"),
        ("pending", [["publish", 1, False, "t", 4]], "not the place of one of 3 bodies"),
        ("pending", [["cancel", 1, False]], "not a list of requests"),
        ("roles", [1], "not a list of texts"),
        ("properties", {"a": 1}, "not an object of texts"),
        ("token_confirmed", 1, "not true or false"),
        ("declaring", [1], "not a packet and a generation, or nothing"),
    ],
)
def test_a_field_that_is_wrong_is_named(field: str, value: object, why: str) -> None:
    machine, record = part(unseal(exported()))
    fields, *bodies = part(record)
    changed = join([orjson.dumps(orjson.loads(fields) | {field: value}), *bodies])

    with pytest.raises(InvalidExport, match=why):
        restore(seal(join([machine, changed])), NOW)


@pytest.mark.parametrize("value", [b'{"n":1e999}', b'{"n":true}', b'{"n":"1"}', b'{"n":null}'])
def test_a_number_is_a_number(value: bytes) -> None:
    with pytest.raises(InvalidExport):
        Record(join([value]), "test", ("n",)).number("n")


def test_a_record_has_bodies_besides_its_fields() -> None:
    bodies = Bodies()
    places = [bodies.put(b"\x00\xff"), bodies.put(b"")]

    record = Record(write_record({"bodies": [*places]}, bodies), "test", ("bodies",))

    assert [record.body("bodies", place) for place in record.integers("bodies")] == [b"\x00\xff", b""]


def test_every_attribute_of_a_session_is_exported() -> None:
    """A new attribute that ``export`` forgets would be lost at a handoff; this test makes whoever adds it look."""
    exported_as = {"machine": set[str](), "pending": {"pending", "started"}, "answers": set(Answers.__slots__)}
    assert set(PendingRequests.__slots__) == {"_queue", "_weights", "bytes", "recorder", "started"}, (
        "the weights are made anew, and who keeps a copy begins anew"
    )
    names = {name for slot in ServerSession.__slots__ for name in exported_as.get(slot, {slot})}

    assert names == set(orjson.loads(part(part(unseal(exported()))[1])[0]))


def test_what_was_started_goes_along_as_started_and_the_rest_in_its_order() -> None:
    first = lived().first
    restored = restore(export(first, NOW), NOW)

    assert list(restored.pending) == list(first.pending)
    assert restored.pending.started == first.pending.started > 0
    restored.pending.restart()
    again = [getattr(work, "resubmitted", None) for work in restored.pending]
    assert again == [True, True, False, False, False, None]


def test_a_value_is_exported_as_it_is() -> None:
    held = session()
    value = b'{"any": [1.50, "\xc3\xa9"]}'
    held.pending.put(Publish(RequestNumber(1), "t", value))

    (work,) = restore(export(held, NOW), NOW).pending

    assert isinstance(work, Publish)
    assert work.value == value


def test_readings_of_values_are_exported() -> None:
    held = session()
    pending: list[Work] = [
        ReadValues(RequestNumber(1), "a/**"),
        ReadValues(RequestNumber(2), "a/**", "a/1", 7, resubmitted=True),
    ]
    for each in pending:
        held.pending.put(each)

    assert list(restore(export(held, NOW), NOW).pending) == pending


def test_what_ends_and_what_is_left_is_exported() -> None:
    held = session()
    numbers = map(RequestNumber, range(1, 6))
    ends = Publish(next(numbers), "t", b"1", ttl=1.5)
    wills = (Will("a", b"[1.0]"), Will("b", b"null", (EndKind.CLOSED,), 2.0))
    pending: list[Work] = [
        ends,
        SetWills(next(numbers), wills),
        SetWills(next(numbers)),
        Stage(next(numbers), ends.request, ends),
    ]
    for each in pending:
        held.pending.put(each)

    assert list(restore(export(held, NOW), NOW).pending) == pending


@pytest.mark.parametrize("seconds", [60, 60.0, 0.1])
def test_a_time_is_told_to_the_client_as_before(seconds: float) -> None:
    held = session()
    held.window = held.credential_expires = seconds

    restored = restore(export(held, NOW), NOW)

    assert repr((restored.window, restored.credential_expires)) == repr((seconds, seconds))


def test_the_order_of_properties_stays() -> None:
    held = session()
    held.properties = {"b": "1", "a": "2"}

    assert list(restore(export(held, NOW), NOW).properties) == ["b", "a"]


def test_what_is_never_pending_cannot_be_exported_as_pending() -> None:
    held = session()
    held.pending.put(Malformed(RequestNumber(1), "no"))

    with pytest.raises(LocalProtocolError, match="malformed"):
        export(held, NOW)


def test_exporting_changes_nothing() -> None:
    held = lived().first

    assert export(held, NOW) == export(held, NOW)


def test_a_node_restores_into_a_session_of_its_own() -> None:
    class Held(ServerSession):
        """What a node adds."""

        taken_over = True

    def make(machine: SessionMachine) -> Held:
        return Held(SessionId("s"), principal="alice", window=1.0, machine=machine, declared=GridGeneration(9))

    restored = restore(exported(), NOW, make)

    assert restored.taken_over
    assert export(restored, NOW) == exported()


if __name__ == "__main__":
    GOLDEN.write_bytes(exported())
