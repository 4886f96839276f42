"""Loading the settings of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.settings import ConfigurationError
from gateway.settings.layers import Layers
from pipeline.configuration.model import PIPELINE, Configuration


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
    layers = Layers(PIPELINE)
    layers.read(flags=flags, environment=environment, file=file)
    if layers.problems:
        raise ConfigurationError(layers.problems)
    return Configuration(**layers.values)
