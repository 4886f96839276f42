"""A small lake: a synthetic journal as bronze, its sessions as silver, and gold made of both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.generate import Scale, slices, write_bronze
from pipeline.generate.world import World
from pipeline.gold.job import Days, write_gold
from pipeline.lake import Lake
from pipeline.sessions.frames import facts_of, heard_until_ms, silver_of

SCALE = Scale(40_000, seed=5, hours=3, begins=1_767_222_000_000_000)
"""Two hours of it are of the next day: 2025-12-31 23:00 UTC is the first."""


@pytest.fixture(scope="session")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark without what pays only for much data: to compile the code of a query takes longer than these queries do."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture(scope="session")
def world() -> World:
    """What happened to the nodes of the journal, as its generator planned."""
    return next(slices(SCALE)).world


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory, quick: SparkSession) -> Lake:
    """Bronze, and silver as the batch job makes it."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    list(write_bronze(SCALE, lake.bronze, threads=2))
    bronze = lake.read_bronze(quick)
    silver_of(facts_of(bronze), heard_until_ms(bronze, 0)).write.parquet(str(lake.sessions))
    return lake


@pytest.fixture(scope="session")
def gold(lake: Lake, quick: SparkSession) -> dict[str, int]:
    """Gold, written by Spark: rows by table."""
    return dict(write_gold(lake.read_bronze(quick), lake.read_sessions(quick), lake.gold, Days()))
