"""The client's machine, input by input: what it does is what comes out."""

from __future__ import annotations

import pytest

from gateway.core.client import effects
from gateway.core.client.errors import (
    ConnectFailed,
    Forbidden,
    SessionExpired,
    SessionRefused,
    Unauthenticated,
)
from gateway.core.client.transitions import TRANSITIONS, Event, State, step
from gateway.core.client.types import Notice, SelectionsWithdrawn, SessionState
from gateway.core.wire.errors import LocalProtocolError
from gateway.core.wire.queue_packets import AckMode
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
            "supports": ["handed_over", "mirrored", "questions", "queues", "replay", "topology"],
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


@pytest.mark.promise("P2")
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


@pytest.mark.promise("P5")
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


@pytest.mark.promise("P2")
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


@pytest.mark.promise("P2")
def test_a_consumer_ends_from_whose_queue_the_session_may_not_consume_any_more() -> None:
    scene = Scene().open()
    for queue in ("jobs", "kept"):
        scene.machine.consumers.begin(queue, 4, AckMode.AUTO)
    told = {"withdrawn": [], "selections": [], "queues": ["jobs"]}
    scene.say({"type": "notice", "id": 1, "code": "permissions_withdrawn", "message": "not any more", **told})
    lost = scene.one(effects.ConsumerLost)
    assert (lost.queue, type(lost.error), str(lost.error)) == ("jobs", Forbidden, "not any more")
    assert scene.one(effects.Noticed).notice == Notice("permissions_withdrawn", "not any more")
    assert "jobs" not in scene.machine.consumers
    assert "kept" in scene.machine.consumers


@pytest.mark.promise("P2")
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


@pytest.mark.promise("P2")
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
