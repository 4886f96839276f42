"""The client's machine on an open connection, leaving it, closing the session, and showing credentials that end."""

from __future__ import annotations

import pytest

from gateway.core.client import effects
from gateway.core.client.effects import Purpose
from gateway.core.client.errors import (
    RequestRefused,
    SessionClosed,
    SessionEnded,
)
from gateway.core.client.options import FETCH_TIMEOUT, LEAVE_TIMEOUT
from gateway.core.client.transitions import State
from gateway.core.client.types import ValuesReread
from tests.support.client_scene import FAILED_OVER, REATTACHED, URL, Scene


def reply(packet: int, request: int, **more: object) -> dict[str, object]:
    return {"type": "reply", "id": packet, "request": request, **more}


def refuse(packet: int, request: int, code: str, message: str, **more: object) -> dict[str, object]:
    return reply(packet, request, error={"code": code, "message": message} | more)


# --- The open connection ----------------------------------------------------------------------------------------------


def test_a_ping_is_answered_and_its_token_and_advice_count() -> None:
    scene = Scene().open()
    scene.say({"type": "ping", "token": "token-1b", "backoff": {"initial": 4, "maximum": 10, "stable_after": 10}})
    assert scene.sent_types == ["pong"]
    scene.disconnected()
    scene.wait(1.9)
    assert scene.stands(State.WAITING)
    scene.wait(0.2)
    scene.connected()
    assert scene.sent[0]["token"] == "token-1b"


def test_what_was_received_is_acknowledged_in_time() -> None:
    scene = Scene().open()
    scene.say({"type": "update", "id": 1, "topic": "t", "version": 1, "event": "e", "value": 7})
    assert scene.sent == []
    scene.wait(0.5)
    assert scene.sent == [{"type": "ack", "received": 1}]


@pytest.mark.parametrize(("wanted", "after"), [(1, 1), (2, 2), (1000, 2), (None, 2)])
def test_an_application_may_have_packets_acknowledged_sooner(wanted: int | None, after: int) -> None:
    """Also on the connections that follow; the node keeps 8 packets, and wants a quarter of them at the latest."""
    scene = Scene(ack_packets=wanted).open()
    for number in range(1, after + 1):
        assert scene.sent == [] or number == 1
        scene.say({"type": "update", "id": number, "topic": "t", "version": number, "event": "e", "value": 7})
    assert scene.sent == [{"type": "ack", "received": after}]
    scene.disconnected()
    scene.wait(0.125)
    scene.connected()
    scene.welcome(**REATTACHED)
    for number in range(after + 1, 2 * after + 1):
        scene.say({"type": "update", "id": number, "topic": "t", "version": number, "event": "e", "value": 7})
    assert scene.sent == [{"type": "ack", "received": 2 * after}]


def test_a_silent_node_is_given_up() -> None:
    scene = Scene().open()
    scene.wait(45.0)
    how = scene.one(effects.Disconnect)
    assert (how.code, how.reason) == (4002, "the node was silent for 45 s")
    assert scene.one(effects.Lost).ending.hung


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", 4200),
        ('{"type":"update","id":2,"topic":"t","version":1,"event":"e","value":1}', 4003),
        (
            '{"type":"notice","id":1,"code":"permissions_withdrawn","message":"","withdrawn":[],"selections":["?"]}',
            4200,
        ),
    ],
)
def test_a_broken_protocol_is_told_and_the_connection_left(text: str, code: int) -> None:
    scene = Scene().open()
    scene.say_text(text)
    assert scene.one(effects.Disconnect).code == code
    assert scene.sent_types == ["error"]
    assert scene.stands(State.WAITING)


def test_what_came_before_the_violation_in_its_message_counts() -> None:
    scene = Scene().open()
    update = {"type": "update", "topic": "t", "version": 1, "event": "e", "value": 1}
    scene.say(update | {"id": 1}, update | {"id": 3})
    assert scene.updates == [("t", 1)]
    assert scene.one(effects.Lost).ending.code == 4003


def test_a_request_that_a_node_closes_for_is_given_up_and_the_others_are_not() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.publish("b", "t", 2)
    scene.say({"type": "error", "code": "message_too_big", "message": "too much", "request": 1})
    assert scene.one(effects.Reported).error.message == "too much"
    scene.disconnected(1009)
    assert scene.one(effects.RequestGivenUp).request == 1
    rejected = scene.one(effects.Rejected)
    assert (rejected.call, type(rejected.error)) == ("a", RequestRefused)
    scene.come_back(**FAILED_OVER)
    assert [each.get("request") for each in scene.sent] == [None, 2]


