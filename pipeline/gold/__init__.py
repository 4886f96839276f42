"""Gold: the tables that answer questions, made of events and sessions.

Each transformation takes data frames and gives one; ``job`` alone reads and writes. What the columns mean stands in
``tables``, from which the reference page is made.
"""

from pipeline.gold.incidents import found_incidents, incident_sessions, incidents
from pipeline.gold.loads import capacity, traffic
from pipeline.gold.losses import days_of_runs, losses
from pipeline.gold.objectives import objectives, refused_sessions
from pipeline.gold.queues import queues
from pipeline.gold.rejections import rejections
from pipeline.gold.slow_consumers import slow_consumers
from pipeline.gold.storms import storms
from pipeline.gold.tables import TABLES, GoldTable
from pipeline.gold.zones import masters, zone_links

__all__ = [
    "TABLES",
    "GoldTable",
    "capacity",
    "days_of_runs",
    "found_incidents",
    "incident_sessions",
    "incidents",
    "losses",
    "masters",
    "objectives",
    "queues",
    "refused_sessions",
    "rejections",
    "slow_consumers",
    "storms",
    "traffic",
    "zone_links",
]
