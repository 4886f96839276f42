"""Loading the settings of a node: its layers (``gateway.settings.layers``), its files of keys, what does not fit."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.settings.checks import check
from gateway.settings.declaration import ENVIRONMENT_PREFIX, Setting
from gateway.settings.errors import ConfigurationError, Problem
from gateway.settings.exposure import in_clear_text, on_command_lines
from gateway.settings.interfaces import link_interface
from gateway.settings.layers import DEFAULT, Layers, Program
from gateway.settings.model import SETTINGS, Settings
from gateway.settings.places import read_keys
from gateway.settings.values import AnonymousUsers, Secret

OTHER_VARIABLES: Final[dict[str, str]] = {
    "GATEWAY_CONFIG": "the TOML file to read, as --config",
    "GATEWAY_URL": "where `gateway pub` and `gateway sub` connect, as --url",
    "GATEWAY_PRINCIPAL": "who `gateway pub` and `gateway sub` are, as --principal",
    "GATEWAY_SECRET": "the secret of that principal; there is no flag for it",
    "GATEWAY_FOLLOW_MASTER": "whether the Python and JavaScript clients follow the master, if they are not told",
    "GATEWAY_ADMIN_URL": "which admin port `gateway admin` asks, as --url",
    "GATEWAY_ADMIN_TOKEN": "the token that it shows; there is no flag for it",
    "GATEWAY_ADMIN_TOKEN_FILE": "the file with that token, as --token-file",
    "GATEWAY_ADMIN_CA": "the authorities by which it checks the node's certificate, as --ca",
    "GATEWAY_ADMIN_CERTIFICATE": "the certificate and key that it shows, as --certificate",
}
"""Variables that are not settings of a node."""

RANDOM_KEY_BYTES: Final = 32
"""Of the key that development mode makes up: as long as the digest that it keys."""

_VERIFYING: Final = "token_verify_keys"

NODE: Final = Program(
    settings=SETTINGS,
    listing="gateway config",
    prefix=ENVIRONMENT_PREFIX,
    file_variable="GATEWAY_CONFIG",
    others=OTHER_VARIABLES,
)
"""Whose settings they are."""


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

    @property
    def exposed(self) -> tuple[str, ...]:
        """What of it others can read, a sentence each, for warnings."""
        return (*in_clear_text(self.settings), *on_command_lines(self.settings.grid, self.places.__getitem__))


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
    layers = Layers(NODE)
    layers.read(flags=flags, environment=environment, file=file)
    for keys in ("token_keys", "token_verify_keys"):
        _read_key_file(layers, keys, f"{keys}_file")
    if not layers.problems:
        settings = Settings(**layers.values)
        settings = _with_shortcuts(_with_link(settings, layers.places), layers.places)
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
    layers = Layers(NODE)
    layers.read(flags=flags, environment=environment, file=file)
    if layers.problems:
        raise ConfigurationError(layers.problems)
    return Loaded(Settings(**layers.values), layers.places)


def _read_key_file(layers: Layers, keys: str, keys_file: str) -> None:
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


def _with_link(settings: Settings, places: dict[str, str]) -> Settings:
    """Take the interface for links as the setting ``link``, which is its short form."""
    interface = link_interface(settings)
    if interface is None or settings.link is not None:
        return settings
    places["link"] = places["interface"]
    return dataclasses.replace(settings, link=interface.listen)


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
