"""Layers: defaults, a TOML file, the environment, flags; the later wins, and each value knows its place.

A mistake in any layer is told together with all others: where it stands, what is wrong, what to do (``Problem``). The
settings of every program are read in this way; those of a node by ``gateway.settings.loading``.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.settings.declaration import Setting
from gateway.settings.errors import ConfigurationError, Problem, Unfit


def read_toml(file: Path, named_by: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        file: to read.
        named_by: where somebody named it.

    Raises:
        ConfigurationError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        why = f"the file cannot be read ({error.strerror or error})"
        problem = Problem(f"{named_by} {file}", why, "name a TOML file that this user may read")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problem = Problem(str(file), f"the file is not TOML: {error}", "correct it at the place named")
    raise ConfigurationError([problem])


_LONGEST_SHOWN: Final = 80
"""Characters of a wrong value that a message repeats: enough to recognise it, too few to fill a screen."""

DEFAULT: Final = "default"
"""The place of values that nobody gave."""

NONE: Final = "none"
"""Takes back what a lower layer gave to a setting that can do without a value."""


_SERVICE_LINK: Final = re.compile(
    r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)", re.ASCII
)
_SERVICE_PORT: Final = re.compile(r"(?:\w+_)?PORT", re.ASCII)
_SERVICE_URL: Final = re.compile(r"(?:tcp|udp|sctp)://\S+")


def is_service_link(name: str, text: str) -> bool:
    """Tell whether a container platform has put a variable into the environment by itself, to tell of a service.

    Kubernetes does so for each Service of the namespace, under its name: a Service ``gateway-zone`` gives pods
    ``GATEWAY_ZONE_SERVICE_HOST``, ``GATEWAY_ZONE_PORT`` and others.

    Args:
        name: of the variable, without the prefix of the program.
        text: its value. ``…_PORT`` is what people write by mistake, too; that of a service is a URL.
    """
    if _SERVICE_LINK.fullmatch(name) is not None:
        return True
    return _SERVICE_PORT.fullmatch(name) is not None and _SERVICE_URL.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Whose settings they are.

    Attributes:
        settings: by name.
        listing: the command that lists them all, for messages.
        prefix: of every environment variable that is the program's.
        file_variable: the one that names the TOML file, as ``--config`` does.
        others: variables with the prefix that are not settings.
    """

    settings: Mapping[str, Setting]
    listing: str
    prefix: str
    file_variable: str
    others: Collection[str] = ()


class Layers:
    """What has been read so far.

    Args:
        program: whose settings they are.

    Attributes:
        values: by name of the setting, of those that somebody gave.
        places: where each setting was given, by name; ``DEFAULT`` where nobody gave it.
        problems: everything that is wrong.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.values: dict[str, Any] = {}
        self.places = dict.fromkeys(program.settings, DEFAULT)
        self.problems: list[Problem] = []

    def read(
        self, *, flags: Mapping[str, str] | None, environment: Mapping[str, str] | None, file: Path | None
    ) -> None:
        """Read all layers.

        Args:
            flags: values of command line flags by name of the setting.
            environment: environment variables; None for those of this process.
            file: the TOML file; None for the one that the environment names, if it names one.
        """
        environment = os.environ if environment is None else environment
        named = environment.get(self._program.file_variable)
        if file is not None:
            self._read_file(file, "--config")
        elif named:
            self._read_file(Path(named), self._program.file_variable)
        self._read_environment(environment)
        for name, text in (flags or {}).items():
            each = self._program.settings[name]
            self._give(each, text, each.flag or name, Path())

    def _give(self, each: Setting, raw: object, place: str, folder: Path) -> None:
        """Read one value and put it over that of a lower layer."""
        kind = each.declared.kind
        try:
            if each.declared.absent is not None and each.default is None and raw == NONE:
                value = None
            else:
                value = kind.anchor(kind.read(raw), folder)
        except Unfit as unfit:
            shown = _shorten(raw) if each.declared.shown else "its value"
            self.problems.append(Problem(place, f"{shown} {unfit}", f"give {kind.accepts}"))
        else:
            self.values[each.name] = value
        # Even a wrong value says where the setting was given last.
        self.places[each.name] = place

    def _read_file(self, file: Path, named_by: str) -> None:
        try:
            content = read_toml(file, named_by)
        except ConfigurationError as error:
            self.problems.extend(error.problems)
            return
        for key, raw in content.items():
            place = f"{file}: {key}"
            if (each := self._program.settings.get(key)) is not None:
                self._give(each, raw, place, file.parent)
            elif isinstance(raw, dict):
                remedy = f"{self._flat(key, raw)}{self._listed}"
                self.problems.append(Problem(place, "there are no tables; keys are flat", remedy))
            else:
                self._unknown(place, key, self._program.settings)

    def _flat(self, table: str, content: Mapping[str, object]) -> str:
        """Suggest flat keys for the content of a table."""
        meant = [name for name in (f"{table}_{key}" for key in content) if name in self._program.settings]
        return f"write {', '.join(meant)} before any [table]; " if meant else ""

    def _read_environment(self, environment: Mapping[str, str]) -> None:
        program = self._program
        known = {each.variable: each for each in program.settings.values()}
        ours = {*known, *program.others, program.file_variable}
        for variable, text in sorted(environment.items()):
            if (each := known.get(variable)) is not None:
                # Composition files cannot leave a variable out, they can only leave it empty.
                if text.strip():
                    self._give(each, text, variable, Path())
            elif (
                variable.startswith(program.prefix)
                and variable not in ours
                and not is_service_link(variable.removeprefix(program.prefix), text)
            ):
                self._unknown(variable, variable, ours)

    def _unknown(self, place: str, given: str, known: Iterable[str]) -> None:
        close = difflib.get_close_matches(given, list(known), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        self.problems.append(Problem(place, "there is no such setting", f"{meant}{self._listed}"))

    @property
    def _listed(self) -> str:
        return f"`{self._program.listing}` lists all settings"


def _shorten(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
