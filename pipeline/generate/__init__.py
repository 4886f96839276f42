"""Synthetic journals: of any size, from a seed, as bronze files or as entries of a real journal in Redis.

A *world* is planned first: nodes and their releases, deploys, deaths, pauses, outages of the grid. Sessions then live
in it, one slice of time after the other and all sessions of a slice at once, as columns of numbers; so that memory
holds the sessions that are alive and one slice, whatever the size of the journal. The same seed gives the same journal
to the byte on any number of cores, as random numbers are drawn in one place and in one order.

Every event obeys the rules by which a gateway tells it: epochs rise at every claim, windows end sessions that nobody
comes back for, numbers of an incarnation have holes only where events were lost, entries of a stream follow the order
in which nodes flushed them.
"""

from pipeline.generate.bronze import write_bronze
from pipeline.generate.grid import write_grid
from pipeline.generate.journal import GREATEST_SEED, LEAST_NODES, MOST_NODES, Scale, Slice, slices, usual_hours
from pipeline.generate.records import records
from pipeline.generate.tables import events_table

__all__ = [
    "GREATEST_SEED",
    "LEAST_NODES",
    "MOST_NODES",
    "Scale",
    "Slice",
    "events_table",
    "records",
    "slices",
    "usual_hours",
    "write_bronze",
    "write_grid",
]
