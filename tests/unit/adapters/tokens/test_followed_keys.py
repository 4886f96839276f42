"""Keys read again while the node runs: from the next token on, and never worse than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.adapters.memory import MemoryEventLog
from gateway.adapters.tokens import FollowedKeys, key_id
from gateway.catalogue import log_events as events
from gateway.core.types import SessionId, TokenGeneration
from gateway.ports import TokenRefused
from gateway.settings import Settings, load

FIRST, SECOND, THIRD = ("a" * 32, "b" * 32, "c" * 32)
IDS = {key: key_id(key.encode()) for key in (FIRST, SECOND, THIRD)}
NOW = 1_800_000_000.0


def settings(signing: Path, verifying: Path | None = None) -> Settings:
    environment = {"GATEWAY_TOKEN_KEYS_FILE": str(signing)}
    if verifying is not None:
        environment["GATEWAY_TOKEN_VERIFY_KEYS_FILE"] = str(verifying)
    return load(flags={"dev": "true"}, environment=environment).settings


def sign(keys: FollowedKeys) -> str:
    return keys.signer.sign(SessionId("s"), TokenGeneration(1), now=NOW)


def accepts(keys: FollowedKeys, token: str) -> bool:
    try:
        keys.signer.verify(token, now=NOW)
    except TokenRefused:
        return False
    return True


def test_a_rollover_by_reloading(tmp_path: Path) -> None:
    signing, verifying = tmp_path / "signing", tmp_path / "verifying"
    signing.write_text(FIRST)
    verifying.write_text("# none yet\n")
    log = MemoryEventLog()
    here, there = (FollowedKeys(settings(signing, verifying), log) for _ in range(2))
    old = sign(here)

    verifying.write_text(SECOND)
    here.reload()
    there.reload()
    signing.write_text(f"{FIRST}\n{SECOND}")
    verifying.write_text("# none any more\n")
    here.reload()
    new = sign(here)

    assert here.signer.key_ids == (IDS[FIRST], IDS[SECOND])
    assert accepts(there, new), "it knows the key, though it does not sign with it"
    assert accepts(here, sign(there))
    assert accepts(here, old)
    signing.write_text(SECOND)
    there.reload()
    assert accepts(there, new)
    assert not accepts(there, old)
    assert log.of(events.KEYS_RELOADED)[-1] == {"signs": IDS[SECOND], "verifies": []}
    assert log.of(events.KEYS_RELOADED)[0] == {"signs": IDS[FIRST], "verifies": [IDS[SECOND]]}


def test_a_key_in_both_files_is_one_of_those_that_sign(tmp_path: Path) -> None:
    """Between the two writes of a promotion."""
    signing, verifying = tmp_path / "signing", tmp_path / "verifying"
    signing.write_text(f"{FIRST}\n{SECOND}\n")
    verifying.write_text(f"{SECOND}\n{THIRD}\n")
    keys = FollowedKeys(settings(signing, verifying), MemoryEventLog())
    expected = (IDS[THIRD], IDS[FIRST], IDS[SECOND])
    assert keys.signer.key_ids == expected
    keys.reload()
    assert keys.signer.key_ids == expected


_EMPTY = (b"", b"# nothing\n")
"""Bad as the file of keys that sign, and fine as that of keys that only verify."""

_BAD = (b"short\n", b"\xff\xfe", f"{FIRST}\n{FIRST}\n".encode(), None)


@pytest.mark.parametrize(
    ("which", "content"),
    [*(("signing", each) for each in (*_EMPTY, *_BAD)), *(("verifying", each) for each in _BAD)],
    ids=str,
)
def test_a_bad_file_keeps_the_old_keys_and_is_told(tmp_path: Path, which: str, content: bytes | None) -> None:
    signing, verifying = tmp_path / "signing", tmp_path / "verifying"
    signing.write_text(SECOND)
    verifying.write_text(THIRD)
    log = MemoryEventLog()
    keys = FollowedKeys(settings(signing, verifying), log)
    token = sign(keys)
    bad = tmp_path / which
    if content is None:
        bad.unlink()
    else:
        bad.write_bytes(content)

    keys.reload()

    assert accepts(keys, token)
    assert keys.signer.key_ids == (IDS[THIRD], IDS[SECOND])
    (event,) = log.of(events.KEYS_KEPT)
    assert str(bad) in str(event["error"])
    assert not any(key in str(event) for key in (FIRST, SECOND, THIRD))
    assert not log.of(events.KEYS_RELOADED)


def test_keys_that_no_file_gives_stay(tmp_path: Path) -> None:
    log = MemoryEventLog()
    given = FollowedKeys(load(flags={"dev": "true"}, environment={"GATEWAY_TOKEN_KEYS": FIRST}).settings, log)
    given.reload()
    assert given.signer.key_ids == (IDS[FIRST],)
    verifying = tmp_path / "verifying"
    verifying.write_text(SECOND)
    environment = {"GATEWAY_TOKEN_KEYS": FIRST, "GATEWAY_TOKEN_VERIFY_KEYS_FILE": str(verifying)}
    mixed = FollowedKeys(load(flags={"dev": "true"}, environment=environment).settings, log)
    verifying.write_text(f"{THIRD}\n{FIRST}\n")
    mixed.reload()
    assert mixed.signer.key_ids == (IDS[THIRD], IDS[FIRST])
    assert len(log.of(events.KEYS_RELOADED)) == 1
