"""What is announced is told everywhere it is declared, in the words of the catalogues, and by one call alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final, cast

import pytest

import gateway.app
from gateway.adapters.memory import MemoryEventLog, MemoryGrid, MemoryGridServer, MemoryMetrics
from gateway.app.journal import Announcer, Journal, JournalOptions, node_events, session_events
from gateway.app.journal.event import Event
from gateway.app.journal.node_events import Expiry
from gateway.app.journal.session_events import SessionClosed, SessionExpired, ended
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session, StoredUnder
from gateway.catalogue import log_events, metrics
from gateway.core.destinations.destination import Origin, read_destination
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import SYSTEM_SIGN
from gateway.core.types import Epoch, GridGeneration, Incarnation, NodeId, NodeRef, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import ExpiredLease, SessionRecord
from tests.support.machines import PARAMETERS

ME: Final = NodeRef(NodeId("n1"), Incarnation("run1"))


def session(*roles: str) -> Session:
    record = SessionRecord(
        id=SessionId("s"), principal="alice", window=60.0, owner=ME, epoch=Epoch(3), roles=frozenset(roles)
    )
    return Session(
        record, SessionMachine(Role.SERVER, PARAMETERS), stored_under=StoredUnder(GridGeneration(1), expired_leases=0)
    )


VALUES: Final[dict[str, object]] = {
    "session": "s",
    "epoch": Epoch(3),
    "reason": ErrorCode.SESSION_CLOSED,
    "previous": ME,
    "expired": ME,
    "node": ME,
    "expiry": Expiry(ME, 1_000_000, 2_000_000),
    "names": ["a"],
    "changes": ["+a"],
    "selectors": ["a"],
    "client": "test",
    "origin": Origin.FILE,
    "described": (read_destination({"selector": "log/**", "kind": "history"}, origin=Origin.FILE),),
    "removed": (parse_selector("a/*"),),
    "address": "192.0.2.1",
    "at_admin_port": False,
}
"""What the fields of events are made with, by name; one that is not here is a number."""


DECLARED: Final = [
    each
    for module in (session_events, node_events)
    for name, each in vars(module).items()
    if isinstance(each, type) and issubclass(each, Event) and each.__module__ == module.__name__ and name[0] != "_"
]
"""All kinds of events."""


def example(kind: type[Event], *roles: str) -> Event:
    """Make an event of a kind; a session that is held here has *roles*."""
    held = issubclass(kind, session_events._Held)
    fields: Any = cast("Any", kind).__dataclass_fields__
    values = {name: VALUES.get(name, 1) for name in fields if name != "roles"}
    if held:
        values["session"] = session(*roles)
        if "reason" in values:
            values["reason"] = "gap"
    if "roles" in fields:
        values["roles"] = frozenset(roles)
    return cast("Any", kind)(**values)  # type: ignore[no-any-return]


KINDS: Final = pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)


@KINDS
def test_an_event_is_told_in_the_words_of_the_catalogues(kind: type[Event]) -> None:
    event = example(kind)
    assert event.metric or event.log or event.journal, "somebody is told"
    if event.log is not None:
        assert sorted(event.logged()) == sorted(event.log.fields)
    if event.journal is not None:
        assert set(event.told()) <= set(event.journal.fields)
        assert (event.about() != (None, None)) is event.journal.about_session
    if event.metric is not None:
        assert bool(event.label()) is bool(event.metric.label)
        assert event.metric.open or event.metric.label is None or event.label() in event.metric.values


@KINDS
def test_one_call_tells_all_that_is_declared(kind: type[Event]) -> None:
    counted, log = MemoryMetrics(), MemoryEventLog()
    grid = MemoryGrid(MemoryGridServer(), node=ME)
    journal = Journal(ME, JournalOptions(release="1"), grid=grid, clock=Clock(), metrics=counted, log=log)
    event = example(kind)

    Announcer(metrics=counted, log=log, journal=journal)(event)

    if event.metric is not None:
        assert counted.count(event.metric, label=event.label()) == event.amount()
    if event.log is not None:
        assert log.of(event.log) == [event.logged()]
    assert journal._buffer.events == (event.journal is not None)


@KINDS
def test_the_journal_leaves_consoles_out_and_all_others_tell_of_them(kind: type[Event]) -> None:
    event = example(kind, f"{SYSTEM_SIGN}admin")
    of_session = issubclass(kind, session_events._Held | SessionClosed)
    assert (event.about() is None) is of_session


@pytest.mark.parametrize(
    ("reason", "kind", "word"),
    [
        (ErrorCode.SESSION_EXPIRED, SessionExpired, "expired"),
        (ErrorCode.SESSION_CLOSED, SessionClosed, "closed"),
        (ErrorCode.REVOKED, SessionClosed, "revoked"),
    ],
)
def test_an_end_is_told_by_its_reason(reason: ErrorCode, kind: type[Event], word: str) -> None:
    event = ended(session(), reason)
    assert (type(event), event.label(), event.logged()["reason"]) == (kind, word, word)


def test_a_principal_is_named_as_the_journal_is_told_to() -> None:
    server, log = MemoryGridServer(), MemoryEventLog()
    options = JournalOptions(release="1", principals=lambda principal: f"hidden {len(principal)}")
    journal = Journal(ME, options, grid=MemoryGrid(server, node=ME), clock=Clock(), metrics=MemoryMetrics(), log=log)
    Announcer(metrics=MemoryMetrics(), log=log, journal=journal)(session_events.SessionOpened(session(), "test"))
    written = b"".join(line for partition in journal._buffer._partitions for line in partition.lines)
    assert b"hidden 5" in written
    assert b"alice" not in written
    assert log.of(log_events.SESSION_OPENED) == [{"session": "s", "principal": "alice"}]


# --- Nobody else ------------------------------------------------------------------------------------------------------

APPLICATION: Final = Path(gateway.app.__file__).parent


def names_of(catalogue: object, entries: set[object]) -> set[str]:
    return {name for name, each in vars(catalogue).items() if any(each is entry for entry in entries)}


def test_what_an_event_declares_is_told_nowhere_else() -> None:
    """Else it would be counted twice, or there would be a place that logs and forgets to count."""
    counted = names_of(metrics, {each.metric for each in DECLARED if each.metric})
    logged = names_of(log_events, {each.log for each in DECLARED if each.log})
    found = []
    for path in APPLICATION.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
                first = ast.unparse(node.args[0]).rpartition(".")[2]
                if (node.func.attr == "add" and first in counted) or (node.func.attr == "emit" and first in logged):
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node.func)}({first})")
    assert len(counted) >= 6
    assert len(logged) >= 12
    assert found == []


def test_events_come_to_the_journal_by_an_announcement() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in APPLICATION.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "take_down"
    ]
    assert [each.partition(":")[0] for each in found] == ["announcer.py"]


def test_a_refused_resume_of_a_console_is_not_journaled() -> None:
    refused = session_events.ResumeRefused(
        session=None, reason=ErrorCode.TOKEN_INVALID, address="192.0.2.1", away=None, at_admin_port=True
    )
    assert refused.about() is None


@pytest.mark.parametrize("length", [0.6, 1.0, 2.891999, 4.06])
def test_between_both_ends_of_an_expiry_is_the_length_of_the_lease(length: float) -> None:
    """Rounded apart, they were a microsecond off now and then."""
    for step in range(200):
        expiry = Expiry.of(ME, ExpiredLease(length=length, ago=step / 7), now=1.8e9 + step / 3)
        assert expiry.until - expiry.since == round(length * 1_000_000)
