"""The client's machine, input by input: what it does is what comes out."""

from __future__ import annotations

import pytest

from gateway.core.client import effects
from gateway.core.client.effects import Purpose
from gateway.core.client.errors import (
    ConnectFailed,
    Forbidden,
    RequestRefused,
    SessionClosed,
    SessionEnded,
    SessionExpired,
    SessionRefused,
    Unauthenticated,
)
from gateway.core.client.options import FETCH_TIMEOUT, LEAVE_TIMEOUT
from gateway.core.client.transitions import TRANSITIONS, Event, State, step
from gateway.core.client.types import SelectionsWithdrawn, SessionState, ValuesReread
from gateway.core.wire.errors import LocalProtocolError
from tests.support.client_scene import FAILED_OVER, REATTACHED, URL, WELCOME, Scene


def reply(packet: int, request: int, **more: object) -> dict[str, object]:
    return {"type": "reply", "id": packet, "request": request, **more}


def refuse(packet: int, request: int, code: str, message: str, **more: object) -> dict[str, object]:
    return reply(packet, request, error={"code": code, "message": message} | more)


# --- The table --------------------------------------------------------------------------------------------------------


def test_every_state_but_the_last_can_end_and_nothing_leads_out_of_the_end() -> None:
    assert {state for state, row in TRANSITIONS.items() if Event.END not in row} == {State.ENDED}
    assert TRANSITIONS[State.ENDED] == {}
    assert set(TRANSITIONS) == set(State)


def test_a_pair_that_is_not_in_the_table_is_a_bug_of_this_side() -> None:
    with pytest.raises(LocalProtocolError, match="welcomed makes no sense in state waiting"):
        step(State.WAITING, Event.WELCOMED)
    with pytest.raises(LocalProtocolError, match="a message came in state new"):
        Scene().say({"type": "ping"})
    with pytest.raises(LocalProtocolError, match="never opened"):
        Scene().publish("a", "t", 1)


# --- Opening ----------------------------------------------------------------------------------------------------------


def test_a_session_is_opened_by_a_hello_and_a_welcome() -> None:
    scene = Scene(properties={"room": "7"}, window=30.0)
    scene.start()
    assert scene.effects == [effects.Connect(URL, 5.0)]
    assert scene.machine.session_state is SessionState.RECOVERING
    scene.connected()
    assert scene.sent == [
        {
            "type": "hello",
            "principal": "alice",
            "secret": "s3cret",
            "properties": {"room": "7"},
            "client": "test",
            "window": 30.0,
            "supports": ["handed_over", "mirrored"],
        }
    ]
    scene.welcome()
    assert scene.one(effects.Opened).welcome.session == "s-1"
    assert scene.sent == [{"type": "ack", "received": 0}], "whatever comes first proves that the token arrived"
    assert scene.stands(State.ATTACHED)
    assert str(scene.machine.session_state) == "connected"
    assert repr(scene.machine) == "<ClientMachine of session s-1 at n1 attached>"
    assert "s3cret" not in repr(scene.machine) + repr(scene.effects)


def test_what_comes_in_the_welcomes_message_is_handed_on_after_it() -> None:
    scene = Scene()
    scene.start()
    scene.connected()
    update = {"type": "update", "id": 1, "topic": "t", "version": 1, "event": "e", "value": 7}
    scene.say(WELCOME, update)

    assert [type(each).__name__ for each in scene.effects] == ["Opened", "Update"]


def test_an_attempt_that_fails_is_followed_by_another_after_a_pause() -> None:
    scene = Scene()
    scene.start()
    scene.disconnected(message="nobody is there")
    assert scene.one(effects.AttemptFailed).ending.message == "nobody is there"
    assert scene.stands(State.WAITING)
    assert scene.machine.next_deadline() == pytest.approx(scene.now + 0.125)
    scene.wait(0.124)
    assert scene.effects == []
    scene.wait(0.001)
    assert scene.effects == [effects.Connect(URL, 5.0)]


def test_who_cannot_be_opened_in_time_is_given_up() -> None:
    scene = Scene(connect_timeout=1.0)
    scene.start()
    scene.disconnected()
    while scene.machine.ended is None:
        if scene.stands(State.CONNECTING):
            scene.disconnected()
        else:
            scene.wait(0.1)
    assert isinstance(scene.machine.ended, ConnectFailed)
    assert scene.now - 1000.0 <= 1.1
    assert scene.machine.next_deadline() is None


def test_a_refusal_for_good_ends_the_opening() -> None:
    scene = Scene()
    scene.start()
    scene.connected()
    scene.say({"type": "error", "code": "unauthenticated", "message": "who?"})
    assert scene.effects == [], "the close code comes next"
    scene.disconnected(4201)
    assert isinstance(scene.one(effects.Ended).error, Unauthenticated)


