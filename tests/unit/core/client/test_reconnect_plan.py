"""The plan of connecting, with time and random numbers by hand."""

from __future__ import annotations

import pytest

from gateway.core.client.endings import Ending
from gateway.core.client.errors import (
    ConnectFailed,
    SessionClosed,
    SessionEnded,
    SessionExpired,
    SessionFailed,
    SessionRefused,
    Unauthenticated,
)
from gateway.core.client.reconnect_plan import MAX_VIOLATIONS, NextAttempt, ReconnectPlan
from gateway.core.client.urls import check_urls, describe_url, with_hints
from gateway.core.pacing.backoff import DEFAULT_BACKOFF, LEAST_BOUND
from gateway.core.types import NodeId
from gateway.core.wire.codes import ErrorCode, Reconnect
from gateway.core.wire.packets import Backoff
from gateway.core.wire.topology_packets import Cluster, ListedNode

A, B = "ws://a/v1/connect", "ws://b/v1/connect"
LOST = Ending(message="the connection was lost")
BACKOFF = Backoff(initial=1.0, maximum=8.0, stable_after=10.0)


def opened(*urls: str, window: float | None = None, granted: float = 60.0) -> ReconnectPlan:
    plan = ReconnectPlan(urls or (A,), connect_timeout=10.0, window=window, now=0.0)
    assert plan.next(0.0, 0.5) == NextAttempt(0.0, (urls or (A,))[0])
    plan.connected(node="n1", window=granted, backoff=BACKOFF, now=0.0)
    return plan


def attempt(plan: ReconnectPlan, now: float, random: float = 0.5) -> NextAttempt:
    following = plan.next(now, random)
    assert isinstance(following, NextAttempt)
    return following


# --- URLs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "checked"),
    [
        ("ws://h:1", ("ws://h:1/v1/connect",)),
        ("wss://h/", ("wss://h/v1/connect",)),
        ("https://h/behind/a/prefix?x=1#part", ("https://h/behind/a/prefix?x=1",)),
        (["ws://h", "ws://i"], ("ws://h/v1/connect", "ws://i/v1/connect")),
    ],
)
def test_urls_are_completed(given: str | list[str], checked: tuple[str, ...]) -> None:
    assert check_urls(given) == checked


@pytest.mark.parametrize("given", ["", "h:1", "redis://h", "ws:///path", []])
def test_what_is_no_url_is_refused(given: str | list[str]) -> None:
    with pytest.raises(ValueError, match="URL"):
        check_urls(given)


def test_a_refused_url_is_named_without_its_secrets() -> None:
    with pytest.raises(ValueError, match=r"redis://h/") as caught:
        check_urls("redis://user:hunter2@h/?token=hunter2")
    assert "hunter2" not in str(caught.value)
    assert describe_url("wss://user:hunter2@h:1/p?token=hunter2#x") == "wss://h:1/p"


def test_hints_replace_others_and_leave_the_rest_of_the_query() -> None:
    assert with_hints("ws://h/p?a=1&node=n9&b=", "n 2", None) == "ws://h/p?a=1&b=&node=n+2"
    assert with_hints("ws://h/p?backup=n9&a=1", "n1", "n2") == "ws://h/p?a=1&node=n1&backup=n2"
    assert with_hints("ws://h/p?node=n9&backup=n8", None, None) == "ws://h/p"


# --- Opening ----------------------------------------------------------------------------------------------------------


def test_the_first_attempt_is_made_at_once_and_the_next_after_a_random_delay() -> None:
    plan = ReconnectPlan((A, B), connect_timeout=10.0, window=None, now=0.0)
    assert attempt(plan, 0.0) == NextAttempt(0.0, A)
    plan.failed(LOST, 0.0)

    assert attempt(plan, 0.0, 0.5) == NextAttempt(DEFAULT_BACKOFF.initial / 2, B)
    plan.failed(LOST, 0.0)
    assert attempt(plan, 0.0, 0.5) == NextAttempt(DEFAULT_BACKOFF.initial, A)
    assert plan.attempts == 3


def test_opening_ends_when_its_time_is_over() -> None:
    plan = ReconnectPlan((A,), connect_timeout=10.0, window=None, now=0.0)
    attempt(plan, 0.0)
    plan.failed(Ending(message="nobody there", error=ErrorCode.GRID_UNAVAILABLE), 10.0)
    error = plan.next(10.0, 0.5)

    assert isinstance(error, ConnectFailed)
    assert str(error) == "no session within 10 s; last: nobody there"
    assert error.retryable
    assert error.code is ErrorCode.GRID_UNAVAILABLE


