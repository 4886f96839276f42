"""What the admin API tells of the node that answers, and of the caller."""

from __future__ import annotations

from pydantic import Field

from gateway.adapters.admin.models.base import Told


class ShownSetting(Told):
    """A setting and its value."""

    name: str
    group: str
    value: str = Field(description="For people; secrets are masked.")
    changed: bool = Field(description="Whether it differs from the default.")
    meaning: str


class Access(Told):
    """The caller, and what the caller may do."""

    name: str = Field(description="Of the token.")
    roles: list[str]
    actions: list[str] = Field(description="Permissions, of those that the operations name.")


class Configuration(Told):
    """The configuration of a node."""

    node: str
    items: list[ShownSetting]
