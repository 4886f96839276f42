"""What strangers wrote is shown, and never obeyed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("prices/ACME — ü 💥", "prices/ACME — ü 💥"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r\tc\0", r"a\nb\r\tc\x00"),
        ("\u202eevil\u2028", r"\u202eevil\u2028"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_cannot_be_seen_is_written_as_its_code(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_everything_can_be_seen(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
