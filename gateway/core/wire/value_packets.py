"""Reading current values without a subscription, page by page (protocol 6.7); see ``packets``."""

from __future__ import annotations

from typing import Any, Final

from gateway.core.immutable import immutable
from gateway.core.types import EventId, RequestNumber, Version

VALUES: Final = "values"
"""The word with which a server says that it can be asked for the values of topics (protocol 4.3, 6.7)."""


@immutable
class ReadValues:
    """Read a page of the current values of topics, in the order of their paths.

    Attributes:
        request: the request's number.
        selector: which topics.
        after: the path behind which the page begins, not yet validated; None for the first page.
        limit: most values, from 1 on; the node may send fewer. None for as many as a page may have.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    selector: str
    after: str | None = None
    limit: int | None = None
    resubmitted: bool = False


@immutable
class ValueItem:
    """The current value of a topic, as a page has it.

    Attributes:
        topic: its path.
        version: of the value.
        event: id of the publish that set it.
        value: the value, as JSON reads into Python: of any of its types.
    """

    topic: str
    version: Version
    event: EventId
    value: Any


@immutable
class ValuesPart:
    """What a reading of values found.

    Attributes:
        items: in the order of their paths.
        next: the path behind which the next page begins; None if this was the last one.
    """

    items: tuple[ValueItem, ...] = ()
    next: str | None = None
