"""TOML files with settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gateway.settings.errors import ConfigurationError, Problem


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