def test_a_refusal_without_its_close_is_told_when_the_time_is_over() -> None:
    scene = Scene()
    scene.start()
    scene.connected()
    scene.say({"type": "error", "code": "try_later", "message": "not yet", "retry_after": 2})
    scene.wait(5.0)
    ending = scene.one(effects.AttemptFailed).ending
    assert (ending.message, ending.retry_after, ending.hung) == ("the node refused: not yet (try_later)", 2.0, False)


def test_a_node_that_says_nothing_has_hung() -> None:
    scene = Scene()
    scene.start()
    scene.connected()
    scene.wait(5.0)
    assert scene.one(effects.AttemptFailed).ending.hung
    assert scene.one(effects.Disconnect).code == 4000


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("{", 4200, "not JSON"),
        ('{"type":"ping"}', 4200, "the node began with Ping and not with a welcome"),
    ],
)
def test_a_node_that_does_not_welcome_breaks_the_protocol(text: str, code: int, why: str) -> None:
    scene = Scene()
    scene.start()
    scene.connected()
    scene.say_text(text)
    assert scene.one(effects.Disconnect).code == code
    assert why in scene.one(effects.AttemptFailed).ending.message


def test_a_welcome_that_resumes_is_no_answer_to_a_hello() -> None:
    scene = Scene()
    scene.start()
    scene.connected()
    scene.welcome(**REATTACHED)
    assert "a new session was asked for" in scene.one(effects.AttemptFailed).ending.message


# --- Requests ---------------------------------------------------------------------------------------------------------


def test_a_call_is_sent_and_answered() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    assert scene.sent == [{"type": "publish", "id": 1, "request": 1, "topic": "t", "value": 1}]
    assert scene.machine.unanswered == 1
    scene.say(reply(1, 1, version=4, event="e"))
    answer = scene.one(effects.Resolved)
    assert (answer.call, answer.reply.version) == ("a", 4)
    assert scene.machine.unanswered == 0


def test_a_refused_call_is_rejected() -> None:
    scene = Scene().open()
    scene.subscribe("a", "t")
    scene.say(refuse(1, 1, "forbidden", "no"))
    assert isinstance(scene.one(effects.Rejected).error, Forbidden)


def test_a_call_that_is_refused_for_now_is_sent_again_when_its_time_has_come() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.say(refuse(1, 1, "grid_unavailable", "away", retry_after=1.0))
    assert scene.effects == []
    scene.wait(1.4)
    assert "publish" not in scene.sent_types
    scene.wait(0.2)
    assert [each["request"] for each in scene.sent if each["type"] == "publish"] == [2]


def test_a_withdrawn_call_is_not_told_of_and_tells_whether_it_was_sent() -> None:
    scene = Scene().open(limits=WELCOME["limits"] | {"requests": 1})
    scene.publish("sent", "t", 1)
    scene.publish("waiting", "t", 2)
    assert scene.withdraw("sent")
    assert not scene.withdraw("waiting")
    assert scene.withdraw("unknown"), "what was answered may have been executed"
    scene.say(reply(1, 1, version=1, event="e"))
    assert scene.effects == []
    assert scene.sent == []


def test_a_node_that_does_not_know_what_a_deselection_leaves_is_asked_for_it_anew() -> None:
    scene = Scene().open()
    scene.unsubscribe("a", "t/**", "t/1")
    assert [(each["type"], each["selector"]) for each in scene.sent] == [("unsubscribe", "t/**"), ("subscribe", "t/1")]
    knows = Scene().open(supports=["keep"])
    knows.unsubscribe("a", "t/**", "t/1")
    assert [(each["type"], each["keep"]) for each in knows.sent] == [("unsubscribe", ["t/1"])]
    knows.disconnected()
    knows.come_back(**FAILED_OVER)
    knows.say(reply(1, 1))
    assert [(each["type"], each["selector"]) for each in knows.sent] == [("subscribe", "t/1")]


def test_what_a_new_node_does_not_accept_is_rejected_and_not_sent() -> None:
    scene = Scene().open()
    scene.disconnected()
    scene.publish("a", "t", "x" * 2000)
    scene.come_back(**REATTACHED, limits=WELCOME["limits"] | {"message_bytes": 1024})
    assert scene.one(effects.Rejected).call == "a"


def test_properties_follow_the_replies() -> None:
    scene = Scene().open()
    scene.set_properties("a", {"room": "7"})
    assert scene.machine.properties == {"$session": "s-1"}
    scene.say(reply(1, 1))
    assert scene.machine.properties == {"$session": "s-1", "room": "7"}


# --- Losing and resuming ----------------------------------------------------------------------------------------------


