"""The configuration of the pipeline: three layers, every mistake told at once, no password shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import SETTINGS as NODE_SETTINGS
from gateway.settings import ConfigurationError
from pipeline.configuration import SETTINGS, Configuration, load

SECRET = "s3cret-word"


def test_without_anything_there_are_defaults() -> None:
    assert load(environment={}) == Configuration()


def test_a_flag_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('lake = "tables"\ntrim_lag = 1\nbatch_entries = 2\ngrid_prefix = "file"\n', "utf-8")

    found = load(
        flags={"trim_lag": "11"},
        environment={"PIPELINE_CONFIG": str(file), "PIPELINE_TRIM_LAG": "10", "PIPELINE_BATCH_ENTRIES": "20"},
    )

    assert (found.trim_lag, found.batch_entries, found.grid_prefix) == (11, 20, "file")
    assert found.lake == tmp_path / "tables", "relative to the file that names it"


def test_none_takes_back_what_a_lower_layer_gave() -> None:
    found = load(flags={"grid": "none"}, environment={"PIPELINE_GRID": "redis://127.0.0.1"})

    assert found.grid is None


def test_all_mistakes_are_told_with_place_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('trim_lgs = 1\nbatch_entries = "many"\n', "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        load(
            file=file,
            environment={"PIPELINE_LAEK": "x", "PIPELINE_SPARK_CONF": "driver.memory"},
            flags={"trim_lag": "-1"},
        )

    told = str(caught.value)
    assert f"{file}: trim_lgs: there is no such setting; did you mean trim_lag?" in told
    assert f"{file}: batch_entries: 'many' is not a whole number; give a whole number" in told
    assert "PIPELINE_LAEK: there is no such setting; did you mean PIPELINE_LAKE?" in told
    assert "PIPELINE_SPARK_CONF: 'driver.memory' has an entry that is not spark.<name>=<value>" in told
    assert "--trim-lag: '-1' is too small" in told


def test_a_table_is_told_how_to_write_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("[batch]\nentries = 7\n", "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        load(file=file, environment={})

    assert "there are no tables; keys are flat; write batch_entries before any [table]" in str(caught.value)
    assert "`pipeline config` lists all settings" in str(caught.value)


def test_a_file_that_cannot_be_read_is_told() -> None:
    with pytest.raises(ConfigurationError, match="PIPELINE_CONFIG /nowhere: the file cannot be read"):
        load(environment={"PIPELINE_CONFIG": "/nowhere"})


@pytest.mark.parametrize("url", [f"redis://user:{SECRET}@127.0.0.1/0", f"redis+sentinel://:{SECRET}@a,b/main"])
def test_the_password_of_the_grid_is_never_shown(url: str) -> None:
    found = load(environment={"PIPELINE_GRID": url})

    assert found.grid == url
    assert SECRET not in repr(found)
    assert SECRET not in SETTINGS["grid"].show(found.grid)


def test_a_wrong_grid_is_complained_about_without_its_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={"PIPELINE_GRID": f"redis://user:{SECRET}@"})

    assert SECRET not in str(caught.value)


def test_where_a_node_has_a_setting_of_the_same_name_it_means_the_same() -> None:
    shared = SETTINGS.keys() & NODE_SETTINGS.keys()
    assert shared == {"grid", "grid_prefix", "grid_timeout"}
    assert SETTINGS["grid"].declared.kind == NODE_SETTINGS["grid"].declared.kind
    assert SETTINGS["grid_prefix"].declared.kind == NODE_SETTINGS["grid_prefix"].declared.kind
    assert SETTINGS["grid_prefix"].default == NODE_SETTINGS["grid_prefix"].default
