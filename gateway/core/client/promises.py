"""What the node has promised to hold for this session, and what to ask for if a failover shows that it does not.

A reply to a subscribe, an unsubscribe or a change of properties is a promise that the grid has it (P4). Should the grid
have been set back to an older state just when a node died, nobody but this client knows better: it compares each
failover's welcome with what it was promised, and asks for the rest again. A subscription that vanished would otherwise
be a silent loss (P2).

What is still unanswered may have been executed or not, so every state on the way from the first to the last of those
requests is as good as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import ANY, covers, parse_selector
from gateway.core.topics.topics import is_reserved
from gateway.core.wire.packets import SetProperties, Subscribe, Unsubscribe
from gateway.core.wire.properties import SERVERS_PREFIX


def users(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the user-defined ones of *properties*."""
    return {name: value for name, value in properties.items() if not name.startswith(SERVERS_PREFIX)}


def changed(properties: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return *properties* after *changes*; None removes one."""
    merged = {**properties, **changes}
    return {name: value for name, value in merged.items() if value is not None}


class Promises:
    """The selections and properties that replies have confirmed.

    Args:
        properties: as in the welcome that created the session.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._selections: Selections = NOTHING
        self._properties = users(properties)

    def executed(self, ask: ClientAsk) -> None:
        """Note that a request has been executed; in the order of the replies, which is that of execution."""
        self._selections = _select(self._selections, ask)
        if isinstance(ask, SetProperties):
            self._properties = changed(self._properties, ask.changes)

    def withdrawn(self, selections: Iterable[str]) -> None:
        """Note that the server has taken rights away, and what selections it has left.

        Raises:
            InvalidSelector: the selections are not what the protocol says.
        """
        self._selections = Selections.from_wire(selections)

    def forbidden(self, selector: str, actual: Selections) -> None:
        """Note that a selection cannot be restored because the session has no right to it any more.

        Args:
            selector: as promised.
            actual: what the node held instead; what is left of the promise is in there.
        """
        lost = parse_selector(selector)
        left = [each for each in actual if each.selects and covers(lost, each.selector)]
        self._selections = Selections(
            entry for each in self._selections for entry in (left if each.selects and each.selector == lost else [each])
        )

    def missing(
        self, *, selections: Iterable[str], properties: Mapping[str, str], unanswered: Iterable[ClientAsk]
    ) -> list[ClientAsk]:
        """Tell what must be asked again, after the unanswered requests, so that the node holds what was promised.

        Args:
            selections: as the welcome tells them.
            properties: likewise.
            unanswered: requests without a reply, in order; they are asked again anyway.

        Returns:
            Requests without numbers, in order; usually none.

        Raises:
            InvalidSelector: the welcome's selections are not what the protocol says.
        """
        selected = Selections.from_wire(selections)
        good_selections, good_properties = [self._selections], [self._properties]
        for ask in unanswered:
            good_selections.append(_select(good_selections[-1], ask))
            if isinstance(ask, SetProperties):
                good_properties.append(changed(good_properties[-1], ask.changes))
        asks: list[ClientAsk] = []
        if selected not in good_selections:
            asks += _selections_from(selected, good_selections[-1])
        if users(properties) not in good_properties:
            asks.append(_properties_from(users(properties), good_properties[-1]))
        return asks


def _select(selections: Selections, ask: ClientAsk) -> Selections:
    match ask:
        case Subscribe():
            return selections.select(parse_selector(ask.selector))
        case Unsubscribe():
            selections = selections.deselect(parse_selector(ask.selector))
            for kept in ask.keep:
                selections = selections.select(parse_selector(kept))
            return selections
        case _:
            return selections


def _selections_from(actual: Selections, wanted: Selections) -> list[ClientAsk]:
    alike = 0
    while alike < min(len(actual), len(wanted)) and actual.entries[alike] == wanted.entries[alike]:
        alike += 1
    entries, others = wanted.entries[alike:], actual.entries[alike:]
    asks: list[ClientAsk] = []
    # What is there besides does no harm if entries that are asked for again decide about all of it. That must not be
    # taken away: should the reason be that a right was withdrawn, it is what is left of it.
    if not all(any(covers(entry.selector, other.selector) for entry in entries) for other in others):
        # The order of entries decides, so the list is made anew.
        entries = wanted.entries
        asks.append(Unsubscribe(UNNUMBERED, ANY))
        asks += [
            Unsubscribe(UNNUMBERED, other.selector.text)
            for other in actual
            if other.selects and is_reserved(other.selector.text)
        ]
    asks += [(Subscribe if entry.selects else Unsubscribe)(UNNUMBERED, entry.selector.text) for entry in entries]
    return asks


def _properties_from(actual: Mapping[str, str], wanted: Mapping[str, str]) -> SetProperties:
    changes: dict[str, str | None] = dict.fromkeys(actual.keys() - wanted.keys())
    changes |= {name: value for name, value in wanted.items() if actual.get(name) != value}
    return SetProperties(UNNUMBERED, changes)
