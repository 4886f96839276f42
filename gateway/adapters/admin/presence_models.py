"""Who is in trees of topics with presence, in the JSON of the admin API; see ``models`` for the rules."""

from __future__ import annotations

from pydantic import Field

from gateway.adapters.admin.models import Told


class Tree(Told):
    """A tree of topics with members."""

    tree: str = Field(description="Its path.", examples=["rooms/7"])
    members: int = Field(description="How many sessions have subscribed to it, of all nodes.")


class TreePage(Told):
    """Some trees."""

    items: list[Tree]
    cursor: str | None = Field(description="Where the next page begins; null if this was the last.")
