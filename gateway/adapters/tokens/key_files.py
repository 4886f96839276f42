"""The two files of token keys of a node, and the steps of a rollover (how-to: Rotate keys).

```text
            create              promote                       retire
(nothing) ─────────▶ next ────────────────▶ signing ──┐  ┌────────────▶ (nothing)
                     token_verify_keys_file           │  │
                                            token_keys_file
                                                      └─▶ former: verifies, as long as its tokens live
```

Whatever interrupts a step, no key is lost and nodes can read both files: a key is written to where it goes before it is
taken from where it was, and one that stands in both files counts as one of ``token_keys_file``.

The text of a file of token keys, changed line by line: what people wrote into it stays as it is.

```text
# keys of the cluster in Vienna                                       whatever people note
# key 4ZNFr_zT: created 2026-05-01T09:00:00Z, promoted …, demoted …   what `gateway keys` has to remember
aW4gY2FzZSB5b3UgZGVjb2RlZCB0aGlzOiBoZWxsbyE                           the key itself
```

The note of a key may stand anywhere; it is written above the key. Only its id is in it, which is not secret.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from gateway.adapters.tokens.signer import key_id
from gateway.core.wire.errors import GatewayError
from gateway.settings.errors import ConfigurationError, Problem
from gateway.settings.places import read_keys
from gateway.settings.values import Secret

_NOTE: Final = re.compile(r"#\s*key (?P<id>[A-Za-z0-9_-]+):\s*(?P<times>.*)")
_TIME: Final = re.compile(r"(created|promoted|demoted) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTimes:
    """What has happened to a key, each in seconds since 1970, or None if it has not or nobody noted it.

    Attributes:
        created: when it was made.
        promoted: since when it signs, or did.
        demoted: since when it signs no more.
    """

    created: float | None = None
    promoted: float | None = None
    demoted: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str()`` wrote; what cannot be read counts as not noted."""
        times: dict[str, float] = {}
        for name, written in _TIME.findall(text):
            try:
                times[name] = datetime.strptime(written, _FORMAT).replace(tzinfo=UTC).timestamp()
            except ValueError:
                continue  # the 31st of February
        return cls(**times)

    def __str__(self) -> str:
        times = {"created": self.created, "promoted": self.promoted, "demoted": self.demoted}
        return ", ".join(f"{name} {when(time)}" for name, time in times.items() if time is not None)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key of a file.

    Attributes:
        id: by which tokens name it; not secret.
        key: the key itself.
        times: what has happened to it.
    """

    id: str
    key: Secret
    times: KeyTimes


class KeyText:
    """The text of a file of keys; every change makes a new one.

    Args:
        text: of the file, which ``gateway.settings`` has accepted.
    """

    def __init__(self, text: str = "") -> None:
        self._lines = text.splitlines()

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def __repr__(self) -> str:
        return f"<KeyText of {', '.join(each.id for each in self.entries)}>"

    @property
    def entries(self) -> tuple[KeyEntry, ...]:
        """The keys in their order."""
        notes: Mapping[str, str] = {
            match["id"]: match["times"] for line in self._lines if (match := _NOTE.fullmatch(line.strip()))
        }
        return tuple(
            KeyEntry(id_, Secret(line.strip()), KeyTimes.parse(notes.get(id_, "")))
            for line in self._lines
            if (id_ := _id(line)) is not None
        )

    def get(self, key: str) -> KeyEntry | None:
        """Find a key by its id."""
        return next((each for each in self.entries if each.id == key), None)

    def with_key(self, entry: KeyEntry) -> KeyText:
        """Add a key behind all others."""
        changed = KeyText()
        changed._lines = [*self._lines, _note(entry), entry.key.reveal()]
        return changed

    def with_comment(self, comment: str) -> KeyText:
        """Add a line for people."""
        changed = KeyText()
        changed._lines = [*self._lines, f"# {comment}"]
        return changed

    def without(self, key: str) -> KeyText:
        """Take a key and its note out; what else stands there stays."""
        changed = KeyText()
        changed._lines = [line for line in self._lines if _id(line) != key and not _is_note_of(key, line)]
        return changed

    def noting(self, key: str, **times: float | None) -> KeyText:
        """Note what has happened to a key, by the names of ``KeyTimes``."""
        entry = self.get(key)
        if entry is None:
            raise ValueError(f"there is no key {key}")
        noted = replace(entry, times=replace(entry.times, **times))
        changed = KeyText()
        for line in self._lines:
            if _is_note_of(key, line):
                continue
            if _id(line) == key:
                changed._lines.append(_note(noted))
            changed._lines.append(line)
        return changed


def when(time: float) -> str:
    """Write a time, in seconds since 1970, for people and programs."""
    return datetime.fromtimestamp(time, UTC).strftime(_FORMAT)


def _id(line: str) -> str | None:
    """Name the key that a line holds; None if it holds none."""
    text = line.strip()
    return None if not text or text.startswith("#") else key_id(text.encode())


def _is_note_of(key: str, line: str) -> bool:
    match = _NOTE.fullmatch(line.strip())
    return match is not None and match["id"] == key


def _note(entry: KeyEntry) -> str:
    return f"# key {entry.id}: {entry.times}"


KEY_BYTES: Final = 32
"""Random bytes of a new key: as long as the digest that it keys."""

ROLL_OUT: Final = 3600.0
"""Seconds after a promotion until every node is taken to sign with the new key: files are promoted in one place and
brought to the nodes one after the other, which takes people minutes, and an hour on a bad day."""

PRIVATE: Final = stat.S_IRUSR | stat.S_IWUSR
"""What a new file permits: reading and writing by its owner."""

_NOT_FOR_OTHERS: Final = stat.S_IRWXU | stat.S_IRGRP
"""What a file that was there may permit after it was written again: its group may be that of the nodes."""


class KeyFilesError(GatewayError):
    """A step cannot be taken; the message says why and what to do. Nothing was changed."""


class KeyUse(StrEnum):
    """What nodes do with a key."""

    SIGNS = "signs"
    """Signs new tokens, and verifies."""
    FORMER = "verifies"
    """Has signed, and verifies what it has signed."""
    NEXT = "next"
    """Verifies what other nodes may sign with it already."""


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key and what is known of it.

    Attributes:
        id: by which tokens name it; not secret.
        use: what nodes do with it.
        times: what has happened to it.
        file: where it stands.
        retirable: from when on no valid token of it can be left, in seconds since 1970; None if that is not known, or
            if it signs. A key that has never signed can go at any time: 0.
    """

    id: str
    use: KeyUse
    times: KeyTimes
    file: Path
    retirable: float | None


