"""The settings of the pipeline, group by group, each declared once."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.declaration import optional, setting
from gateway.settings.errors import Unfit
from gateway.settings.kinds import Several, Word, text_of
from gateway.settings.places import GRID_PREFIX, File, GridUrl
from gateway.settings.quantities import Bytes, Seconds, Whole

_DAY: Final = 86400.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Folder(File):
    """A folder, which need not exist yet."""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "the path of a folder; a relative one starts from the folder of the configuration file that names it"


@dataclass(frozen=True, slots=True)
class _Pair(Word):
    """One setting of Spark."""

    def read(self, raw: object) -> str:
        """See the base class."""
        text = text_of(raw)
        key, sign, value = text.partition("=")
        if not sign or not key.startswith("spark.") or not value:
            raise Unfit("has an entry that is not spark.<name>=<value>")
        return text


@dataclass(frozen=True, kw_only=True)
class LakeSettings:
    """Where the tables are."""

    lake: Path = setting(
        Folder(),
        Path("lake"),
        "The folder of all tables and checkpoints. Every machine that Spark runs on must see it under the same path.",
        reason="A folder where you stand is enough to try it; a shared file system serves a cluster.",
    )


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """Where Spark runs, and how."""

    master: str | None = optional(
        Word(r"\S{1,200}", "a master of Spark such as local[*], spark://host:7077, yarn or k8s://…"),
        "Where Spark runs.",
        absent="local[*,4], all cores of this machine and four tries of a task; under spark-submit what that was told",
        reason="A laptop needs nothing else, and a cluster is named once, to spark-submit.",
    )
    spark_conf: tuple[str, ...] = setting(
        Several(_Pair(".*", "spark.driver.memory=4g"), "settings of Spark"),
        (),
        "Further settings of Spark, such as spark.driver.memory=4g.",
        reason="What the pipeline needs it sets itself.",
        absent="none",
    )


@dataclass(frozen=True, kw_only=True)
class JournalSettings:
    """Where the journal is, and how it is read."""

    grid: str | None = optional(
        GridUrl(),
        "Where the grid is, as the nodes name it.",
        absent="none: the journal cannot be read",
        reason="Only what reads the journal needs it. Prefer the variable or the file if it holds a password.",
        shown=False,
    )
    grid_prefix: str = setting(
        GRID_PREFIX,
        "gateway",
        "Begins the name of every key in the grid, as the nodes have it.",
        reason="The default of the nodes.",
    )
    grid_timeout: float = setting(
        Seconds(0.05, 60),
        10.0,
        "How long one command may take before the grid counts as unreachable.",
        reason="A read of many entries takes longer than what nodes ask, and nobody waits for it.",
    )
    batch_entries: int = setting(
        Whole("entries", 1, 1_000_000),
        5_000,
        "How many entries of one stream are read at a time. An entry holds up to some hundred events.",
        reason="Up to some 500,000 events a stream: seconds of work that a crash repeats, and files that are not tiny.",
    )
    trim_lag: int = setting(
        Whole("entries", 0, 100_000_000),
        1_000,
        "Entries that are kept in each stream behind what has been committed.",
        reason="What was read last can still be looked at in the grid, or read again after a mistake.",
    )


@dataclass(frozen=True, kw_only=True)
class BronzeSettings:
    """How events are taken into bronze, and how long they stay there."""

    clock_past: float = setting(
        Seconds(3600, 3650 * _DAY),
        31 * _DAY,
        "How long before its arrival an event may say that it happened. What says more is filed under the hour of its "
        "arrival, so that a wrong clock cannot spread the table over thousands of folders; its `at` stays.",
        reason="Longer than any journal waits for its reader.",
    )
    clock_future: float = setting(
        Seconds(60, 3650 * _DAY),
        _DAY,
        "How long after its arrival an event may say that it happened; beyond that, as for `clock_past`.",
        reason="Clocks that are set to a wrong zone are still believed.",
    )
    follow_every: float = setting(
        Seconds(1, 3600),
        30.0,
        "With `--follow`, how often the journal is taken in. Each time makes a file for each stream and hour.",
        reason="Half a minute late is early enough for people, and 120 times a hour not too many files.",
    )


@dataclass(frozen=True, kw_only=True)
class CompactionSettings:
    """How small files become large ones, and when what is old goes."""

    compact_grace: float = setting(
        Seconds(0, 30 * _DAY),
        3600.0,
        "How long after the end of an hour, and after the newest file in it, it is compacted.",
        reason="By then every node has reported what happened, unless the grid was unreachable.",
    )
    compact_size: int = setting(
        Bytes(1024, 1 << 40),
        128 * 1024**2,
        "How large a compacted file becomes, about.",
        reason="What one task of Spark reads at a time.",
    )
    keep_days: int | None = optional(
        Whole("days", 1, 36_500),
        "After how many days `pipeline compact` removes what is old: events, rejected lines and commits, sessions that "
        "have ended, and days of gold.",
        absent="everything is kept for ever",
        reason="How long such data may be kept is for you to say.",
    )


@dataclass(frozen=True, kw_only=True)
class SilverSettings:
    """How the table of sessions is made."""

    watermark_delay: float = setting(
        Seconds(0, 30 * _DAY),
        600.0,
        "How far the time of the tables stays behind the newest record of a node. A session whose end nobody reported "
        "counts as ended when its window has passed by that time.",
        reason="Ten minutes cover a node that was cut off from the grid and tells late. Nothing that is later is "
        "dropped.",
    )
    batch_commits: int = setting(
        Whole("commits", 1, 100_000),
        64,
        "How many commits of bronze are read at a time, at most.",
        reason="Half an hour of `pipeline ingest --follow`, which a crash repeats.",
    )
    merge_every: float = setting(
        Seconds(1, 86_400),
        60.0,
        "With `--follow`, how long a change may wait before it is in the table.",
        reason="A merge rewrites the files of all sessions that changed, at least.",
    )
