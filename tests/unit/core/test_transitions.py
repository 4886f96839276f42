"""The table of states is complete: every pair leads somewhere, or fails with an error that names both."""

from __future__ import annotations

from itertools import product

import pytest

from gateway.core.stream.transitions import TRANSITIONS, Input, State, step
from gateway.core.wire.errors import LocalProtocolError

F, A, D, R, G, C = (
    State.FRESH,
    State.ATTACHED,
    State.DETACHED,
    State.RESUMING,
    State.GAP,
    State.CLOSED,
)

# The specification, written a second time and read the other way: by input, one letter per state, "." for an error.
#                   FRESH ATTACHED DETACHED RESUMING GAP CLOSED
BY_INPUT = {
    Input.OPEN: "A.....",
    Input.SUBMIT: ".ADRG.",
    Input.FLUSH: ".ADRGC",
    Input.RECEIVE: ".A....",
    Input.TICK: "FADRGC",
    Input.DETACH: ".DDDGC",
    Input.RESUME: "..R.G.",
    Input.REATTACH: "...A..",
    Input.RESTART: "...AA.",
    Input.OVERFLOW: "..GG..",
    Input.CLOSE: "CCCCCC",
}
LETTERS = {"F": F, "A": A, "D": D, "R": R, "G": G, "C": C}


@pytest.mark.parametrize(("state", "event"), list(product(State, Input)), ids=lambda each: each.value)
def test_every_pair_leads_where_it_should_or_is_an_error_that_names_both(state: State, event: Input) -> None:
    letter = BY_INPUT[event][[F, A, D, R, G, C].index(state)]

    if letter == ".":
        with pytest.raises(LocalProtocolError, match=f"^{event.value} makes no sense in state {state.value}$"):
            step(state, event)
    else:
        assert step(state, event) is LETTERS[letter]


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_input_has_an_effect_somewhere() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(Input)


def test_every_state_can_be_reached() -> None:
    reached = {State.FRESH}
    while further := {to for state in reached for to in TRANSITIONS[state].values()} - reached:
        reached |= further

    assert reached == set(State)


def test_nothing_leads_out_of_closed() -> None:
    assert set(TRANSITIONS[State.CLOSED].values()) == {State.CLOSED}


def test_no_path_leads_from_a_gap_to_reattaching() -> None:
    """A gap is declared by a restart, or the session ends; it is never skipped over (P2)."""
    without_restart = {
        state: {to for event, to in row.items() if event is not Input.RESTART} for state, row in TRANSITIONS.items()
    }
    reached = {State.GAP}
    while further := {to for state in reached for to in without_restart[state]} - reached:
        reached |= further

    assert reached == {State.GAP, State.CLOSED}


def test_close_is_possible_everywhere() -> None:
    assert all(row[Input.CLOSE] is State.CLOSED for row in TRANSITIONS.values())
