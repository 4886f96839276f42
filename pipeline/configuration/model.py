"""All settings together, and what each is called where it can be given."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from gateway.settings.declaration import Group, Setting, group_of
from gateway.settings.layers import Program
from pipeline.configuration.groups import (
    BronzeSettings,
    CompactionSettings,
    JournalSettings,
    LakeSettings,
    SilverSettings,
    SparkSettings,
)

VARIABLE_PREFIX: Final = "PIPELINE_"
"""Of every environment variable that is ours."""

FILE_VARIABLE: Final = "PIPELINE_CONFIG"
"""Names the TOML file, as ``--config`` does."""


@dataclass(frozen=True, kw_only=True)
class Configuration(SilverSettings, CompactionSettings, BronzeSettings, JournalSettings, SparkSettings, LakeSettings):
    """All settings of the pipeline. Made by ``load``; tests may construct it and give just what matters."""


GROUPS: Final[tuple[Group, ...]] = (
    group_of(LakeSettings, "Lake", VARIABLE_PREFIX),
    group_of(SparkSettings, "Spark", VARIABLE_PREFIX),
    group_of(JournalSettings, "Journal", VARIABLE_PREFIX),
    group_of(BronzeSettings, "Bronze", VARIABLE_PREFIX),
    group_of(CompactionSettings, "Compaction", VARIABLE_PREFIX),
    group_of(SilverSettings, "Silver", VARIABLE_PREFIX),
)
"""All settings, in the order of the reference page; a part of the pipeline that has settings adds its own."""

SETTINGS: Final[dict[str, Setting]] = {each.name: each for group in GROUPS for each in group.settings}
"""All settings by name."""

if undeclared := {each.name for each in dataclasses.fields(Configuration)} ^ SETTINGS.keys():
    raise AssertionError(f"in Configuration or in GROUPS, but not in both: {sorted(undeclared)}")

PIPELINE: Final = Program(
    settings=SETTINGS, listing="pipeline config", prefix=VARIABLE_PREFIX, file_variable=FILE_VARIABLE
)
"""Whose settings they are."""
