"""What paths are, at several nodes: said at one, known at all, and kept when the grid forgets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.destination_file import DestinationFileError
from gateway.adapters.memory import MemoryGridServer
from gateway.app.destinations.destinations import Destinations
from gateway.catalogue import log_events as events
from gateway.core.destinations.destination import MAX_DESTINATIONS, Destination, Origin
from gateway.core.destinations.limits import HistoryLimits, Limits, ValueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath
from gateway.ports import Applied, TooManyDestinations
from tests.support.nodes import TestNode, eventually, running_node

FILE, ADMINISTRATOR = Origin.FILE, Origin.ADMINISTRATOR
TOPIC = TopicPath("log/a")


PLAIN = ValueLimits()


def destination(selector: str = "log/**", limits: Limits = PLAIN, origin: Origin = ADMINISTRATOR) -> Destination:
    return Destination(selector=parse_selector(selector), limits=limits, origin=origin)


def destinations(node: TestNode) -> Destinations:
    return node.gateway.node.destinations


async def test_what_is_said_at_one_node_is_known_at_all(n1: TestNode, n2: TestNode) -> None:
    few, many = HistoryLimits(count=2), HistoryLimits(count=9)
    here, there = destinations(n1), destinations(n2)
    said = await here.set(destination(limits=few))
    assert said.made > 0
    assert here.table.history(TOPIC) == few, "known here when that returns"
    await eventually(lambda: there.table.history(TOPIC) == few)
    await there.set(destination(limits=many))
    await eventually(lambda: here.table.history(TOPIC) == many)
    assert await here.remove(ADMINISTRATOR, said.selector)
    assert here.table.empty
    assert not await here.remove(ADMINISTRATOR, said.selector)
    await eventually(lambda: there.table.empty)


async def test_changes_are_told_once_and_where_they_were_made(n1: TestNode, n2: TestNode) -> None:
    def told(node: TestNode) -> list[dict[str, Any]]:
        return [dict(fields) for event, fields in node.log.events if event is events.DESTINATIONS_CHANGED]

    await destinations(n1).set(destination(limits=HistoryLimits()))
    await destinations(n1).set(destination(limits=HistoryLimits()))
    await destinations(n1).remove(ADMINISTRATOR, parse_selector("log/**"))
    await destinations(n1).apply_file([destination(f"t/{number}", origin=FILE) for number in range(30)])
    await eventually(lambda: len(destinations(n2).table) == 30)
    first, second, third = told(n1)
    assert first == {"origin": "administrator", "described": ["history log/**"], "removed": [], "changes": 1}
    assert second == {"origin": "administrator", "described": [], "removed": ["log/**"], "changes": 1}
    assert (third["origin"], third["changes"], len(third["described"])) == ("file", 30, 20)
    assert told(n2) == []
    text = n2.gateway.metrics.render().decode()
    assert 'gateway_destinations{kind="value"} 30.0' in text


async def test_a_file_is_applied_once_however_many_nodes_read_it(n1: TestNode, n2: TestNode) -> None:
    by_hand = destination("t/**", HistoryLimits())
    await destinations(n1).set(by_hand)
    file = [destination("t/**", origin=FILE), destination("u/**", origin=FILE)]
    assert await destinations(n1).apply_file(file) == Applied(2, 0)
    assert await destinations(n2).apply_file(file) == Applied(0, 0)
    await eventually(lambda: len(destinations(n2).table) == 3)
    assert destinations(n2).table.history(TopicPath("t/1")) == HistoryLimits(), "administrators come first"
    assert await destinations(n2).apply_file(file[:1]) == Applied(0, 1)
    await eventually(lambda: len(destinations(n1).table) == 2)


async def test_a_file_is_applied_when_the_grid_is_there(memory: MemoryGridServer, n1: TestNode) -> None:
    memory.go_away()
    applying = asyncio.create_task(destinations(n1).apply_file([destination(origin=FILE)]))
    memory.come_back()
    assert await applying == Applied(1, 0)


async def test_what_the_grid_has_lost_is_put_back(memory: MemoryGridServer, n1: TestNode, n2: TestNode) -> None:
    kept = [destination("log/**", HistoryLimits()), destination("a/**")]
    for each in kept:
        await destinations(n1).set(each)
    await destinations(n1).apply_file([destination("b/**", origin=FILE)])
    await eventually(lambda: len(destinations(n2).table) == 3)
    memory.go_away()
    memory.come_back(emptied=True)
    await eventually(lambda: len(memory.data.destinations.all()) == 3)
    await eventually(lambda: len(destinations(n1).table) == len(destinations(n2).table) == 3)
    restored = [fields["destinations"] for node in (n1, n2) for fields in node.log.of(events.DESTINATIONS_RESTORED)]
    assert sorted(map(str, restored)) in (["0", "3"], ["1", "2"], ["3"])
    async with running_node("n3", memory=memory) as late:
        assert destinations(late).table.history(TOPIC) == HistoryLimits()


async def test_a_node_is_not_ready_before_it_knows_what_paths_are(n1: TestNode) -> None:
    destinations(n1)._loaded.clear()
    assert any("what paths are" in reason for reason in n1.gateway.node.readiness.reasons())


@pytest.mark.promise("P20")
async def test_no_more_than_the_bound_can_be_said(n1: TestNode) -> None:
    await destinations(n1).apply_file([destination(f"t/{number}", origin=FILE) for number in range(MAX_DESTINATIONS)])
    with pytest.raises(TooManyDestinations):
        await destinations(n1).set(destination())
    with pytest.raises(TooManyDestinations):
        await destinations(n1).apply_file(
            [destination(f"u/{number}", origin=FILE) for number in range(MAX_DESTINATIONS + 1)]
        )
    assert len(destinations(n1).table) == MAX_DESTINATIONS


# --- The file ---------------------------------------------------------------------------------------------------------

HISTORY = '[[destination]]\nselector = "log/**"\nkind = "history"\ncount = 7\n'


async def test_the_file_is_applied_at_the_start_and_again(memory: MemoryGridServer, tmp_path: Path) -> None:
    file = tmp_path / "destinations.toml"
    file.write_text(HISTORY)
    async with running_node("n1", memory=memory, destinations=file) as node, running_node("n2", memory=memory) as other:
        await eventually(lambda: destinations(node).table.history(TOPIC) == HistoryLimits(count=7))
        await eventually(lambda: destinations(other).table.history(TOPIC) == HistoryLimits(count=7))
        file.write_text(HISTORY.replace("7", "8"))
        node.gateway.reload()
        await eventually(lambda: destinations(other).table.history(TOPIC) == HistoryLimits(count=8))

        file.write_text(HISTORY.replace("history", "histroy"))
        node.gateway.reload()
        await eventually(lambda: bool(node.log.of(events.DESTINATIONS_KEPT)))
        assert "histroy" not in str(node.log.of(events.DESTINATIONS_APPLIED))
        assert destinations(node).table.history(TOPIC) == HistoryLimits(count=8)

        file.write_text("")
        node.gateway.reload()
        await eventually(lambda: destinations(other).table.empty)
        applied = node.log.of(events.DESTINATIONS_APPLIED)
        assert [(each["destinations"], each["written"], each["removed"]) for each in applied] == [
            (1, 1, 0),
            (1, 1, 0),
            (0, 0, 1),
        ]


async def test_a_file_that_takes_too_much_changes_nothing(memory: MemoryGridServer, tmp_path: Path) -> None:
    file = tmp_path / "destinations.toml"
    one = '[[destination]]\nselector = "t/{}"\nkind = "value"\n'
    file.write_text("".join(one.format(number) for number in range(MAX_DESTINATIONS)))
    async with running_node("n1", memory=memory) as node:
        await destinations(node).set(destination())
    async with running_node("n2", memory=memory, destinations=file) as node:
        await eventually(lambda: bool(node.log.of(events.DESTINATIONS_KEPT)))
        assert len(destinations(node).table) == 1


async def test_a_node_does_not_start_with_a_file_that_cannot_be_used(memory: MemoryGridServer, tmp_path: Path) -> None:
    file = tmp_path / "destinations.toml"
    file.write_text(HISTORY.replace("count", "cuont"))
    with pytest.raises(DestinationFileError, match="cuont"):
        async with running_node("n1", memory=memory, destinations=file):
            pass
