"""The vectors for clients in other languages are what the machine does, all of it; the JavaScript client plays them.

The replay is ``clients/javascript/test/vectors.test.mjs``, which runs with that client's own tests.
"""

from __future__ import annotations

from typing import Final

from gateway.core.client.transitions import TRANSITIONS, Event, State
from tests.clients.machine_vectors import FOLDER, text_of, transitions_of, vectors

ALL: Final = {(before, event, after) for before, row in TRANSITIONS.items() for event, after in row.items()}

NOT_JAVASCRIPT: Final = {(State.FINISHING, Event.END, State.ENDED)}
"""What the JavaScript client cannot be brought to do; the scenario says why."""


def test_the_files_are_what_the_machine_does() -> None:
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    made = {name: text_of(content) for name, content in vectors().items()}

    assert written == made, "run python -m tests.clients.machine_vectors"


def test_every_transition_is_made() -> None:
    assert transitions_of(vectors().values()) == ALL


def test_the_javascript_client_plays_every_transition_but_one() -> None:
    played = [
        content | {"scenarios": [each for each in content["scenarios"] if "not_javascript" not in each]}
        for content in vectors().values()
    ]

    assert transitions_of(played) == ALL - NOT_JAVASCRIPT


def test_no_vector_holds_what_differs_from_run_to_run() -> None:
    assert vectors() == vectors()
