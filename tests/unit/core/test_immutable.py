"""Values that nobody changes, made fast."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from gateway.core.immutable import immutable


@immutable
class Place:
    """By position or by name."""

    row: int
    seat: str = "a"


@immutable(kw_only=True)
class Ticket:
    """By name alone."""

    place: Place
    secret: str = field(default="", repr=False)


def test_equal_values_are_equal_and_have_the_same_hash() -> None:
    assert Place(1) == Place(row=1, seat="a")
    assert hash(Place(1)) == hash(Place(1, "a"))
    assert Place(1) != Place(2)
    assert len({Ticket(place=Place(1)), Ticket(place=Place(1)), Ticket(place=Place(2))}) == 2


def test_fields_are_given_by_name_alone_where_that_is_asked_for() -> None:
    with pytest.raises(TypeError):
        Ticket(Place(1))  # type: ignore[call-arg]


def test_another_value_is_made_in_the_place_of_a_change() -> None:
    assert replace(Place(1), seat="b") == Place(1, "b")


def test_there_is_no_room_for_other_attributes() -> None:
    assert not hasattr(Place(1), "__dict__")


def test_what_is_secret_is_not_shown() -> None:
    assert "open sesame" not in repr(Ticket(place=Place(1), secret="open sesame"))


def test_the_type_checker_refuses_a_change() -> None:
    """The comment is what fails if it does not: mypy, strict, tells of one that is not needed."""
    place = Place(1)
    place.row = 2  # type: ignore[misc]
