"""Who has to go when all places at the admin port are taken."""

from __future__ import annotations

from gateway.adapters.admin.places import Places


def test_there_is_room_until_there_is_none() -> None:
    places = Places[str](unauthenticated=4)

    assert [places.enter(each) for each in "abcd"] == [None] * 4
    assert places.enter("e") == "a"
    assert (places.unauthenticated, places.callers) == (5, 0), (
        "who has to go is ended by the caller, which makes it leave"
    )


def test_of_the_idle_the_one_that_was_heard_longest_ago_goes() -> None:
    places = Places[str](unauthenticated=4)
    for each in "abcd":
        places.enter(each)
    places.begin("a")
    places.rest("a")

    assert places.enter("e") == "b"


def test_a_request_under_way_keeps_its_place_while_others_are_idle() -> None:
    places = Places[str](unauthenticated=4)
    for each in "abcd":
        places.enter(each)
    places.begin("a")

    assert places.enter("e") == "b"


def test_the_newest_half_of_the_idle_is_not_sacrificed_to_requests_that_last() -> None:
    """Else whoever keeps requests under way would have all who have just come closed before they could ask."""
    places = Places[str](unauthenticated=4)
    for each in "abcd":
        places.enter(each)
        places.begin(each)

    for each, leaves in [("e", "a"), ("f", "b"), ("g", "e"), ("h", "f")]:
        assert places.enter(each) == leaves
        places.leave(leaves)


def test_a_caller_takes_no_place_of_unauthenticated_clients_and_they_take_none_of_callers() -> None:
    places = Places[str](unauthenticated=2, callers=2)
    for each in "ab":
        places.enter(each)
        assert places.promote(each) is None
    assert (places.unauthenticated, places.callers) == (0, 2)

    for each in "cdef":
        if (leaves := places.enter(each)) is not None:
            places.leave(leaves)
    assert set(places) == {"a", "b", "e", "f"}


def test_of_callers_the_idle_one_goes_and_none_whose_request_is_under_way() -> None:
    places = Places[str](unauthenticated=9, callers=2)
    for each in "abcd":
        places.enter(each)
    places.promote("a")
    places.promote("b")

    assert places.promote("c") is None, "both are busy: it stays where it is"
    assert (places.unauthenticated, places.callers) == (2, 2)
    places.rest("b")
    assert places.promote("d") == "b"


def test_bytes_are_bounded_for_all_unauthenticated_clients_together() -> None:
    places = Places[str](most_bytes=100)
    for each in "abc":
        places.enter(each)

    assert places.hold("a", 60) == []
    assert places.hold("b", 40) == []
    assert places.hold("b", 30) == []
    assert places.held_bytes == 90
    assert places.hold("c", 11) == ["a"]
    places.leave("a")
    assert places.held_bytes == 41
    places.release("b")
    assert places.held_bytes == 11


def test_one_answer_is_always_allowed_and_callers_are_not_counted() -> None:
    places = Places[str](most_bytes=100)
    places.enter("a")
    assert places.hold("a", 1000) == []
    places.promote("a")
    assert places.held_bytes == 0
    assert places.hold("a", 1000) == []
    assert places.held_bytes == 0
