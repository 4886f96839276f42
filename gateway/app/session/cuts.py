"""How far a session has come in the streams of topics, as one node tells it to the next (H2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.core.types import EventId, RequestNumber


class Cuts(NamedTuple):
    """How far a session has come.

    Attributes:
        places: by partition, up to which event it has been handed all that it is to have. Of the others it has to be
            sent the current values.
        unfinished: selectors of subscribes of which it has not been handed all current values, by their requests.
    """

    places: Mapping[int, EventId]
    unfinished: Mapping[RequestNumber, str]