class KeyFiles:
    """The files of keys that the settings name.

    Args:
        signing: ``token_keys_file``.
        verifying: ``token_verify_keys_file``; None if there is none.
        life: seconds for which a token can be used, leeway included.
    """

    def __init__(self, signing: Path, verifying: Path | None, *, life: float) -> None:
        # A link is not replaced: what it leads to is.
        self._signing = signing.resolve()
        self._verifying = None if verifying is None else verifying.resolve()
        self._life = life

    def list(self) -> tuple[ListedKey, ...]:
        """List all keys, the one that signs last but for those that are next.

        Raises:
            ConfigurationError: a file cannot be read.
        """
        signing = _read(self._signing).entries
        former = [self._listed(each, KeyUse.FORMER, self._signing) for each in signing[:-1]]
        signs = [self._listed(each, KeyUse.SIGNS, self._signing) for each in signing[-1:]]
        following: list[ListedKey] = []
        if self._verifying is not None:
            known = {each.id for each in signing}
            entries = [each for each in _read(self._verifying).entries if each.id not in known]
            following = [self._listed(each, KeyUse.NEXT, self._verifying) for each in entries]
        return (*former, *signs, *following)

    def create(self, *, now: float) -> ListedKey:
        """Make a key that verifies everywhere before it signs anywhere; the very first one signs at once.

        Raises:
            KeyFilesError, ConfigurationError, OSError: nothing was changed.
        """
        with self._locked():
            entry = _make(now)
            signing = _read(self._signing)
            if not signing.entries:
                if self._verifying is not None and not self._verifying.exists():
                    _write(self._verifying, KeyText().with_comment("keys that verify and do not sign yet"))
                _write(self._signing, signing.with_key(entry).noting(entry.id, promoted=now))
            elif self._verifying is None:
                raise KeyFilesError(
                    f"there is a key that signs in {self._signing}, and a second one must be known to all nodes before "
                    "any signs with it: give token_verify_keys_file, on all nodes"
                )
            else:
                _write(self._verifying, _read(self._verifying).with_key(entry))
        return self._get(entry.id)

    def promote(self, key: str, *, now: float) -> ListedKey:
        """Let a key sign that all nodes verify already; the one that has signed verifies from now on.

        Raises:
            KeyFilesError, ConfigurationError, OSError: nothing was changed, or what is left is done by asking again.
        """
        with self._locked():
            listed = self._get(key)
            signing = _read(self._signing)
            if listed.use is not KeyUse.SIGNS:
                entry = self._entry(listed)
                if signing.entries:
                    signing = signing.noting(signing.entries[-1].id, demoted=now)
                signing = signing.without(key).with_key(entry).noting(key, promoted=now, demoted=None)
                _write(self._signing, signing)
            elif self._verifying is None or _read(self._verifying).get(key) is None:
                raise KeyFilesError(f"key {key} signs already")
            # Else an earlier promotion was interrupted here.
            if self._verifying is not None and _read(self._verifying).get(key) is not None:
                _write(self._verifying, _read(self._verifying).without(key))
        return self._get(key)

    def retire(self, key: str, *, now: float, force: bool = False) -> None:
        """Remove a key: tokens of it are refused from then on.

        Args:
            key: its id.
            now: seconds since 1970.
            force: also if tokens of it may still be alive.

        Raises:
            KeyFilesError, ConfigurationError, OSError: nothing was changed.
        """
        with self._locked():
            listed = self._get(key)
            if listed.use is KeyUse.SIGNS:
                raise KeyFilesError(f"key {key} signs: promote another one first (`gateway keys create` makes it)")
            if not force and (listed.retirable is None or now < listed.retirable):
                until = "the file does not note since when it signs no more"
                if listed.retirable is not None:
                    until = f"until {when(listed.retirable)}"
                raise KeyFilesError(
                    f"clients may hold valid tokens of key {key} ({until}), and would have to open new sessions; wait, "
                    "or give --force if the key has leaked"
                )
            for file in (self._verifying, self._signing):
                if file is not None and (text := _read(file)).get(key) is not None:
                    _write(file, text.without(key))

    def exposed(self) -> Iterator[Path]:
        """Yield the files that every user of this machine can read."""
        for file in (self._signing, self._verifying):
            if file is not None and file.exists() and file.stat().st_mode & stat.S_IROTH:
                yield file

    # --- inside -------------------------------------------------------------------------------------------------------

    def _listed(self, entry: KeyEntry, use: KeyUse, file: Path) -> ListedKey:
        times = entry.times
        retirable: float | None = None
        if use is not KeyUse.SIGNS and times.demoted is not None:
            retirable = times.demoted + self._life + ROLL_OUT
        elif use is KeyUse.NEXT and times.promoted is None:
            retirable = 0.0
        return ListedKey(entry.id, use, times, file, retirable)

    def _get(self, key: str) -> ListedKey:
        keys = {each.id: each for each in self.list()}
        if key not in keys:
            raise KeyFilesError(f"there is no key {key}; there are: {', '.join(keys) or 'none'}")
        return keys[key]

    @staticmethod
    def _entry(listed: ListedKey) -> KeyEntry:
        entry = _read(listed.file).get(listed.id)
        if entry is None:
            raise KeyFilesError(
                f"another program has removed key {listed.id} out of {listed.file} at this moment; try again"
            )
        return entry

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep a second command off. The lock is on a file of its own, because those of the keys are replaced."""
        lock = self._signing.with_name(f".{self._signing.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KeyFilesError(f"another command changes the keys of {self._signing} now; try again") from None
            yield
        finally:
            os.close(descriptor)


def _make(now: float) -> KeyEntry:
    while True:
        key = Secret(secrets.token_urlsafe(KEY_BYTES))
        name = key_id(key.reveal().encode())
        # On a command line an id must not look like a flag.
        if not name.startswith("-"):
            return KeyEntry(name, key, KeyTimes(created=now))


def _read(file: Path) -> KeyText:
    """Read a file; one that is not there has no keys."""
    if not file.exists():
        return KeyText()
    _, problems = read_keys(file, str(file), may_be_empty=True)
    if problems:
        raise ConfigurationError(problems)
    try:
        return KeyText(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError([Problem(str(file), f"it cannot be read ({error.strerror})", "try again")]) from None


def _write(file: Path, text: KeyText) -> None:
    """Replace a file in one step, so that whoever reads it finds the old or the new keys, also after a power cut."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            if file.exists():
                # Nodes may run as another user than whoever looks after the keys.
                before = file.stat()
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(stream.fileno(), before.st_uid, before.st_gid)
                os.fchmod(stream.fileno(), PRIVATE | (before.st_mode & _NOT_FOR_OTHERS))
            stream.write(str(text))
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
