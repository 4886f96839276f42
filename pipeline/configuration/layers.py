"""Reads the settings in layers, file, environment and command line, and tells everything that is wrong at once."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gateway.settings import ConfigurationError, Problem
from gateway.settings.declaration import Setting
from gateway.settings.errors import Unfit
from pipeline.configuration.model import FILE_VARIABLE, SETTINGS, VARIABLE_PREFIX, Configuration, flag, variable

NONE: Final = "none"
"""Takes back what a lower layer gave to a setting that can do without a value."""

_LONGEST_SHOWN: Final = 80
"""Characters of a wrong value that a message repeats: enough to recognise it, too few to fill a screen."""


def load(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Configuration:
    """Read, merge and check the settings.

    Args:
        flags: values of command line flags by name of the setting.
        environment: environment variables; by default those of this process.
        file: the TOML file; by default what ``PIPELINE_CONFIG`` names, or none.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    environment = os.environ if environment is None else environment
    named = environment.get(FILE_VARIABLE)
    found = _Found()
    if file is not None:
        found.read_file(file, "--config")
    elif named:
        found.read_file(Path(named), FILE_VARIABLE)
    found.read_environment(environment)
    for name, text in (flags or {}).items():
        found.give(SETTINGS[name], text, flag(name), Path())
    if found.problems:
        raise ConfigurationError(found.problems)
    return Configuration(**found.values)


class _Found:
    """What has been read so far."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []

    def give(self, each: Setting, raw: object, place: str, folder: Path) -> None:
        """Read one value and put it over that of a lower layer."""
        kind = each.declared.kind
        try:
            if each.declared.absent is not None and each.default is None and raw == NONE:
                self.values[each.name] = None
            else:
                self.values[each.name] = kind.anchor(kind.read(raw), folder)
        except Unfit as unfit:
            shown = "its value" if each.name == "grid" else repr(raw)[:_LONGEST_SHOWN]
            self.problems.append(Problem(place, f"{shown} {unfit}", f"give {kind.accepts}"))

    def read_file(self, file: Path, named_by: str) -> None:
        """Read the TOML file."""
        try:
            content = tomllib.loads(file.read_text("utf-8"))
        except OSError as error:
            why = f"the file cannot be read ({error.strerror or error})"
            self.problems.append(Problem(f"{named_by} {file}", why, "name a TOML file that this user may read"))
            return
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.problems.append(Problem(str(file), f"the file is not TOML: {error}", "correct it at the place named"))
            return
        for key, raw in content.items():
            if (each := SETTINGS.get(key)) is not None:
                self.give(each, raw, f"{file}: {key}", file.parent)
            else:
                self.problems.append(
                    Problem(f"{file}: {key}", "there is no such setting", _did_you_mean(key, SETTINGS))
                )

    def read_environment(self, environment: Mapping[str, str]) -> None:
        """Read the variables that begin with our prefix."""
        known = {variable(name): each for name, each in SETTINGS.items()}
        for name, text in sorted(environment.items()):
            if (each := known.get(name)) is not None:
                # Composition files cannot leave a variable out, they can only leave it empty.
                if text.strip():
                    self.give(each, text, name, Path())
            elif name.startswith(VARIABLE_PREFIX) and name != FILE_VARIABLE:
                self.problems.append(Problem(name, "there is no such setting", _did_you_mean(name, known)))


def _did_you_mean(given: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    listed = "`pipeline config` lists all settings"
    return f"did you mean {close[0]}? {listed}" if close else listed
