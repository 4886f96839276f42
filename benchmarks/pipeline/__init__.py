"""How the pipeline grows: time and memory from events to gold, at one size after another, with DuckDB beside it."""
