"""Files with token keys: one key a line, newest last; empty lines and lines that begin with # are skipped."""

from __future__ import annotations

from pathlib import Path

from gateway.settings.errors import Problem, Unfit
from gateway.settings.places import Key
from gateway.settings.values import Secret


def read_keys(file: Path, place: str, *, may_be_empty: bool = False) -> tuple[tuple[Secret, ...], list[Problem]]:
    """Read the keys of *file*.

    Args:
        file: to read.
        place: where the file is named, for messages.
        may_be_empty: no key is fine, too: keys that only verify are needed only while keys are rotated.

    Returns:
        The keys, and what is wrong with the file. No message repeats a key.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        complaint = f"{file} cannot be read ({error.strerror or error})"
        return (), [Problem(place, complaint, "name a file that this user may read")]
    except UnicodeDecodeError:
        return (), [Problem(place, f"{file} is not a text file", "write one key a line, in ASCII")]
    kind, keys, problems = Key(), dict[Secret, int](), list[Problem]()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            key = kind.read(line)
        except Unfit as unfit:
            problems.append(Problem(f"{file}:{number}", f"the line {unfit}", f"write {kind.accepts}"))
            continue
        if keys.setdefault(key, number) != number:
            problems.append(Problem(f"{file}:{number}", f"the key of line {keys[key]} again", "remove one of them"))
    if not keys and not problems and not may_be_empty:
        problems.append(Problem(place, f"{file} holds no key", "write one key a line"))
    return tuple(keys), problems
