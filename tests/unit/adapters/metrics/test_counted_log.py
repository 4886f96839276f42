from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.metrics import CountedEventLog
from gateway.catalogue.log_events import NODE_STOPPED, RESUME_REFUSED
from gateway.catalogue.metrics import EVENTS


def test_events_are_counted_by_name_and_handed_on() -> None:
    log, metrics = MemoryEventLog(), MemoryMetrics()
    counted = CountedEventLog(log, metrics)

    counted.emit(NODE_STOPPED, node="n1")
    for _ in range(3):
        counted.emit(RESUME_REFUSED, reason="stale_attempt", address="192.0.2.1")

    assert metrics.counts(EVENTS) == {"node_stopped": 1, "resume_refused": 3}
    assert len(log.events) == 4
    assert not log.undeclared
