"""Reading a file of an authenticator, with everything that is wrong with it told at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gateway.settings.declaration import declared_in
from gateway.settings.errors import ConfigurationError, Problem, Unfit
from gateway.settings.hosts import is_loopback
from gateway.settings.toml_file import read_toml

T = TypeVar("T")


def read_file(file: Path, group: type[T]) -> T:
    """Read a TOML file whose keys are the settings of a class.

    Args:
        file: to read; relative paths in it are relative to where it is.
        group: the class.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    content = read_toml(file, "auth:")
    known = {each.name: each for each in declared_in(group, "")}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, raw in content.items():
        if key not in known:
            problems.append(
                Problem(
                    f"{file}: {key}", "there is no such key", f"the keys of this file are {', '.join(sorted(known))}"
                )
            )
            continue
        kind = known[key].declared.kind
        try:
            values[key] = kind.anchor(kind.read(raw), file.parent)
        except Unfit as unfit:
            problems.append(Problem(f"{file}: {key}", f"its value {unfit}", f"give {kind.accepts}"))
    if problems:
        raise ConfigurationError(problems)
    return group(**values)


def check_address(file: Path, key: str, url: str | None, *, dev: bool) -> Iterator[Problem]:
    """Tell if secrets would cross a network where everybody can read them.

    Args:
        file: that holds the URL.
        key: of the URL.
        url: that will be asked; None if there is none.
        dev: allow http to any host.
    """
    if url is None or dev:
        return
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        yield Problem(
            f"{file}: {key}", "it is http, which everybody on the way can read and change", "give an https URL"
        )