def test_wrong_credentials_end_the_opening() -> None:
    for ending in (
        Ending(message="no", code=4201),
        Ending(message="no", error=ErrorCode.UNAUTHENTICATED),
    ):
        plan = ReconnectPlan((A, B), connect_timeout=10.0, window=None, now=0.0)
        attempt(plan, 0.0)
        plan.failed(ending, 0.0)
        error = plan.next(0.0, 0.5)

        assert isinstance(error, Unauthenticated)
        assert not error.retryable


def test_only_when_every_url_is_useless_opening_ends_early() -> None:
    plan = ReconnectPlan((A, B), connect_timeout=10.0, window=None, now=0.0)
    attempt(plan, 0.0)
    plan.failed(Ending(message="not found", permanent=True), 0.0)
    assert attempt(plan, 0.0).url == B
    plan.failed(Ending(message="not found either", permanent=True), 0.0)
    error = plan.next(0.0, 0.5)

    assert isinstance(error, ConnectFailed)
    assert str(error) == "not found either"
    assert not error.retryable


# --- Resuming ---------------------------------------------------------------------------------------------------------


def test_the_first_retry_has_full_jitter_and_the_bound_doubles() -> None:
    plan = opened()
    plan.lost(LOST, 5.0)
    delays = []
    for _ in range(5):
        delays.append(attempt(plan, 5.0, 0.999).delay)
        plan.failed(LOST, 5.0)

    assert delays == pytest.approx([0.999, 1.998, 3.996, 7.992, 7.992])


def test_the_bound_falls_back_only_after_a_connection_that_lasted() -> None:
    plan = opened()
    plan.lost(LOST, 5.0)
    for _ in range(3):
        attempt(plan, 5.0)
        plan.failed(LOST, 5.0)
    plan.connected(node="n1", window=60.0, backoff=BACKOFF, now=6.0)
    plan.lost(LOST, 15.9)
    assert attempt(plan, 15.9).delay == 4.0
    plan.connected(node="n1", window=60.0, backoff=BACKOFF, now=16.0)
    plan.lost(LOST, 26.0)
    assert attempt(plan, 26.0).delay == 0.5


def test_later_means_from_the_longest_bound_and_advice_is_kept() -> None:
    plan = opened()
    plan.lost(Ending(message="full", code=4100), 0.0)
    assert attempt(plan, 0.0).delay == 4.0
    plan.failed(Ending(message="not yet", code=4101, error=ErrorCode.TRY_LATER, retry_after=3.0), 0.0)
    assert attempt(plan, 0.0).delay == 7.0


def test_the_hint_leads_back_to_the_node_until_it_hangs() -> None:
    plan = opened()
    plan.lost(LOST, 0.0)
    assert attempt(plan, 0.0).url == f"{A}?node=n1"
    plan.failed(LOST, 0.0)
    assert attempt(plan, 0.0).url == f"{A}?node=n1"
    plan.failed(Ending(message="no answer", hung=True), 0.0)
    assert attempt(plan, 0.0).url == A


def test_a_node_that_goes_away_is_not_asked_for_and_the_next_url_comes_first() -> None:
    for ending in (Ending(message="drain", planned=True, code=4000), Ending(message="drain", code=4000)):
        plan = opened(A, B)
        plan.lost(ending, 0.0)
        first = attempt(plan, 0.0)

        assert first.url == B
        assert first.delay == (0.0 if ending.planned else 0.5), "who left on request has waited already"
        plan.failed(LOST, 0.0)
        assert attempt(plan, 0.0).delay > 0


@pytest.mark.promise("P1")
def test_the_backup_is_named_behind_the_node() -> None:
    plan = backed_up()
    plan.lost(LOST, 0.0)
    for url in (A, B, A):
        assert attempt(plan, 0.0).url == f"{url}?node=n1&backup=n2"
        plan.failed(LOST, 0.0)


def test_of_two_nodes_that_do_not_answer_each_is_left_out_in_turn() -> None:
    """A node that hangs is followed by its backup, and not by any other."""
    plan = backed_up()
    plan.lost(LOST, 0.0)
    urls = []
    for _ in range(4):
        urls.append(attempt(plan, 0.0).url)
        plan.failed(Ending(message="no welcome", hung=True), 0.0)
    assert urls == [f"{A}?node=n1&backup=n2", f"{B}?backup=n2", A, B]


@pytest.mark.parametrize("ending", [Ending(message="go", planned=True), Ending(message="gone", code=4000)])
def test_who_is_asked_to_go_goes_to_no_backup(ending: Ending) -> None:
    """The session is handed over to whatever node it comes to."""
    plan = backed_up()
    plan.lost(ending, 0.0)
    assert attempt(plan, 0.0).url == B