def test_a_lost_connection_is_resumed_where_both_sides_were() -> None:
    scene = Scene().open()
    scene.say({"type": "update", "id": 1, "topic": "t", "version": 1, "event": "e", "value": 7})
    assert scene.updates == [("t", 7)]
    scene.publish("a", "t", 1)
    scene.disconnected()
    assert [type(each).__name__ for each in scene.effects] == ["Disconnect", "Lost"]
    assert scene.machine.session_state is SessionState.RECOVERING
    scene.wait(0.125)
    assert scene.one(effects.Connect).url == f"{URL}?node=n1"
    scene.connected()
    (resume,) = scene.sent
    assert (resume["token"], resume["attempt"], resume["received"], resume["oldest"]) == ("token-1", 1, 1, 1)
    assert (resume["away"], "secret" in resume) == (125, False)
    scene.welcome(**REATTACHED, resent=3)
    recovery = scene.one(effects.Recovered).recovery
    assert (recovery.outcome, recovery.resent, recovery.attempts) == ("reattached", 4, 1)
    assert recovery.gap_seconds == pytest.approx(0.125)
    assert recovery.cause == "the connection was lost"
    assert [(each["type"], each.get("id")) for each in scene.sent] == [("ack", None), ("publish", 1)]


def test_after_a_failover_what_is_unanswered_is_asked_again_and_values_follow() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.disconnected()
    scene.come_back(**FAILED_OVER)
    assert [type(each).__name__ for each in scene.effects] == ["FailedOver", "Recovered"]
    assert scene.one(effects.Recovered).recovery.resent == 1
    assert [(each["type"], each.get("resubmitted")) for each in scene.sent] == [("ack", None), ("publish", True)]
    scene.disconnected()
    scene.wait(1.0)
    assert scene.one(effects.Connect).url == f"{URL}?node=n2"


def test_what_the_grid_forgot_is_asked_for_before_all_else_and_declared() -> None:
    scene = Scene().open()
    scene.subscribe("a", "t/**")
    scene.say(reply(1, 1))
    scene.disconnected()
    scene.publish("b", "t", 1)
    scene.come_back(**FAILED_OVER)
    assert [each.notice.code for each in scene.of(effects.Noticed)] == ["promises_restored"]
    assert scene.sent_types == ["ack", "subscribe", "publish"]
    scene.say(refuse(1, 2, "forbidden", "not any more"))
    notice = scene.one(effects.Noticed).notice
    assert notice == SelectionsWithdrawn("permissions_withdrawn", "not any more", ("t/**",), ())


def test_what_cannot_be_restored_is_told() -> None:
    scene = Scene().open()
    scene.subscribe("a", "t/**")
    scene.say(reply(1, 1))
    scene.disconnected()
    scene.come_back(**FAILED_OVER)
    scene.say(refuse(1, 2, "too_many_selections", "full"))
    assert str(scene.one(effects.RepairRefused).error) == "full"


def test_a_welcome_for_another_session_does_not_fit() -> None:
    scene = Scene().open()
    scene.disconnected()
    scene.come_back(**REATTACHED, session="s-2")
    assert "it is for another session" in scene.one(effects.AttemptFailed).ending.message
    assert scene.one(effects.Disconnect).code == 4200


def test_a_numbering_that_nobody_knows_is_given_up_and_another_asked_for() -> None:
    scene = Scene().open()
    scene.disconnected()
    scene.come_back(outcome="beamed_up", token="token-2")
    assert scene.one(effects.Disconnect).code == 4000
    scene.wait(1.0)
    scene.connected()
    (resume,) = scene.sent
    assert (resume["token"], resume["received"], resume["oldest"]) == ("token-2", 0, 2**53 - 1)
    scene.welcome(**REATTACHED)
    assert "this client has given up" in scene.one(effects.AttemptFailed).ending.message
    scene.come_back(**FAILED_OVER)
    assert scene.stands(State.ATTACHED)


def test_the_window_ends_the_session() -> None:
    scene = Scene().open(window=1)
    scene.disconnected()
    while scene.machine.ended is None:
        if scene.stands(State.CONNECTING):
            scene.disconnected()
        else:
            scene.wait(0.1)
    assert isinstance(scene.machine.ended, SessionExpired)


def test_a_session_that_no_node_knows_is_over_for_everybody() -> None:
    scene = Scene().open()
    scene.publish("a", "t", 1)
    scene.disconnected()
    scene.wait(1.0)
    scene.connected()
    scene.say({"type": "error", "code": "session_unknown", "message": "never heard of it"})
    scene.disconnected(4202)
    assert [type(each).__name__ for each in scene.effects][-2:] == ["Rejected", "Ended"]
    assert isinstance(scene.machine.ended, SessionRefused)
    assert isinstance(scene.one(effects.Rejected).error, SessionRefused)
    with pytest.raises(SessionRefused):
        scene.publish("b", "t", 1)
    assert scene.machine.session_state is SessionState.CLOSED


def test_what_comes_late_does_nothing() -> None:
    scene = Scene(renewable=True, secret=None)
    scene.start()
    scene.abandon()
    scene.fetched("late")
    scene.not_fetched()
    scene.connected()
    scene.disconnected()
    scene.say({"type": "ping"})
    scene.abandon()
    scene.close()
    scene.wait(100.0)
    assert scene.effects == []


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
