"""How two clusters meet on a connection: each proves that it knows the secret, and shows the certificate that is known.

```text
sender                                       receiver
  │ ── TLS, each with its certificate ──────── │
  │ ◀─────────────────────────── challenge ─── │
  │ ── hello, with a proof ──────────────────▶ │  a known zone or join? the secret? the certificate? a member still?
  │ ◀─────── welcome, with a proof, or refuse ─│
up, or hangs up
```
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.app.zone_links.knowledge import Knowledge
from gateway.core.topics.selectors import Selector
from gateway.core.wire.errors import GatewayError
from gateway.core.zones.messages import decode, encode
from gateway.core.zones.proofs import NONCE_BYTES, Meeting, Role, key_name, proof, proves
from gateway.core.zones.protocol import (
    PROTOCOLS,
    Challenge,
    Hello,
    Purpose,
    Refuse,
    Welcome,
    ZoneMessage,
    ZoneProtocolError,
    ZoneRefusal,
    ZoneTooMuch,
)
from gateway.core.zones.records import Join, JoinDirection, Member, Zone
from gateway.core.zones.routes import ClusterId, Crossing, Place
from gateway.ports import LinkName
from gateway.ports.zone_links import ZoneConnection

GREETING_SECONDS: Final = 5.0
"""For all of it: many slow round trips. Somebody who says nothing has a place no longer than that."""


class NotLinked(GatewayError):
    """There is no link, or none any more; the message tells people why.

    Attributes:
        why: the reason.
        told: whether the other side said so, not this one.
    """

    def __init__(self, why: ZoneRefusal, detail: str, *, told: bool = False) -> None:
        super().__init__(detail or why.value)
        self.why = why
        self.told = told

    @classmethod
    def by(cls, refuse: Refuse) -> NotLinked:
        """Make it of what the other side said."""
        return cls(refuse.why, f"the other cluster refuses: {refuse.detail or refuse.why.value}", told=True)

    @classmethod
    def over(cls, error: ZoneProtocolError) -> NotLinked:
        """Make it of what is wrong with what the other side said."""
        return cls(ZoneRefusal.LIMIT if isinstance(error, ZoneTooMuch) else ZoneRefusal.PROTOCOL, str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom a sender wants to reach, and for what.

    Attributes:
        name: of the link, within this cluster.
        purpose: of the link.
        reference: uid of the zone, or its name to meet; of a join the name of its key.
        key: of the zone or the join.
        urls: where nodes of the target take links.
        fingerprints: that it may show; if there are none, whatever the authority vouches for.
        cluster: who should be there; None if that is not known.
        label: for people.
        selectors: of a join: what crosses. None if the receiver tells.
        most_hops: of a join.
    """

    name: str
    purpose: Purpose
    reference: str
    key: str
    urls: tuple[str, ...]
    fingerprints: frozenset[str] = frozenset()
    cluster: ClusterId | None = None
    label: str = ""
    selectors: frozenset[Selector] | None = None
    most_hops: int = 0

    @property
    def crossing(self) -> Crossing:
        """How events leave this cluster over the link."""
        return Crossing.JOIN if self.purpose is Purpose.JOIN else Crossing.MEMBER

    @classmethod
    def member(cls, zone: Zone, member: Member) -> Target:
        """Make it of a member of the zone."""
        return cls(
            name=member.cluster,
            purpose=Purpose.MEMBER,
            reference=zone.uid,
            key=zone.key,
            urls=member.urls,
            fingerprints=frozenset(member.fingerprints),
            cluster=member.cluster,
            label=member.name or member.cluster,
        )

    @classmethod
    def join(cls, join: Join) -> Target:
        """Make it of a join."""
        return cls(
            name=f"join:{join.name}",
            purpose=Purpose.JOIN,
            reference=key_name(join.key),
            key=join.key,
            urls=join.urls,
            fingerprints=frozenset(join.fingerprints),
            label=join.name,
            selectors=frozenset(join.selectors),
            most_hops=join.most_hops,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who sends over a link that was accepted.

    Attributes:
        link: name of the link here; its terms are those that the sender tells.
        crossing: how its events come.
        cluster: which cluster.
        label: for people.
        term: of its carrier.
        place: where its events come from.
        selectors: of a join: what may come. None for everything.
        most_hops: of a join: joins that an event may have crossed.
        is_meeting: nothing is sent over it; the other side gets to know the zone.
    """

    link: LinkName
    crossing: Crossing
    cluster: ClusterId
    label: str
    term: int
    place: Place
    selectors: frozenset[Selector] | None = None
    most_hops: int = 0
    is_meeting: bool = False

    @property
    def principal(self) -> str:
        """As whom the policy judges it."""
        return principal_of(self.cluster)


def principal_of(cluster: ClusterId) -> str:
    """Name the principal that a link with a cluster is, on both ends."""
    return f"zone:{cluster}"


def nonce() -> str:
    """Make a nonce."""
    return secrets.token_hex(NONCE_BYTES)


async def expect(connection: ZoneConnection) -> ZoneMessage:
    """Wait for a message of a greeting.

    Raises:
        NotLinked: it is a refusal, or no message.
        ZoneLinkBroken: see there.
    """
    try:
        message = decode(await connection.receive())
    except ZoneProtocolError as error:
        raise NotLinked.over(error) from None
    if isinstance(message, Refuse):
        raise NotLinked.by(message)
    return message


# --- Who dials --------------------------------------------------------------------------------------------------------


async def greet(
    connection: ZoneConnection, target: Target, knowledge: Knowledge, *, share: int, shares: int, term: int
) -> Welcome:
    """Say who this cluster is, as its sender; returns what the receiver said.

    Raises:
        NotLinked: the link may not be.
        ZoneLinkBroken: see there.
    """
    _check_pinned(target, connection.fingerprint)
    challenge = await expect(connection)
    if not isinstance(challenge, Challenge):
        raise NotLinked(ZoneRefusal.PROTOCOL, "something else came in place of a challenge")
    protocol = max(set(PROTOCOLS) & set(challenge.protocols), default=None)
    if protocol is None:
        raise NotLinked(
            ZoneRefusal.PROTOCOL, f"it speaks the versions {sorted(challenge.protocols)}, and this {list(PROTOCOLS)}"
        )
    meeting = Meeting(
        reference=target.reference,
        dialer=knowledge.cluster,
        listener="",
        dialer_nonce=nonce(),
        listener_nonce=challenge.nonce,
        dialer_fingerprint=connection.own_fingerprint,
        listener_fingerprint=connection.fingerprint,
    )
    hello = Hello(
        protocol=protocol,
        purpose=target.purpose,
        reference=target.reference,
        cluster=knowledge.cluster,
        name=knowledge.name,
        place=knowledge.here,
        share=share,
        shares=shares,
        term=term,
        nonce=meeting.dialer_nonce,
        proof=proof(target.key, Role.DIALS, meeting),
        member=knowledge.own if target.purpose is not Purpose.JOIN else None,
    )
    await connection.send(encode(hello))
    welcome = await expect(connection)
    if not isinstance(welcome, Welcome):
        raise NotLinked(ZoneRefusal.PROTOCOL, "something else came in place of a welcome")
    if not proves(welcome.proof, target.key, Role.LISTENS, meeting._replace(listener=welcome.cluster)):
        raise NotLinked(ZoneRefusal.PROOF, "whoever is there does not know the secret")
    if welcome.cluster == knowledge.cluster:
        raise NotLinked(ZoneRefusal.SELF, "this cluster itself is there; do the URLs lead here?")
    if target.cluster not in {None, welcome.cluster}:
        raise NotLinked(ZoneRefusal.CERTIFICATE, f"the cluster {welcome.cluster} is there in place of {target.cluster}")
    connection.trust()
    return welcome


def _check_pinned(target: Target, fingerprint: str) -> None:
    if target.fingerprints and fingerprint not in target.fingerprints:
        raise NotLinked(
            ZoneRefusal.CERTIFICATE,
            f"{target.label} shows a certificate that is not known of it; its fingerprint is {fingerprint}",
        )


# --- Who listens ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """Who has dialled, if it may.

    Attributes:
        source: who.
        member: its own record, if that is news.
    """

    source: Source
    member: Member | None = None


async def meet(connection: ZoneConnection, knowledge: Knowledge) -> Judged:
    """Find out who has dialled, and let it in; says nothing to who may not.

    Raises:
        NotLinked: it may not.
        ZoneLinkBroken: see there.
    """
    challenge = Challenge(PROTOCOLS, nonce())
    await connection.send(encode(challenge))
    hello = await expect(connection)
    if not isinstance(hello, Hello):
        raise NotLinked(ZoneRefusal.PROTOCOL, "something else came in place of a hello")
    if hello.protocol not in PROTOCOLS:
        raise NotLinked(ZoneRefusal.PROTOCOL, f"version {hello.protocol} is not spoken here")
    meeting = Meeting(
        reference=hello.reference,
        dialer=hello.cluster,
        listener="",
        dialer_nonce=hello.nonce,
        listener_nonce=challenge.nonce,
        dialer_fingerprint=connection.fingerprint,
        listener_fingerprint=connection.own_fingerprint,
    )
    if not knowledge.is_ready:
        raise NotLinked(ZoneRefusal.BUSY, "the grid has not been reached yet")
    judged, key = judge(hello, connection.fingerprint, knowledge, lambda key: _prove(hello, key, meeting))
    zone = knowledge.table.zone if hello.purpose is not Purpose.JOIN else None
    welcome = Welcome(
        cluster=knowledge.cluster,
        name=knowledge.name,
        place=knowledge.here,
        zone="" if zone is None else zone.uid,
        zone_name="" if zone is None else zone.name,
        proof=proof(key, Role.LISTENS, meeting._replace(listener=knowledge.cluster)),
    )
    await connection.send(encode(welcome))
    connection.trust()
    return judged


def _prove(hello: Hello, key: str, meeting: Meeting) -> None:
    if not proves(hello.proof, key, Role.DIALS, meeting):
        raise NotLinked(ZoneRefusal.PROOF, "the secret is another one here")


def judge(
    hello: Hello, fingerprint: str, knowledge: Knowledge, check_proof: Callable[[str], None]
) -> tuple[Judged, str]:
    """Decide whether somebody may send here.

    Args:
        hello: what it says.
        fingerprint: of the certificate that it has shown.
        knowledge: what is known here.
        check_proof: raises ``NotLinked`` unless it has proved that it has a key.

    Returns:
        Who it is, and the key.

    Raises:
        NotLinked: it may not.
    """
    if hello.purpose is Purpose.JOIN:
        return _judge_join(hello, fingerprint, knowledge, check_proof)
    zone = knowledge.table.zone
    if zone is None or hello.reference not in ((zone.uid, zone.name) if hello.purpose is Purpose.MEET else (zone.uid,)):
        raise NotLinked(ZoneRefusal.ZONE, "this cluster is in no such zone")
    check_proof(zone.key)
    _check_other(hello, knowledge)
    known = knowledge.table.members.get((zone.uid, hello.cluster))
    told = hello.member
    if told is not None and (told.zone != zone.uid or told.cluster != hello.cluster or told.left):
        raise NotLinked(ZoneRefusal.PROTOCOL, "a hello with the record of somebody else")
    news = told if told is not None and (known is None or told.revision > known.revision) else None
    if known is not None and known.left and news is None:
        raise NotLinked(ZoneRefusal.LEFT, f"{hello.cluster} has left the zone")
    # Whoever knows the secret may become a member; from then on its certificates are pinned.
    pinned = () if known is None or known.left else known.fingerprints
    if pinned and fingerprint not in pinned:
        raise NotLinked(
            ZoneRefusal.CERTIFICATE,
            f"{hello.cluster} shows a certificate that is not known of it; its fingerprint is {fingerprint}",
        )
    if not pinned and hello.purpose is Purpose.MEMBER and (told is None or fingerprint not in told.fingerprints):
        raise NotLinked(ZoneRefusal.CERTIFICATE, f"{hello.cluster} is not known, and does not name its certificate")
    source = Source(
        link=LinkName(f"from:{hello.cluster}/{hello.share}"),
        crossing=Crossing.MEMBER,
        cluster=hello.cluster,
        label=hello.name or hello.cluster,
        term=hello.term,
        place=Place(zone.uid),
        is_meeting=hello.purpose is Purpose.MEET,
    )
    return Judged(source, news), zone.key


def _judge_join(
    hello: Hello, fingerprint: str, knowledge: Knowledge, check_proof: Callable[[str], None]
) -> tuple[Judged, str]:
    join = next((each for each in knowledge.joins(JoinDirection.IN) if key_name(each.key) == hello.reference), None)
    if join is None:
        raise NotLinked(ZoneRefusal.ZONE, "this cluster takes no such join")
    check_proof(join.key)
    _check_other(hello, knowledge)
    if join.fingerprints and fingerprint not in join.fingerprints:
        raise NotLinked(
            ZoneRefusal.CERTIFICATE,
            f"the certificate is not one of those of the join {join.name}; its fingerprint is {fingerprint}",
        )
    source = Source(
        link=LinkName(f"from:join:{join.name}/{hello.share}"),
        crossing=Crossing.JOIN,
        cluster=hello.cluster,
        label=join.name,
        term=hello.term,
        place=hello.place,
        selectors=frozenset(join.selectors),
        most_hops=join.most_hops,
    )
    return Judged(source), join.key


def _check_other(hello: Hello, knowledge: Knowledge) -> None:
    if hello.cluster == knowledge.cluster:
        raise NotLinked(ZoneRefusal.SELF, "both ends are the same cluster")