def test_the_backup_of_the_last_welcome_counts() -> None:
    plan = backed_up()
    plan.lost(LOST, 0.0)
    attempt(plan, 0.0)
    plan.connected(node="n2", window=60.0, backoff=BACKOFF, now=0.0)
    plan.lost(LOST, 1.0)
    assert attempt(plan, 1.0).url == f"{A}?node=n2"


def backed_up() -> ReconnectPlan:
    """Make the plan of a session that n1 serves, and of which n2 has a copy."""
    plan = ReconnectPlan((A, B), connect_timeout=10.0, window=None, now=0.0)
    attempt(plan, 0.0)
    plan.connected(node="n1", backup="n2", window=60.0, backoff=BACKOFF, now=0.0)
    return plan


def test_the_urls_are_tried_in_turn_beginning_with_the_last_good_one() -> None:
    plan = opened(A, B)
    plan.lost(LOST, 0.0)
    urls = []
    for _ in range(3):
        urls.append(attempt(plan, 0.0).url)
        plan.failed(LOST, 0.0)
    attempt(plan, 0.0)
    plan.connected(node="n2", window=60.0, backoff=BACKOFF, now=0.0)
    plan.lost(LOST, 1.0)

    assert urls == [f"{A}?node=n1", f"{B}?node=n1", f"{A}?node=n1"]
    assert attempt(plan, 1.0).url == f"{B}?node=n2"
    assert plan.attempts == 1


@pytest.mark.parametrize(("mine", "granted", "end"), [(None, 30.0, 30.0), (20.0, 30.0, 20.0), (40.0, 30.0, 30.0)])
def test_the_shorter_window_counts_from_the_loss(mine: float | None, granted: float, end: float) -> None:
    plan = opened(window=mine, granted=granted)
    assert plan.remaining(50.0) is None
    plan.lost(LOST, 100.0)
    attempt(plan, 100.0)
    plan.failed(Ending(message="nobody there"), 101.0)

    assert plan.remaining(101.0) == end - 1
    assert isinstance(plan.next(100.0 + end - 1, 0.5), NextAttempt)
    error = plan.next(100.0 + end, 0.5)
    assert isinstance(error, SessionExpired)
    assert str(error) == f"no node took the session back within its window of {end:g} s; last: nobody there"
    assert plan.remaining(1000.0) == 0.0


def test_a_delay_never_reaches_beyond_the_window() -> None:
    plan = opened(granted=2.0)
    plan.lost(Ending(message="full", code=4100), 0.0)

    assert attempt(plan, 0.0, 0.9).delay == 1.8
    assert isinstance(plan.next(2.0 - LEAST_BOUND / 2, 0.9), SessionExpired)


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (Ending(message="m", code=4204), SessionExpired),
        (Ending(message="m", code=4202, error=ErrorCode.SESSION_EXPIRED), SessionExpired),
        (Ending(message="m", code=4205), SessionClosed),
        (Ending(message="m", code=1000), SessionClosed),
        (Ending(message="m", error=ErrorCode.SESSION_CLOSED), SessionClosed),
        (Ending(message="m", code=4203), SessionRefused),
        (Ending(message="m", error=ErrorCode.TOKEN_INVALID), SessionRefused),
    ],
)
def test_the_end_says_why(ending: Ending, error: type[SessionEnded]) -> None:
    plan = opened()
    plan.lost(LOST, 0.0)
    plan.failed(ending, 0.0)
    over = plan.next(0.0, 0.5)

    assert type(over) is error
    assert (str(over), over.code) == ("m", ending.error)


def test_a_connection_that_is_closed_as_revoked_ends_the_session_with_that_code() -> None:
    plan = opened()
    plan.lost(Ending(message="m", code=4206), 0.0)
    over = plan.next(0.0, 0.5)

    assert type(over) is SessionRefused
    assert over.code is ErrorCode.REVOKED


def test_without_a_close_code_the_error_packet_decides() -> None:
    assert Ending(message="", error=ErrorCode.TRY_LATER).reconnect is Reconnect.LATER
    assert Ending(message="", error=ErrorCode.STALE_ATTEMPT).reconnect is Reconnect.LATER
    assert Ending(message="", error=ErrorCode.SESSION_UNKNOWN).reconnect is Reconnect.NEVER
    assert Ending(message="", error=ErrorCode.SESSION_UNKNOWN, code=4101).reconnect is Reconnect.LATER
    assert Ending(message="").reconnect is Reconnect.AT_ONCE


