"""What nodes count of links with other clusters for the journal."""

from __future__ import annotations

from gateway.app.journal.zone_traffic import (
    LINKS_COUNTED,
    LINKS_TOLD,
    THE_REST,
    CountedLink,
    LinkTally,
    ZoneTraffic,
)

PARIS = CountedLink("c2/0", "paris", "out")


def test_a_link_is_counted_until_it_is_taken_out() -> None:
    traffic = ZoneTraffic()
    traffic.of(PARIS).events += 3
    traffic.of(PARIS).behind = 7
    assert traffic.take() == {PARIS: LinkTally(events=3, behind=7)}
    assert traffic.take() == {}


def test_a_link_on_which_nothing_happened_is_left_out() -> None:
    traffic = ZoneTraffic()
    traffic.of(PARIS)
    assert traffic.take() == {}


def test_the_busiest_have_records_of_their_own_and_nothing_is_left_out() -> None:
    traffic = ZoneTraffic()
    for number in range(LINKS_COUNTED + 10):
        tally = traffic.of(CountedLink(f"c{number}/0", f"c{number}", "in" if number % 2 else "out"))
        tally.events += 1
        tally.behind = max(tally.behind, number)
    traffic.of(CountedLink("c7/0", "c7", "in")).events += 1
    told = traffic.take()
    assert len(told) == LINKS_TOLD + 2
    assert next(iter(told)).link == "c7/0"
    assert sum(each.events for each in told.values()) == LINKS_COUNTED + 11
    rest = {link.direction: tally for link, tally in told.items() if link.link == THE_REST}
    assert rest.keys() == {"in", "out"}
    assert rest["in"].behind == LINKS_COUNTED + 9
