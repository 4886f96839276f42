"""Loading: defaults, a TOML file, the environment, flags; the later wins, and each value knows its place.

A mistake in any layer is told together with all others: where it stands, what is wrong, what to do (``Problem``).
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.settings.checks import check
from gateway.settings.declaration import ENVIRONMENT_PREFIX, Setting
from gateway.settings.errors import ConfigurationError, Problem, Unfit
from gateway.settings.keyfile import read_keys
from gateway.settings.model import SETTINGS, Settings
from gateway.settings.values import AnonymousUsers, Secret

OTHER_VARIABLES: Final[dict[str, str]] = {
    "GATEWAY_CONFIG": "the TOML file to read, as --config",
    "GATEWAY_URL": "where `gateway pub` and `gateway sub` connect, as --url",
    "GATEWAY_PRINCIPAL": "who `gateway pub` and `gateway sub` are, as --principal",
    "GATEWAY_SECRET": "the secret of that principal; there is no flag for it",
    "GATEWAY_ADMIN_URL": "which admin port `gateway admin` asks, as --url",
    "GATEWAY_ADMIN_TOKEN": "the token that it shows; there is no flag for it",
    "GATEWAY_ADMIN_TOKEN_FILE": "the file with that token, as --token-file",
    "GATEWAY_ADMIN_CA": "the authorities by which it checks the node's certificate, as --ca",
    "GATEWAY_ADMIN_CERTIFICATE": "the certificate and key that it shows, as --certificate",
}
"""Variables that are not settings of a node."""

_SERVICE_LINK: Final = re.compile(r"GATEWAY_(?:SERVICE_(?:HOST|PORT)\w*|PORT(?:_\d+_(?:TCP|UDP|SCTP)\w*)?)")
"""What container platforms put into the environment by themselves when some service is called ``gateway``."""

LONGEST_SHOWN: Final = 80
"""Characters of a wrong value that a message repeats: enough to recognise it, too few to fill a screen."""

RANDOM_KEY_BYTES: Final = 32
"""Of the key that development mode makes up: as long as the digest that it keys."""

DEFAULT: Final = "default"
"""The place of values that nobody gave."""

_VERIFYING: Final = "token_verify_keys"

NONE: Final = "none"
"""Takes back what a lower layer gave to a setting that can do without a value."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading.

    Attributes:
        settings: checked, and fit to run with.
        places: where each setting was given, by name; ``default`` where nobody gave it.
    """

    settings: Settings
    places: Mapping[str, str]

    @property
    def given(self) -> tuple[tuple[Setting, str, str], ...]:
        """Settings that somebody gave: the setting, its value for people, its place."""
        return tuple(
            (each, each.show(getattr(self.settings, name)), self.places[name])
            for name, each in SETTINGS.items()
            if self.places[name] != DEFAULT
        )


@dataclass(slots=True)
class _Layers:
    """What has been read so far."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SETTINGS, DEFAULT))
    problems: list[Problem] = field(default_factory=list)

    def give(self, each: Setting, raw: object, place: str, folder: Path) -> None:
        """Read one value and put it over that of a lower layer."""
        kind = each.declared.kind
        try:
            if each.declared.absent is not None and each.default is None and raw == NONE:
                value = None
            else:
                value = kind.anchor(kind.read(raw), folder)
        except Unfit as unfit:
            shown = "its value" if each.declared.secret or each.name == "grid" else _shorten(raw)
            self.problems.append(Problem(place, f"{shown} {unfit}", f"give {kind.accepts}"))
        else:
            self.values[each.name] = value
        # Even a wrong value says where the setting was given last.
        self.places[each.name] = place