@pytest.mark.parametrize(
    "violation",
    [
        Ending(message="unknown packet type", code=4200, violation=True),
        Ending(message="the node says: unknown packet type", code=4200),
        Ending(message="the node says: unknown packet type", code=1009),
    ],
)
def test_broken_protocols_are_forgiven_if_connections_last_in_between(violation: Ending) -> None:
    plan = opened()
    for _ in range(MAX_VIOLATIONS - 1):
        plan.lost(violation, 1.0)
        plan.connected(node="n1", window=60.0, backoff=BACKOFF, now=1.0)
    plan.lost(violation, 20.0)
    assert isinstance(plan.next(20.0, 0.5), NextAttempt)

    for _ in range(MAX_VIOLATIONS - 1):
        plan.connected(node="n1", window=60.0, backoff=BACKOFF, now=21.0)
        plan.lost(violation, 21.0)
    error = plan.next(21.0, 0.5)
    assert isinstance(error, SessionFailed)
    assert "unknown packet type" in str(error)


def test_a_welcome_that_does_not_fit_is_no_reason_to_give_up_at_once() -> None:
    plan = opened()
    plan.lost(LOST, 0.0)
    plan.failed(Ending(message="wrong session", code=4200, violation=True), 0.0)

    assert attempt(plan, 0.0).delay == 4.0


def test_a_refusal_before_the_handshake_tells_the_least_delay() -> None:
    plan = opened("ws://a/v1/connect")
    plan.lost(Ending(message="lost"), 10.0)
    attempt(plan, 10.0, random=0.0)
    plan.failed(Ending(message="HTTP 503", retry_after=3.0), 10.0)
    assert attempt(plan, 10.0, random=0.0).delay == 3.0


def test_new_advice_on_an_open_connection_counts_for_the_next_loss() -> None:
    plan = opened("ws://a/v1/connect")
    plan.advised(Backoff(initial=8.0, maximum=10.0, stable_after=10.0))
    plan.lost(Ending(message="lost"), 5.0)
    assert attempt(plan, 5.0, random=0.5).delay == 4.0


# --- What the cluster lists -------------------------------------------------------------------------------------------


def listing(**nodes: str) -> Cluster:
    return Cluster("r", tuple(ListedNode(NodeId(node), (url,)) for node, url in nodes.items()))


def test_what_the_cluster_lists_comes_behind_what_was_given() -> None:
    plan = opened(A)
    plan.listed(listing(n1="ws://one", n2="ws://two", n3=A))
    assert plan.urls == (A, "ws://one/v1/connect", "ws://two/v1/connect")
    plan.lost(LOST, 0.0)
    urls = []
    for _ in range(4):
        urls.append(attempt(plan, 0.0).url.partition("?")[0])
        plan.failed(LOST, 0.0)
    assert urls == [A, "ws://one/v1/connect", "ws://two/v1/connect", A]


def test_nodes_that_are_gone_are_forgotten_and_the_place_is_kept() -> None:
    plan = opened(A)
    plan.listed(listing(n1="ws://one", n2="ws://two"))
    plan.lost(Ending(message="go", planned=True, node="n2"), 0.0)
    assert attempt(plan, 0.0).url == "ws://two/v1/connect?node=n2"
    plan.connected(node="n2", cluster=listing(n2="ws://two"), window=60.0, backoff=BACKOFF, now=0.0)
    assert list(plan.urls) == [A, "ws://two/v1/connect"]
    plan.lost(LOST, 0.0)
    assert attempt(plan, 0.0).url == "ws://two/v1/connect?node=n2", "the one that worked last"
    plan.connected(node="n2", cluster=None, window=60.0, backoff=BACKOFF, now=0.0)
    assert list(plan.urls) == [A]
    plan.lost(LOST, 0.0)
    assert attempt(plan, 0.0).url == f"{A}?node=n2"


def test_who_is_sent_to_a_node_goes_straight_there_if_it_is_listed() -> None:
    plan = opened(A, B)
    plan.listed(listing(n2="ws://two", n3="ws://three"))
    plan.lost(Ending(message="go", planned=True, node="n3"), 0.0)
    assert attempt(plan, 0.0).url == "ws://three/v1/connect?node=n3"
    plan.failed(LOST, 0.0)
    assert attempt(plan, 0.0).url == f"{A}?node=n3", "unreachable: the next one"


def test_who_does_not_discover_goes_by_what_was_given() -> None:
    plan = ReconnectPlan((A,), connect_timeout=10.0, window=None, now=0.0, discover=False)
    plan.listed(listing(n1="ws://one"))
    assert plan.urls == (A,)
