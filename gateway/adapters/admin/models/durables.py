"""What the admin API gives and takes about durable subscriptions."""

from __future__ import annotations

from pydantic import Field

from gateway.adapters.admin.models.base import Given, Told


class Durable(Told):
    """A place in topics with history that outlives sessions."""

    principal: str = Field(description="Whose it is.")
    name: str = Field(description="What the principal calls it.")
    selector: str = Field(description="Which topics.")
    shared: bool = Field(description="Whether several sessions use it together.")
    session: str | None = Field(description="The session that uses it; null for none, and of a shared one.")
    position: str = Field(
        description="Up to where everything has been acknowledged, as event ids; empty for nothing. Of a shared one: "
        "where it began."
    )
    made: float = Field(description="When, in seconds since 1970.")
    until: float | None = Field(description="When it is removed unless it is used before; null while it is used.")


class DurablePage(Told):
    """Some durable subscriptions."""

    items: list[Durable]
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class DurablePath(Given):
    """Which durable subscription."""

    principal: str = Field(min_length=1, max_length=1024, description="Whose it is; `/` is written `%2F`.")
    name: str = Field(min_length=1, max_length=1024, description="What the principal calls it; likewise.")
