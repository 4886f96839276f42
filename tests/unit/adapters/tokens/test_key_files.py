"""The files of token keys: every step of a rollover, and what interrupts one."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.tokens import KeyFiles, KeyFilesError, KeyUse, key_id, when
from gateway.adapters.tokens import key_files as module
from gateway.adapters.tokens.key_files import ROLL_OUT, KeyEntry, KeyText, KeyTimes
from gateway.settings import ConfigurationError, Secret, load

NOW = 1_800_000_000.0
LIFE = 3600.0
OLD, OLDER = "the-old-key-of-this-cluster", "the-even-older-key-of-this-cluster"

Files = Callable[[], KeyFiles]


@pytest.fixture
def signing(tmp_path: Path) -> Path:
    return tmp_path / "token-keys"


@pytest.fixture
def verifying(tmp_path: Path) -> Path:
    return tmp_path / "token-verify-keys"


@pytest.fixture
def files(signing: Path, verifying: Path) -> KeyFiles:
    return KeyFiles(signing, verifying, life=LIFE)


def uses(files: KeyFiles) -> list[tuple[str, KeyUse]]:
    return [(each.id, each.use) for each in files.list()]


def nodes_can_read(signing: Path, verifying: Path) -> tuple[int, int]:
    """Load both files as a node does; return how many keys sign or have signed, and how many only verify."""
    environment = {"GATEWAY_TOKEN_KEYS_FILE": str(signing), "GATEWAY_TOKEN_VERIFY_KEYS_FILE": str(verifying)}
    settings = load(flags={"dev": "true"}, environment=environment).settings
    return len(settings.token_keys), len(settings.token_verify_keys)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


# --- The steps --------------------------------------------------------------------------------------------------------


def test_a_whole_rollover(files: KeyFiles, signing: Path, verifying: Path) -> None:
    first = files.create(now=NOW)
    assert (first.use, first.file) == (KeyUse.SIGNS, signing)
    assert nodes_can_read(signing, verifying) == (1, 0)

    second = files.create(now=NOW + 10)
    assert (second.use, second.file) == (KeyUse.NEXT, verifying)
    assert uses(files) == [(first.id, KeyUse.SIGNS), (second.id, KeyUse.NEXT)]
    assert nodes_can_read(signing, verifying) == (1, 1)

    promoted = files.promote(second.id, now=NOW + 20)
    assert promoted.use is KeyUse.SIGNS
    assert uses(files) == [(first.id, KeyUse.FORMER), (second.id, KeyUse.SIGNS)]
    assert nodes_can_read(signing, verifying) == (2, 0)

    former, signs = files.list()
    assert former.times == KeyTimes(created=NOW, promoted=NOW, demoted=NOW + 20)
    assert signs.times == KeyTimes(created=NOW + 10, promoted=NOW + 20)
    assert former.retirable == NOW + 20 + LIFE + ROLL_OUT
    with pytest.raises(KeyFilesError, match=rf"valid tokens of key {first.id} \(until {when(former.retirable)}\)"):
        files.retire(first.id, now=former.retirable - 1)
    files.retire(first.id, now=former.retirable)
    assert uses(files) == [(second.id, KeyUse.SIGNS)]
    assert nodes_can_read(signing, verifying) == (1, 0)


def test_keys_are_random_and_new_files_are_private(files: KeyFiles, signing: Path, verifying: Path) -> None:
    made = {files.create(now=NOW).id for _ in range(20)}

    assert len(made) == 20
    assert (mode(signing), mode(verifying)) == (0o600, 0o600)
    keys = [each.key.reveal() for file in (signing, verifying) for each in KeyText(file.read_text()).entries]
    assert all(len(key) == 43 for key in keys)
    assert not any(each.startswith("-") for each in made), "on a command line it would be a flag"


def test_the_key_that_signs_cannot_be_retired_not_even_by_force(files: KeyFiles) -> None:
    first = files.create(now=NOW)
    with pytest.raises(KeyFilesError, match="promote another one first"):
        files.retire(first.id, now=NOW + 10 * LIFE, force=True)


def test_a_leaked_key_is_retired_by_force(files: KeyFiles) -> None:
    first, second = files.create(now=NOW), files.create(now=NOW)
    files.promote(second.id, now=NOW)
    files.retire(first.id, now=NOW, force=True)
    assert uses(files) == [(second.id, KeyUse.SIGNS)]


def test_a_key_that_never_signed_can_go_at_any_time(files: KeyFiles, verifying: Path) -> None:
    files.create(now=NOW)
    second = files.create(now=NOW)
    assert second.retirable == 0
    files.retire(second.id, now=NOW)
    assert KeyText(verifying.read_text()).entries == ()


def test_keys_of_which_nobody_noted_anything_are_retired_by_force_only(files: KeyFiles, signing: Path) -> None:
    signing.write_text(f"{OLDER}\n{OLD}\n")
    older = key_id(OLDER.encode())
    assert files.list()[0].retirable is None
    with pytest.raises(KeyFilesError, match="the file does not note since when"):
        files.retire(older, now=NOW)
    files.retire(older, now=NOW, force=True)
    assert signing.read_text() == f"{OLD}\n"


def test_a_promotion_can_be_taken_back(files: KeyFiles) -> None:
    first, second = files.create(now=NOW), files.create(now=NOW)
    files.promote(second.id, now=NOW + 10)
    files.promote(first.id, now=NOW + 20)

    former, signs = files.list()
    assert (former.id, former.times.demoted) == (second.id, NOW + 20)
    assert (signs.id, signs.times.promoted, signs.times.demoted) == (first.id, NOW + 20, None)


def test_what_signs_already_is_not_promoted(files: KeyFiles) -> None:
    first = files.create(now=NOW)
    with pytest.raises(KeyFilesError, match="signs already"):
        files.promote(first.id, now=NOW)


def test_an_unknown_key_is_answered_by_those_that_there_are(files: KeyFiles) -> None:
    with pytest.raises(KeyFilesError, match="there are: none"):
        files.promote("nothing", now=NOW)
    first = files.create(now=NOW)
    for step in (lambda: files.promote("nothing", now=NOW), lambda: files.retire("nothing", now=NOW)):
        with pytest.raises(KeyFilesError, match=f"there is no key nothing; there are: {first.id}"):
            step()


def test_a_second_key_needs_a_file_in_which_it_does_not_sign(signing: Path) -> None:
    files = KeyFiles(signing, None, life=LIFE)
    files.create(now=NOW)
    before = signing.read_text()
    with pytest.raises(KeyFilesError, match="token_verify_keys_file"):
        files.create(now=NOW)
    assert signing.read_text() == before


# --- What stands there stays ------------------------------------------------------------------------------------------


def test_what_people_wrote_stays_where_it_is(files: KeyFiles, signing: Path, verifying: Path) -> None:
    signing.write_text(f"# Vienna\n\n{OLDER}\n   # mine, do not touch\n{OLD}\n# the end\n")
    verifying.write_text("# next ones\n")
    made = files.create(now=NOW)
    files.promote(made.id, now=NOW)
    files.retire(key_id(OLDER.encode()), now=NOW, force=True)

    notes = rf"# key {key_id(OLD.encode())}: demoted {when(NOW)}"
    kept = signing.read_text()
    assert kept.startswith(f"# Vienna\n\n   # mine, do not touch\n{notes}\n{OLD}\n# the end\n# key {made.id}: created")
    assert verifying.read_text() == "# next ones\n"


_COMMENTS = st.text(st.characters(exclude_categories=("C", "Z")), max_size=10).map("# {}".format)
_KEYS = st.text("abcdefgh", min_size=16, max_size=20)
_LINES = st.lists(st.one_of(_COMMENTS, st.just(""), _KEYS), unique=True, max_size=12)


@given(_LINES, _KEYS, st.floats(0, 4e9).map(round))
def test_changes_of_the_text_touch_nothing_else(lines: list[str], key: str, time: int) -> None:
    text = KeyText("\n".join(lines))
    entry = KeyEntry(key_id(key.encode()), Secret(key), KeyTimes(created=float(time)))
    before = [each.key for each in text.entries]

    if text.get(entry.id) is None:
        added = text.with_key(entry)
        assert [each.key for each in added.entries] == [*before, entry.key]
        assert added.entries[-1].times.created == time
        noted = added.noting(entry.id, promoted=float(time))
        assert noted.entries[-1].times == KeyTimes(created=float(time), promoted=float(time))
        assert str(noted.without(entry.id)) == str(added.without(entry.id)) == str(text)
    else:
        left = text.without(entry.id)
        assert [line for line in str(left).splitlines() if line] == [line for line in lines if line and line != key]
    assert str(KeyText(str(text))) == str(text)


def test_times_that_nobody_can_read_count_as_not_noted() -> None:
    note = (
        f"# key {key_id(OLD.encode())}: created 2026-02-31T00:00:00Z, demoted yesterday, promoted 2026-03-01T00:00:00Z"
    )
    (entry,) = KeyText(f"{note}\n{OLD}\n").entries
    assert entry.times == KeyTimes(promoted=1772323200.0)


# --- Faults -----------------------------------------------------------------------------------------------------------


def test_no_key_is_ever_shown(files: KeyFiles, signing: Path) -> None:
    files.create(now=NOW)
    files.create(now=NOW)
    keys = [each.key.reveal() for each in KeyText(signing.read_text()).entries]
    shown = f"{files.list()!r} {KeyText(signing.read_text())!r} {KeyText(signing.read_text()).entries!r}"
    assert not any(key in shown for key in keys)


@pytest.mark.parametrize("interrupted", [1, 2])
def test_an_interrupted_promotion_loses_no_key_and_can_be_asked_for_again(
    files: KeyFiles, signing: Path, verifying: Path, monkeypatch: pytest.MonkeyPatch, interrupted: int
) -> None:
    first, second = files.create(now=NOW), files.create(now=NOW)
    write, writes = module._write, 0

    def failing(file: Path, text: KeyText) -> None:
        nonlocal writes
        writes += 1
        if writes == interrupted:
            raise OSError("no space left on device")
        write(file, text)

    with monkeypatch.context() as patched:
        patched.setattr(module, "_write", failing)
        with pytest.raises(OSError, match="no space left"):
            files.promote(second.id, now=NOW + 10)

    assert {each.id for each in files.list()} == {first.id, second.id}
    assert sum(nodes_can_read(signing, verifying)) == 2
    files.promote(second.id, now=NOW + 20)
    assert uses(files) == [(first.id, KeyUse.FORMER), (second.id, KeyUse.SIGNS)]
    assert KeyText(verifying.read_text()).entries == ()


def test_retiring_after_an_interrupted_promotion_leaves_no_copy(
    files: KeyFiles, signing: Path, verifying: Path
) -> None:
    first, second = files.create(now=NOW), files.create(now=NOW)
    both = verifying.read_text()
    files.promote(second.id, now=NOW)
    verifying.write_text(both)
    files.promote(first.id, now=NOW)
    files.retire(second.id, now=NOW, force=True)
    assert uses(files) == [(first.id, KeyUse.SIGNS)]
    assert nodes_can_read(signing, verifying) == (1, 0)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    files: KeyFiles, signing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.create(now=NOW)
    before = {each: each.read_bytes() for each in signing.parent.iterdir()}

    def full(_descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        files.create(now=NOW)
    assert {each: each.read_bytes() for each in signing.parent.iterdir()} == before


def test_two_commands_at_once_do_not_undo_each_other(files: KeyFiles, signing: Path) -> None:
    first = files.create(now=NOW)
    lock = signing.with_name(f".{signing.name}.lock")
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for step in (
            lambda: files.create(now=NOW),
            lambda: files.promote(first.id, now=NOW),
            lambda: files.retire(first.id, now=NOW),
        ):
            with pytest.raises(KeyFilesError, match="another command"):
                step()
    files.create(now=NOW)
    assert mode(lock) == 0o600


def test_a_bad_file_is_told_by_its_line_and_left_alone(files: KeyFiles, signing: Path) -> None:
    signing.write_text(f"{OLD}\ntoo-short\n")
    with pytest.raises(ConfigurationError, match=re.escape(f"{signing}:2")) as refused:
        files.create(now=NOW)
    assert "too-short" not in str(refused.value)
    assert signing.read_text() == f"{OLD}\ntoo-short\n"


@pytest.mark.parametrize(
    ("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o640), (0o666, 0o640), (0o400, 0o600)]
)
def test_files_stay_readable_for_their_group_and_for_nobody_else(
    files: KeyFiles, signing: Path, before: int, after: int
) -> None:
    signing.write_text(f"{OLD}\n")
    signing.chmod(before)
    assert list(files.exposed()) == ([signing] if before & 0o004 else [])
    made = files.create(now=NOW)
    files.promote(made.id, now=NOW)
    assert mode(signing) == after
    assert list(files.exposed()) == []


def test_a_link_is_followed_and_not_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "token-keys"
    real.write_text(f"{OLD}\n")
    link.symlink_to(real)
    files = KeyFiles(link, tmp_path / "verify", life=LIFE)
    made = files.create(now=NOW)
    files.promote(made.id, now=NOW)
    assert link.is_symlink()
    assert len(KeyText(real.read_text()).entries) == 2
