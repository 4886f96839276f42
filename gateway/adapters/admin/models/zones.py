"""What the admin API gives and takes about zones and joins."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from gateway.adapters.admin.models.base import Given, Told

_ABOUT = "Known to all who take part; 16 to 1,024 characters. It is stored nowhere, but a key that is made of it is."
_URL = "Such as `wss://gateway.example:8401`. There are no links without TLS."
_FINGERPRINT = "SHA-256 of a certificate, 64 hexadecimal digits, with or without colons."


class Zone(Told):
    """A zone that this cluster knows."""

    uid: str = Field(description="Tells it from all others.")
    name: str = Field(description="For people. Zones of one name can be different ones.")
    current: bool = Field(description="Whether this cluster is in it.")
    active: bool = Field(description="Whether it has members.")
    members: int = Field(description="How many it has.")
    made: float = Field(description="When this cluster wrote what it knows of it, in seconds since 1970.")


class ThisCluster(Told):
    """This cluster, as others have to know it."""

    cluster: str = Field(description="Its id.")
    name: str = Field(description="For people; empty if it has none.")
    urls: list[str] = Field(description="Where its nodes take links of other clusters.")
    fingerprints: list[str] = Field(description="SHA-256 of the certificates that they show there.")


class Zones(Told):
    """The zones that this cluster knows."""

    here: ThisCluster
    items: list[Zone]


class ZoneLink(Told):
    """A link with another cluster, as the node that has it last told."""

    node: str = Field(description="Which node of this cluster has it.")
    name: str = Field(description="Of the link.")
    direction: str = Field(description="`out` if events go there, `in` if they come from there.")
    state: str = Field(description="`up`, `down`, or `refused` if one of the two does not want the other.")
    detail: str = Field(description="Why it is not up; empty if it is.")
    since: float = Field(description="Since when it is so, in seconds since 1970.")
    events: int = Field(description="That have crossed since the node started.")
    bytes: int = Field(description="Likewise.")
    behind: int = Field(description="Entries of streams that have yet to be looked at.")
    unacknowledged: int = Field(description="Events that were sent and not acknowledged.")
    duplicates: int = Field(description="Events that were not taken, because they were there already.")
    selectors: int = Field(description="Selectors of interest that were told over it.")


class Member(Told):
    """A member of a zone."""

    cluster: str = Field(description="Its id.")
    name: str = Field(description="For people; empty if it has none.")
    here: bool = Field(description="Whether it is this cluster.")
    urls: list[str] = Field(description="Where its nodes take links.")
    fingerprints: list[str] = Field(description="SHA-256 of the certificates that they show there.")
    revision: int = Field(description="Of what it has told of itself; the highest counts.")
    links: list[ZoneLink] = Field(description="Between it and this cluster.")


class Members(Told):
    """The members of a zone."""

    items: list[Member]


class ZoneCreate(Given):
    """A zone to be made."""

    name: str = Field(min_length=1, max_length=64, description="Letters, digits, dots, dashes and underscores.")
    secret: SecretStr = Field(min_length=16, max_length=1024, description=_ABOUT)


class ZoneJoin(Given):
    """A zone to be joined."""

    zone: str = Field(min_length=1, max_length=64, description="Its uid or name.")
    urls: list[str] = Field(
        default_factory=list, max_length=32, description="Where members of it take links, if others are in it. " + _URL
    )
    secret: SecretStr | None = Field(
        default=None, min_length=16, max_length=1024, description=_ABOUT + " Needed if it is not known here."
    )


class Join(Told):
    """A static join with a cluster that is in no zone with this one."""

    name: str = Field(description="In this cluster.")
    direction: str = Field(description="`out` if events go from here, `in` if they come.")
    selectors: list[str] = Field(description="What crosses.")
    urls: list[str] = Field(description="Where the other cluster takes links; empty of `in`.")
    fingerprints: list[str] = Field(description="SHA-256 of the certificates that the other side may have.")
    most_hops: int = Field(description="Joins that an event may have crossed when it arrives over this one.")
    made: float = Field(description="When it was written, in seconds since 1970.")
    links: list[ZoneLink]


class Joins(Told):
    """The joins of this cluster."""

    items: list[Join]


class JoinPath(Given):
    """Which join."""

    name: str = Field(min_length=1, max_length=64, description="Of the join.", examples=["to-south"])


class JoinWrite(Given):
    """What a join shall be."""

    direction: Literal["out", "in"] = Field(
        description="`out` to send what matches to another cluster, `in` to take what one sends."
    )
    selectors: list[str] = Field(min_length=1, max_length=100, description="What crosses.", examples=[["prices/**"]])
    urls: list[str] = Field(
        default_factory=list, max_length=32, description="Of `out`: where the other cluster takes links. " + _URL
    )
    fingerprints: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="Of the certificates that the other side may have: nobody else is trusted. " + _FINGERPRINT,
    )
    secret: SecretStr | None = Field(
        default=None,
        min_length=16,
        max_length=1024,
        description="The same on both sides. " + _ABOUT + " Left out, that of the join that is there stays.",
    )
    most_hops: int | None = Field(
        default=None,
        ge=1,
        le=4,
        description="Joins that an event may have crossed when it arrives over this one; 4 if left out.",
    )
