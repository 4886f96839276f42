"""The text of a file of token keys, changed line by line: what people wrote into it stays as it is.

```text
# keys of the cluster in Vienna                                       whatever people note
# key 4ZNFr_zT: created 2026-05-01T09:00:00Z, promoted …, demoted …   what `gateway keys` has to remember
aW4gY2FzZSB5b3UgZGVjb2RlZCB0aGlzOiBoZWxsbyE                           the key itself
```

The note of a key may stand anywhere; it is written above the key. Only its id is in it, which is not secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from gateway.adapters.tokens.signer import key_id
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