def test_notices_are_handed_on_as_what_they_are() -> None:
    scene = Scene().open()
    scene.say(
        {"type": "notice", "id": 1, "code": "withheld", "message": ""},
        {"type": "notice", "id": 2, "code": "values_reread", "message": "m", "partitions": [3]},
        {"type": "notice", "id": 3, "code": "of_later", "message": "m"},
    )
    first, second = scene.of(effects.Noticed)
    assert first.notice == ValuesReread("values_reread", "m", (3,))
    assert (second.notice.code, second.own) == ("of_later", False)


def test_a_node_may_end_the_session() -> None:
    scene = Scene().open()
    scene.say({"type": "bye", "reason": "enough"})
    assert [type(each).__name__ for each in scene.effects] == ["Disconnect", "Lost", "Ended"]
    ended = scene.one(effects.Ended)
    assert isinstance(ended.error, SessionClosed)
    assert (str(ended.error), ended.on_purpose) == ("the node ended the session: enough", False)


# --- Leaving a node ---------------------------------------------------------------------------------------------------


def test_a_node_that_asks_to_go_away_is_left_when_everything_is_answered() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.say({"type": "go-away", "reason": "it drains", "delay": 2.0, "node": "n9"})
    assert scene.stands(State.LEAVING)
    scene.publish("b", "t", 2)
    assert scene.sent_types == ["publish"], "the moment has yet to come"
    scene.wait(1.0)
    assert scene.stands(State.FINISHING)
    scene.publish("c", "t", 3)
    assert scene.sent == []
    scene.say(
        reply(1, 1), {**reply(2, 2)}, {"type": "update", "id": 3, "topic": "t", "version": 1, "event": "e", "value": 1}
    )
    assert [type(each).__name__ for each in scene.effects] == [
        "Resolved",
        "Resolved",
        "Update",
        "Disconnect",
        "Lost",
        "Connect",
    ], "nothing of the message is dropped, and the next attempt follows at once"
    assert scene.sent == [{"type": "ack", "received": 3}]
    assert scene.one(effects.Connect).url == f"{URL}?node=n9"
    assert scene.one(effects.Lost).ending.planned


def test_who_is_called_away_without_a_delay_handles_all_of_the_message_first() -> None:
    scene = Scene().open()
    scene.say(
        {"type": "go-away", "reason": "it drains", "delay": 0},
        {"type": "update", "id": 1, "topic": "t", "version": 1, "event": "e", "value": 1},
    )
    assert scene.updates == [("t", 1)]
    assert scene.machine.next_deadline() == scene.now
    scene.wait(0.0)
    assert scene.stands(State.CONNECTING)


def test_a_second_call_to_go_away_may_be_earlier_and_what_is_not_answered_is_left() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.say({"type": "go-away", "reason": "it drains", "delay": 20.0})
    scene.say({"type": "go-away", "reason": "it drains", "delay": 2.0})
    scene.wait(1.0)
    assert scene.stands(State.FINISHING)
    scene.say({"type": "go-away", "reason": "it drains", "delay": 0.0})
    scene.wait(LEAVE_TIMEOUT - 0.1)
    assert scene.stands(State.FINISHING)
    scene.wait(0.1)
    assert scene.stands(State.CONNECTING)
    assert scene.machine.unanswered == 1


# --- Closing ----------------------------------------------------------------------------------------------------------


def test_a_session_is_closed_by_a_bye_that_the_node_returns() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.close()
    assert scene.sent_types == ["bye"]
    assert isinstance(scene.one(effects.Rejected).error, SessionClosed)
    with pytest.raises(SessionClosed, match="being closed"):
        scene.publish("b", "t", 1)
    scene.say({"type": "bye", "reason": ""})
    ended = scene.one(effects.Ended)
    assert (str(ended.error), ended.on_purpose) == ("the session was closed by this client", True)


def test_who_closes_while_the_connection_is_lost_comes_back_to_say_good_bye() -> None:
    scene = Scene().open()
    scene.disconnected()
    scene.close()
    scene.come_back(**REATTACHED)
    assert scene.sent_types == ["ack", "bye"]


def test_a_close_that_nobody_confirms_is_abandoned() -> None:
    scene = Scene().open()
    scene.close(1.0)
    scene.wait(1.0)
    assert scene.one(effects.Disconnect).code == 4000
    assert str(scene.machine.ended) == "the session was closed by this client"
    assert scene.machine.next_deadline() is None
    assert scene.machine.flush() == []


def test_closing_does_not_wait_for_answers_before_it_leaves_a_node() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.say({"type": "go-away", "reason": "it drains", "delay": 0.0})
    scene.wait(0.0)
    assert scene.stands(State.FINISHING)
    scene.close()
    assert scene.sent_types == ["bye", "ack"]
    assert scene.stands(State.CONNECTING)


