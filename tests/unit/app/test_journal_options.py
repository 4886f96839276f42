"""How the settings of the journal become options; a key that cannot be used is refused loudly and never repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.journal.principals import hashed_with
from gateway.bootstrap.files import journal_of
from gateway.settings import ConfigurationError, Settings
from gateway.settings.checks import check
from gateway.settings.values import PrincipalNames

KEY = "0123456789abcdef0123456789abcdef"


def hashed(file: Path) -> Settings:
    return Settings(journal=True, journal_principals=PrincipalNames.HASHED, journal_principals_key_file=file)


def complaints(settings: Settings) -> list[str]:
    return [str(each) for each in check(settings, lambda _: "default") if "journal" in each.place]


def test_no_journal_has_no_options(tmp_path: Path) -> None:
    assert journal_of(Settings(journal_principals_key_file=tmp_path / "absent")) is None


def test_principals_are_told_as_they_are_unless_a_key_is_given(tmp_path: Path) -> None:
    plain = journal_of(Settings(journal=True))
    assert plain is not None
    assert plain.principals("alice") == "alice"
    file = tmp_path / "key"
    file.write_text(f"# of the journal\n{KEY}\n")
    options = journal_of(hashed(file))
    assert options is not None
    assert options.principals("alice") == hashed_with(KEY.encode())("alice")


@pytest.mark.parametrize("content", ["", "too-short\n", f"{KEY}\n{KEY[::-1]}\n"])
def test_a_key_file_that_cannot_be_used_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        journal_of(hashed(file))
    assert "key" in str(caught.value)
    assert KEY not in str(caught.value)
    assert "too-short" not in str(caught.value)


def test_hashed_without_a_key_and_a_key_without_hashed_are_refused(tmp_path: Path) -> None:
    (missing,) = complaints(Settings(journal=True, journal_principals=PrincipalNames.HASHED))
    assert "there is no key to hash principals with" in missing
    (unused,) = complaints(Settings(journal=True, journal_principals_key_file=tmp_path / "key"))
    assert "journal_principals hashed" in unused or "--journal-principals hashed" in unused
    assert complaints(Settings(journal=True)) == complaints(hashed(tmp_path / "key")) == []
