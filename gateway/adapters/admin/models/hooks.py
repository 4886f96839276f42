"""What the admin API gives and takes about event hooks."""

from __future__ import annotations

from pydantic import Field

from gateway.adapters.admin.models.base import Given, Told
from gateway.ports.hook_administration import HookState


class Hook(Told):
    """An event hook."""

    name: str = Field(description="Its name, as its section says.")
    url: str = Field(
        description="Where it posts: scheme, host and port; path and query may be secret, and are not told. Empty if "
        "no node has said it."
    )
    events: list[str] = Field(description="The types of events that it gets, those of patterns by their names.")
    state: HookState = Field(
        description="`delivering`; `failing`: its receiver did not take what came last, and is tried again; "
        "`suspended`: its receiver said that it is gone; `unheld`: no node delivers for it."
    )
    node: str | None = Field(description="The node that delivers; null if none does.")
    behind: int = Field(
        description="Events of the journal that it has yet to pass, those that it does not want included."
    )
    failures: int = Field(description="Attempts that have failed in a row.")
    error: str = Field(
        description="Why the last attempt that failed did so, also if others were good since; empty if none ever did."
    )
    failed: float | None = Field(description="When that was, in seconds since 1970; null if none ever did.")
    delivered: float | None = Field(
        description="When events were delivered last, in seconds since 1970, give or take ten seconds; null for never."
    )
    failing: float | None = Field(description="Since when attempts fail, likewise; null if the last one was good.")
    attempt: float | None = Field(description="When the next one is due, likewise; null if none is waited for.")


class Hooks(Told):
    """All event hooks."""

    items: list[Hook]


class HookPath(Given):
    """Which event hook."""

    name: str = Field(min_length=1, max_length=64, description="Its name.")
