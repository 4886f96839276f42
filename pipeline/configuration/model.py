"""All settings together, and what each is called where it can be given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import getdoc
from typing import Final

from gateway.settings.declaration import Setting, declared_in
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

SECTIONS: Final = (
    ("Lake", LakeSettings),
    ("Spark", SparkSettings),
    ("Journal", JournalSettings),
    ("Bronze", BronzeSettings),
    ("Compaction", CompactionSettings),
    ("Silver", SilverSettings),
)
"""Titles of the groups and the classes that declare them; a part of the pipeline that has settings adds its own."""


@dataclass(frozen=True, kw_only=True)
class Configuration(SilverSettings, CompactionSettings, BronzeSettings, JournalSettings, SparkSettings, LakeSettings):
    """All settings of the pipeline. Made by ``load``; tests may construct it and give just what matters."""


GROUPS: Final[Mapping[str, tuple[str, tuple[Setting, ...]]]] = {
    title: (getdoc(declaring) or "", declared_in(declaring, title)) for title, declaring in SECTIONS
}
"""For each group its introduction and its settings, in the order of the reference page."""

SETTINGS: Final[Mapping[str, Setting]] = {each.name: each for _, group in GROUPS.values() for each in group}
"""All settings by name."""

if undeclared := {each.name for each in dataclasses.fields(Configuration)} ^ SETTINGS.keys():
    raise AssertionError(f"in Configuration or in SECTIONS, but not in both: {sorted(undeclared)}")


def variable(name: str) -> str:
    """Tell the environment variable of a setting."""
    return VARIABLE_PREFIX + name.upper()


def flag(name: str) -> str:
    """Tell the command line flag of a setting."""
    return "--" + name.replace("_", "-")
