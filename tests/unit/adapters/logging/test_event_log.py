"""Events as lines: one form on a terminal, JSON otherwise, no secrets, and never a delay for whoever logs."""

import io
import json
import threading
import time
from collections.abc import Callable

import pytest

from gateway.adapters.logging import StructuredEventLog, redact
from gateway.adapters.logging.line_writer import MOST_LINES, LineWriter
from gateway.adapters.tokens import ItsdangerousTokenSigner
from gateway.catalogue import log_events as events
from gateway.catalogue import policy_log_events
from gateway.catalogue.log_event import Level, LogEvent
from gateway.catalogue.log_events import LOG_EVENTS
from gateway.core.types import Incarnation, NodeId, NodeRef, SessionId, TokenGeneration
from tests.support.times import scaled

DEADLINE = scaled(10.0)
TOKEN = ItsdangerousTokenSigner([b"k" * 16], life=1).sign(SessionId("s" * 22), TokenGeneration(1), now=1e9)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class StuckStream(io.StringIO):
    """A reader that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.go.wait(DEADLINE)
        return super().write(text)


def lines_of(emit: Callable[[StructuredEventLog], None], *, level: Level = Level.INFO) -> list[dict[str, object]]:
    stream = io.StringIO()
    log = StructuredEventLog(node="n1", stream=stream, level=level)
    emit(log)
    log.close()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def text_of(emit: Callable[[StructuredEventLog], None], stream: io.StringIO | None = None) -> str:
    stream = stream or Terminal()
    log = StructuredEventLog(node="n1", stream=stream)
    emit(log)
    log.close()
    return stream.getvalue()


def test_a_line_of_json_begins_with_time_level_node_and_event() -> None:
    (line,) = lines_of(lambda log: log.emit(events.SESSION_OPENED, session="s1", principal="alice"))

    assert list(line) == ["time", "level", "node", "event", "session", "principal"]
    assert str(line.pop("time")).endswith("Z")
    expected = {"level": "info", "node": "n1", "event": "session_opened", "session": "s1", "principal": "alice"}
    assert line == expected


def test_a_terminal_gets_lines_for_people_and_everything_else_json() -> None:
    def emit(log: StructuredEventLog) -> None:
        log.emit(events.SESSION_OPENED, session="s1", principal="alice")

    assert "session_opened" in text_of(emit)
    assert "{" not in text_of(emit)
    assert text_of(emit, io.StringIO()).startswith("{")


def test_less_severe_events_are_left_out() -> None:
    def emit(log: StructuredEventLog) -> None:
        log.emit(events.SESSION_OPENED, session="s1", principal="alice")
        log.emit(events.LEASE_LOST, node="n1")

    assert [line["event"] for line in lines_of(emit, level=Level.WARNING)] == ["lease_lost"]


def test_an_error_is_its_type_and_message_and_a_bug_has_its_traceback_too() -> None:
    def emit(log: StructuredEventLog) -> None:
        try:
            raise ValueError("broken")
        except ValueError as error:
            log.emit(events.GRID_UNREACHABLE, error=error)
            log.emit(events.REQUEST_FAILED, session="s1", error=error)
        log.emit(events.GRID_UNREACHABLE, error=TimeoutError())

    outage, bug, silent = lines_of(emit)

    assert (outage["error"], "exception" in outage) == ("ValueError: broken", False)
    assert str(bug["exception"]).startswith("Traceback")
    assert silent["error"] == "TimeoutError"


@pytest.mark.promise("P8")
@pytest.mark.parametrize(
    "value",
    [TOKEN, f"refused {TOKEN}!", {"deep": [TOKEN]}, ValueError(TOKEN), TOKEN.encode(), f"/v1/connect?token={TOKEN}"],
    ids=["plain", "within a text", "nested", "in an exception", "bytes", "in a URL"],
)
@pytest.mark.parametrize("field", ["error", "anything"])
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_no_token_reaches_the_log(value: object, field: str, stream: type[io.StringIO]) -> None:
    text = text_of(lambda log: log.emit(events.BACKGROUND_TASK_FAILED, **{field: value}), stream())

    assert "redacted" in text
    assert TOKEN not in text
    assert TOKEN.rpartition(".")[2] not in text


@pytest.mark.parametrize("field", ["token", "new_token", "secret", "Password", "token_keys", "authorization"])
def test_fields_named_like_secrets_are_masked_whatever_they_hold(field: str) -> None:
    text = text_of(lambda log: log.emit(events.GRID_UNREACHABLE, **{field: "hunter2"}, error={field: "hunter3"}))

    assert "hunter" not in text


def test_passwords_in_urls_and_hashed_secrets_are_masked() -> None:
    def emit(log: StructuredEventLog) -> None:
        log.emit(
            events.GRID_UNREACHABLE,
            error="redis://bob:hunter2@h:1/0 and redis://:hunter2@h and alice:scrypt$n=2$hunter2",
        )

    assert "hunter2" not in text_of(emit)
    assert "redis://bob:" in text_of(emit)


def test_ordinary_texts_are_not_masked() -> None:
    texts = ["prices/ACME/bid", "n1:5f0c", "gateway.example.com", "KJh3x0ZQ2mW8sT5rVbYc1g", "redis://h:6379/0", "1.5"]

    assert lines_of(lambda log: log.emit(events.GRID_UNREACHABLE, error=texts))[0]["error"] == texts


def test_what_clients_send_can_neither_forge_lines_nor_steer_a_terminal() -> None:
    text = text_of(lambda log: log.emit(events.SESSION_OPENED, session="s", principal="a\nb\x1b[31mred\u202e\x9b"))

    assert text.count("\n") == 1
    assert "\x1b[31m" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    "forged",
    ["\u2028", "\u2029", "\u202e", "\u2066", "\u200f", "\u061c", "\x85", "\x9b", "\x7f", "\x1b", "\n"],
    ids=ascii,
)
@pytest.mark.parametrize("place", ["a text", "a list", "a message"])
def test_no_viewer_of_json_takes_what_clients_send_for_a_line_or_a_command(forged: str, place: str) -> None:
    """Some viewers split lines where Unicode does; all obey what turns the direction of text."""
    text = f"a{forged}b"

    def emit(log: StructuredEventLog) -> None:
        match place:
            case "a text":
                log.emit(events.LIBRARY_WARNED, logger="x", message=text)
            case "a list":
                log.emit(policy_log_events.SELECTIONS_WITHDRAWN, session="s", principal="p", selectors=[text])
            case _:
                log.emit(events.ADMIN_FAILED, path="/", error=ValueError(text))

    raw = text_of(emit, io.StringIO()).removesuffix("\n")

    assert forged not in raw
    assert len(raw.splitlines()) == 1
    read = json.loads(raw)
    kept = {"a text": read.get("message"), "a list": read.get("selectors", [None])[0]}.get(place, read.get("error"))
    assert kept == (text if place != "a message" else f"ValueError: {text}"), "nothing is lost"


def test_the_traceback_of_a_bug_forges_no_event_and_steers_no_terminal() -> None:
    error = ValueError("bad\n2026-01-01T00:00:00Z [info     ] admin_acted   caller=nobody\x1b[2J\u202e")

    lines = text_of(lambda log: log.emit(events.ADMIN_FAILED, path="/", error=error)).splitlines()

    assert any("admin_acted" in line for line in lines)
    assert [line for line in lines[1:] if not line.startswith("  | ")] == []
    assert "\x1b[2J" not in "".join(lines)
    assert "\u202e" not in "".join(lines)


def test_a_value_cannot_fill_the_disk() -> None:
    (line,) = lines_of(lambda log: log.emit(events.SESSION_OPENED, session="s", principal="x y " * 15_000 + TOKEN))

    assert len(str(line["principal"])) < 2100
    assert str(line["principal"]).endswith("… (60010 characters)")


@pytest.mark.parametrize("text", ["a" * 60_000 + "://", "a" * 60_000 + ".", "scrypt$" * 9000, "://:" * 15_000 + "a."])
def test_no_text_of_a_client_makes_masking_slow(text: str) -> None:
    started = time.monotonic()

    redact(text)

    assert time.monotonic() - started < scaled(1)


def test_values_of_our_own_say_what_they_are() -> None:
    ref = NodeRef(NodeId("n2"), Incarnation("abc"))

    (line,) = lines_of(lambda log: log.emit(events.LEASE_EXPIRED, expired=ref))

    assert line["expired"] == "n2:abc"


def test_a_value_that_cannot_be_shown_hurts_nobody() -> None:
    class Unshowable:
        def __str__(self) -> str:
            raise RuntimeError

    (line,) = lines_of(lambda log: log.emit(events.LEASE_EXPIRED, expired=Unshowable()))

    assert line["event"] == "lease_expired"
    assert line["unloggable"] == "RuntimeError in ['expired']"


def test_two_nodes_in_one_process_write_to_their_own_streams() -> None:
    one, other = io.StringIO(), io.StringIO()
    logs = [StructuredEventLog(node=name, stream=stream) for name, stream in (("n1", one), ("n2", other))]
    for log in logs:
        log.emit(events.LEASE_LOST, node="x")
        log.close()

    assert len(one.getvalue().splitlines()) == len(other.getvalue().splitlines()) == 1


def test_strict_refuses_what_the_catalogue_does_not_declare() -> None:
    log = StructuredEventLog(node="n1", stream=io.StringIO(), strict=True)

    with pytest.raises(ValueError, match="not in the catalogue"):
        log.emit(LogEvent("made_up", Level.INFO, "Made up."))
    with pytest.raises(ValueError, match=r"carries \['node'\], not \['nod'\]"):
        log.emit(events.LEASE_LOST, nod="n1")
    log.close()


def test_a_stuck_reader_delays_nobody_and_the_hole_is_declared() -> None:
    stream = StuckStream()
    log = StructuredEventLog(node="n1", stream=stream)
    log._writer._most_lines = 10
    log.emit(events.LEASE_LOST, node="first")
    assert stream.entered.wait(DEADLINE)

    started = time.monotonic()
    for number in range(100):
        log.emit(events.LEASE_LOST, node=str(number))
    assert time.monotonic() - started < DEADLINE / 2

    stream.go.set()
    deadline = time.monotonic() + DEADLINE
    while log._writer._waiting and time.monotonic() < deadline:
        time.sleep(0.001)  # a poll of another thread; the test goes on as soon as it is done
    log.emit(events.LEASE_LOST, node="last")
    log.close()

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines[-2:]] == ["log_lines_dropped", "lease_lost"]
    assert lines[-2]["lines"] + len(lines) - 1 == 102
    assert [line["node"] for line in lines[:3]] == ["first", "0", "1"]


def test_lines_gather_and_are_written_together_but_an_urgent_one_takes_them_along_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.adapters.logging.line_writer.GATHER_SECONDS", 3600.0)
    written: list[str] = []
    took = threading.Event()

    class Noting(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            took.set()
            return len(text)

    writer = LineWriter(Noting())
    writer.write("one")
    writer.write("two")
    writer.write("three", urgent=True)

    assert took.wait(DEADLINE)
    assert "".join(written) == "one\ntwo\nthree\n"
    writer.close()


def test_warnings_are_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StructuredEventLog(node="n1", stream=io.StringIO())
    seen: list[bool] = []

    def write(_line: str, *, urgent: bool = False) -> None:
        seen.append(urgent)

    monkeypatch.setattr(log._writer, "write", write)
    log.emit(events.SESSION_OPENED, session="s1", principal="alice")
    log.emit(events.LEASE_LOST, node="n1")

    assert seen == [False, True]
    log.close()


def test_closing_gives_up_on_a_reader_that_is_stuck_for_ever() -> None:
    stream = StuckStream()
    writer = LineWriter(stream)
    writer.write("line")
    assert stream.entered.wait(DEADLINE)

    writer.close(seconds=0.01)

    stream.go.set()


def test_a_reader_that_is_gone_hurts_nobody() -> None:
    stream = io.StringIO()
    log = StructuredEventLog(node="n1", stream=stream)
    stream.close()

    log.emit(events.LEASE_LOST, node="n1")
    log.close()
    log.emit(events.LEASE_LOST, node="n1")


@pytest.mark.parametrize("event", LOG_EVENTS, ids=lambda event: event.name)
def test_the_catalogue_follows_its_own_rules(event: LogEvent) -> None:
    assert event.name == event.name.lower()
    assert event.meaning.endswith(".")
    assert not {"token", "secret", "value", "time", "level", "event"} & set(event.fields)
    assert not event.bug or "error" in event.fields


def test_names_of_events_are_unique() -> None:
    assert len({event.name for event in LOG_EVENTS}) == len(LOG_EVENTS)


def test_lines_that_are_missing_are_counted_in_all() -> None:
    stream = StuckStream()
    log = StructuredEventLog(node="n1", format="json", stream=stream)
    try:
        log.emit(events.NODE_STOPPED, node="n1")
        assert stream.entered.wait(DEADLINE)
        for _ in range(MOST_LINES + 7):
            log.emit(events.NODE_STOPPED, node="n1")
        assert log.dropped_lines == 7
    finally:
        stream.go.set()
        log.close()