def test_an_abandoned_session_tells_everybody_why() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.abandon()
    assert [type(each).__name__ for each in scene.effects] == ["Disconnect", "Rejected", "Ended"]
    assert not scene.one(effects.Ended).on_purpose
    with pytest.raises(SessionEnded):
        scene.machine.check_open()


# --- Credentials that end ---------------------------------------------------------------------------------------------


def renewable(**welcome: object) -> Scene:
    scene = Scene(renewable=True, secret=None)
    scene.start()
    assert scene.effects == [effects.FetchCredentials(Purpose.ATTEMPT, FETCH_TIMEOUT)]
    scene.fetched("fresh-1")
    scene.connected()
    assert scene.sent[0]["secret"] == "fresh-1"
    scene.welcome(**welcome)
    return scene


def test_an_attempt_whose_credentials_cannot_be_had_has_failed() -> None:
    scene = Scene(renewable=True, secret=None)
    scene.start()
    scene.not_fetched("the wallet is empty")
    assert scene.one(effects.AttemptFailed).ending.message == "the wallet is empty"
    scene.wait(1.0)
    assert scene.stands(State.FETCHING)


def test_who_is_told_that_the_credentials_have_ended_comes_back_with_fresh_ones() -> None:
    scene = renewable()
    scene.disconnected(4006)
    scene.wait(1.0)
    assert scene.one(effects.FetchCredentials).purpose is Purpose.ATTEMPT
    scene.fetched("x" * 70_000)
    assert "longer than a node accepts" in scene.one(effects.AttemptFailed).ending.message
    scene.wait(1.0)
    scene.fetched("fresh-2")
    scene.connected()
    assert (scene.sent[0]["secret"], scene.sent[0]["principal"]) == ("fresh-2", "alice")
    scene.welcome(**REATTACHED)
    scene.disconnected()
    scene.wait(1.0)
    assert scene.one(effects.Connect), "those were taken: none are fetched"


def test_a_resume_that_is_refused_for_credentials_that_ended_is_no_end() -> None:
    scene = renewable()
    scene.disconnected()
    scene.wait(1.0)
    scene.connected()
    scene.say({"type": "error", "code": "credentials_expired", "message": "over"})
    scene.disconnected(4201)
    assert scene.machine.ended is None
    scene.wait(10.0)
    assert scene.stands(State.FETCHING)


def test_credentials_are_refreshed_on_the_open_connection() -> None:
    scene = renewable()
    notice = {"type": "notice", "code": "credentials_expiring", "message": "soon"}
    scene.say(notice | {"id": 1})
    assert scene.one(effects.FetchCredentials).purpose is Purpose.REFRESH
    scene.not_fetched("the wallet is empty", Purpose.REFRESH)
    assert scene.one(effects.RefreshFailed).reason == "the wallet is empty"
    scene.wait(1.5)
    scene.fetched("fresh-2", Purpose.REFRESH)
    (asked,) = scene.sent
    assert (asked["type"], asked["secret"]) == ("authenticate", "fresh-2")
    scene.say(refuse(2, 1, "unauthenticated", "no"))
    assert scene.one(effects.RefreshFailed).reason == "no"
    scene.wait(3.0)
    scene.fetched("fresh-3", Purpose.REFRESH)
    scene.say(notice | {"id": 3})
    assert scene.of(effects.FetchCredentials) == [], "one refresh is at work"
    scene.say(reply(4, 2))
    assert scene.one(effects.FetchCredentials), "the notice may speak of those that were shown just now"
    scene.fetched("fresh-4", Purpose.REFRESH)
    scene.say(reply(5, 3))
    assert scene.effects == []
    assert not scene.machine.credentials.stale


def test_a_refresh_ends_with_the_session_and_with_a_resume_that_shows_fresh_ones() -> None:
    scene = renewable()
    scene.say({"type": "notice", "id": 1, "code": "credentials_expiring", "message": "soon"})
    scene.not_fetched(purpose=Purpose.REFRESH)
    scene.disconnected()
    scene.wait(0.2)
    scene.fetched("fresh-2")
    scene.connected()
    scene.welcome(**REATTACHED, received=0)
    scene.wait(10.0)
    assert scene.of(effects.FetchCredentials) == [], "a resume has shown fresh ones meanwhile"
    scene.say({"type": "notice", "id": 2, "code": "credentials_expiring", "message": "soon"})
    scene.close()
    scene.fetched("late", Purpose.REFRESH)
    scene.not_fetched(purpose=Purpose.REFRESH)
    assert scene.sent == []


def test_without_fresh_credentials_the_notice_is_the_applications_matter() -> None:
    scene = Scene().open()
    scene.say({"type": "notice", "id": 1, "code": "credentials_expiring", "message": "soon"})
    assert [type(each).__name__ for each in scene.effects] == ["Noticed"]
