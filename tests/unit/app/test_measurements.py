"""Updates counted by first segment: only by those that the operator has named."""

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.metrics import PrometheusMetrics
from gateway.app.delivery.measurements import RootCounts
from gateway.catalogue.metrics import TOPIC_UPDATES
from gateway.core.types import EventId, TopicPath, Version
from gateway.ports import TopicValue


def updates(*topics: str) -> list[TopicValue]:
    return [TopicValue(TopicPath(topic), Version(1), EventId("0-1-1"), b"1") for topic in topics]


def test_named_roots_have_a_series_and_all_others_share_one() -> None:
    metrics = MemoryMetrics()
    roots = RootCounts(metrics, ["prices", "orders"])

    roots.count(updates("prices/a", "prices/b/c", "prices", "news/x", "price/a"))

    assert metrics.counts(TOPIC_UPDATES) == {"prices": 3, "orders": 0, "other": 2}


def test_whoever_publishes_cannot_make_series() -> None:
    metrics = PrometheusMetrics()
    roots = RootCounts(metrics, ["prices"])

    roots.count(updates(*(f"x{number}/y" for number in range(1000))))

    assert metrics.render().count(b"gateway_topic_updates_total{") == 2
    assert b'gateway_topic_updates_total{root="other"} 1000.0' in metrics.render()