def load(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Read, merge and check the settings.

    Args:
        flags: values of command line flags by name of the setting.
        environment: environment variables; by default those of this process.
        file: the TOML file; by default what ``GATEWAY_CONFIG`` names, or none.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    layers = _read_layers(flags or {}, os.environ if environment is None else environment, file)
    for keys in ("token_keys", "token_verify_keys"):
        _read_key_file(layers, keys, f"{keys}_file")
    if not layers.problems:
        settings = Settings(**layers.values)
        settings = _with_shortcuts(settings, layers.places)
        layers.problems.extend(check(settings, layers.places.__getitem__))
        if not layers.problems:
            return Loaded(settings, layers.places)
    raise ConfigurationError(layers.problems)


def peek(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Read and merge the settings as ``load`` does, but no file that they name, nor check how they fit together.

    For commands that make such files: before the first key there is no file of keys.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    layers = _read_layers(flags or {}, os.environ if environment is None else environment, file)
    if layers.problems:
        raise ConfigurationError(layers.problems)
    return Loaded(Settings(**layers.values), layers.places)


def _read_layers(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> _Layers:
    named = environment.get("GATEWAY_CONFIG")
    layers = _Layers()
    if file is not None:
        _read_file(layers, file, "--config")
    elif named:
        _read_file(layers, Path(named), "GATEWAY_CONFIG")
    _read_environment(layers, environment)
    for name, text in flags.items():
        each = SETTINGS[name]
        layers.give(each, text, each.flag or name, Path())
    return layers


def _read_file(layers: _Layers, file: Path, named_by: str) -> None:
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        layers.problems.append(
            Problem(
                f"{named_by} {file}", f"the file cannot be read ({reason})", "name a TOML file that this user may read"
            )
        )
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        layers.problems.append(Problem(str(file), f"the file is not TOML: {error}", "correct it at the place named"))
        return
    for key, raw in content.items():
        place = f"{file}: {key}"
        if (each := SETTINGS.get(key)) is not None:
            layers.give(each, raw, place, file.parent)
        elif isinstance(raw, dict):
            layers.problems.append(
                Problem(
                    place, "there are no tables; keys are flat", _flat(key, raw) + "`gateway config` lists all keys"
                )
            )
        else:
            layers.problems.append(Problem(place, "there is no such setting", _did_you_mean(key, SETTINGS)))


def _flat(table: str, content: Mapping[str, object]) -> str:
    """Suggest flat keys for the content of a table."""
    meant = [name for name in (f"{table}_{key}" for key in content) if name in SETTINGS]
    return f"write {', '.join(meant)} before any [table]; " if meant else ""


def _read_environment(layers: _Layers, environment: Mapping[str, str]) -> None:
    known = {each.variable: each for each in SETTINGS.values()}
    for variable, text in sorted(environment.items()):
        if (each := known.get(variable)) is not None:
            # Composition files cannot leave a variable out, they can only leave it empty.
            if text.strip():
                layers.give(each, text, variable, Path())
        elif (
            variable.startswith(ENVIRONMENT_PREFIX)
            and variable not in OTHER_VARIABLES
            and _SERVICE_LINK.fullmatch(variable) is None
        ):
            layers.problems.append(
                Problem(variable, "there is no such setting", _did_you_mean(variable, [*known, *OTHER_VARIABLES]))
            )


def _did_you_mean(given: str, known: Mapping[str, object] | list[str]) -> str:
    close = difflib.get_close_matches(given, list(known), n=1)
    listed = "`gateway config` lists all settings"
    return f"did you mean {close[0]}? {listed}" if close else listed


def _shorten(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _read_key_file(layers: _Layers, keys: str, keys_file: str) -> None:
    file = layers.values.get(keys_file)
    if file is None:
        return
    place = layers.places[keys_file]
    if layers.values.get(keys):
        layers.problems.append(
            Problem(
                f"{layers.places[keys]} and {place}", "both give the same keys", f"keep one of {keys} and {keys_file}"
            )
        )
        return
    found, problems = read_keys(file, place, may_be_empty=keys == _VERIFYING)
    layers.problems.extend(problems)
    if keys == _VERIFYING and layers.values.get("token_keys_file") is not None:
        found = _only_verifying(found, layers.values.get("token_keys", ()))
    layers.values[keys], layers.places[keys] = found, str(file)


def reread_keys(settings: Settings) -> tuple[tuple[Secret, ...], tuple[Secret, ...]]:
    """Read the files of token keys again, as ``load`` has read them.

    Returns:
        What ``token_keys`` and ``token_verify_keys`` are now; those that no file gives are as they were.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    signing, verifying = settings.token_keys, settings.token_verify_keys
    problems: list[Problem] = []
    if settings.token_keys_file is not None:
        signing, problems = read_keys(settings.token_keys_file, "token_keys_file")
    if settings.token_verify_keys_file is not None:
        file = settings.token_verify_keys_file
        verifying, more = read_keys(file, "token_verify_keys_file", may_be_empty=True)
        problems = [*problems, *more]
    if problems:
        raise ConfigurationError(problems)
    return signing, _only_verifying(verifying, signing)


def _only_verifying(verifying: Sequence[Secret], signing: Sequence[Secret]) -> tuple[Secret, ...]:
    """While a key is being promoted it stands in both files for a moment, and is one of those that sign."""
    return tuple(key for key in verifying if key not in signing)


def _with_shortcuts(settings: Settings, places: dict[str, str]) -> Settings:
    """Fill in what development mode allows to leave out."""
    if not settings.dev:
        return settings
    changes: dict[str, Any] = {}
    if not settings.token_keys:
        changes |= {
            "token_keys": (Secret(secrets.token_urlsafe(RANDOM_KEY_BYTES)),),
            "token_keys_are_random": True,
        }
        places["token_keys"] = f"made up ({places['dev']})"
    if settings.auth is None:
        changes["auth"] = AnonymousUsers()
        places["auth"] = f"made up ({places['dev']})"
    return dataclasses.replace(settings, **changes)
