"""What a cluster knows of zones: zones, their members, its own joins; and how the grid holds them (003-01 to 003-25).

Each record has a name that is its own among all of them, and a *rank*, by which of two under the same name the later
one is told, wherever they come from. In the grid it stands in front of the JSON text.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import isfinite
from typing import Final, NewType, TypeAlias
from urllib.parse import urlsplit

import orjson

from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import is_reserved, shown
from gateway.core.wire.errors import GatewayError, InvalidSelector
from gateway.core.zones.routes import MOST_HOPS, ClusterId

ZoneUid = NewType("ZoneUid", str)
"""Identity of a zone: random, so that two zones of one name are two (003-08)."""

MOST_ZONES: Final = 64
"""Zones that a cluster knows: it is in one at most, the others were created here or left."""

MOST_MEMBERS: Final = 1_000
"""Members of all zones that a cluster knows, those that have left included. Zones of some dozen clusters are large:
each member has a link to each other one."""

MOST_JOINS: Final = 64
"""Joins of a cluster; each is a link."""

MOST_SELECTORS_OF_A_JOIN: Final = 100
"""Selectors of one join: static, written by people."""

MOST_URLS: Final = 32
"""URLs, and fingerprints, of one record: one for each node, of clusters larger than any seen."""

MOST_URL_CHARACTERS: Final = 512
"""Of a URL."""

MOST_NAME_CHARACTERS: Final = 64
"""Of a name for people."""

MOST_ENCODED_BYTES: Final = 64 * 1024
"""Bytes beyond which what is held is no record, and is not parsed: the largest one has half of it."""

LEAST_SECRET_BYTES: Final = 16
"""Of a zone's secret: fewer can be guessed by whoever has recorded a proof."""

ENCODING_VERSION: Final = 1
"""Version of the encoding. A field that older nodes can do without does not raise it."""

_KEY_CONTEXT: Final = b"session gateway zone"
"""Keeps keys of zones apart from whatever else is made of the same secret."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_IDENTITY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_SCHEME: Final = "wss"


class InvalidRecord(GatewayError):
    """A zone, member or join is described wrongly.

    Attributes:
        field: which part of it.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class UnreadableRecord(ValueError):
    """An entry of the grid is no record that this release knows; the message says why."""


def zone_key(secret: bytes) -> str:
    """Derive the key by which members prove that they know a zone's secret, in hexadecimal.

    The secret itself is stored nowhere. Who reads the key can prove the same, but learns nothing that people type.

    Raises:
        InvalidRecord: the secret is too short.
    """
    if len(secret) < LEAST_SECRET_BYTES:
        raise InvalidRecord("secret", f"has {len(secret)} bytes, and needs {LEAST_SECRET_BYTES} at least")
    return hmac.new(secret, _KEY_CONTEXT, hashlib.sha256).hexdigest()


class JoinDirection(StrEnum):
    """Which way the events of a join go."""

    OUT = "out"
    """From here: this cluster opens the link, and sends what matches."""
    IN = "in"
    """To here: another cluster opens the link, and what matches is taken as if it were published here (003-30)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone, as a cluster knows it.

    Attributes:
        uid: which one.
        name: for people; not unique.
        key: of ``zone_key``.
        made: when this was written, in seconds since 1970.
        seeds: URLs at which the first member is looked for, by who joins a zone that others are in.
    """

    uid: ZoneUid
    name: str
    key: str = field(repr=False)
    made: float
    seeds: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """Its name among all records."""
        return f"zone {self.uid}"

    @property
    def rank(self) -> float:
        """The later of two has the higher one."""
        return self.made


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a zone, which is a cluster (003-05, 003-06).

    Attributes:
        zone: of which zone.
        cluster: which cluster.
        name: for people.
        urls: where its nodes take links.
        fingerprints: SHA-256 of the certificates of its nodes, in hexadecimal: nobody else is it.
        revision: raised by the member itself with each change.
        left: it is a member no more. It is remembered, so that an older list does not bring it back.
    """

    zone: ZoneUid
    cluster: ClusterId
    name: str = ""
    urls: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    revision: int = 1
    left: bool = False

    @property
    def row(self) -> str:
        """Its name among all records."""
        return f"member {self.zone} {self.cluster}"

    @property
    def rank(self) -> float:
        """The later of two has the higher one."""
        return self.revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A static join with a cluster that is in no zone with this one (003-17).

    Attributes:
        name: of the join, in this cluster.
        direction: which way events go.
        selectors: what crosses.
        urls: of ``OUT``: where the other cluster takes links.
        fingerprints: SHA-256 of the certificates that the other side may have, in hexadecimal.
        key: of ``zone_key``; both sides have it.
        made: when this was written, in seconds since 1970.
        most_hops: joins that an event may have crossed when it arrives over this one.
    """

    name: str
    direction: JoinDirection
    selectors: tuple[Selector, ...]
    urls: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    key: str = field(repr=False)
    made: float
    most_hops: int = MOST_HOPS

    @property
    def row(self) -> str:
        """Its name among all records."""
        return f"join {self.name}"

    @property
    def rank(self) -> float:
        """The later of two has the higher one."""
        return self.made


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """In which zone this cluster is.

    Attributes:
        zone: which one; None if it is in none.
        made: when this was written, in seconds since 1970.
    """

    zone: ZoneUid | None
    made: float

    @property
    def row(self) -> str:
        """Its name among all records."""
        return MEMBERSHIP

    @property
    def rank(self) -> float:
        """The later of two has the higher one."""
        return self.made


MEMBERSHIP: Final = "membership"
"""The name of the one ``Membership`` among all records."""

Record: TypeAlias = Zone | Member | Join | Membership

# --- What people and other clusters give ------------------------------------------------------------------------------


def check_name(field: str, name: str) -> str:
    """Check a name for people: of a zone, a cluster or a join.

    Raises:
        InvalidRecord: it is none.
    """
    if len(name) > MOST_NAME_CHARACTERS or not _NAME.fullmatch(name):
        raise InvalidRecord(
            field,
            f"{shown(name)} is no name: up to {MOST_NAME_CHARACTERS} letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit",
        )
    return name


def check_identity(field: str, text: str) -> str:
    """Check a uid of a zone or an id of a cluster.

    Raises:
        InvalidRecord: it is none.
    """
    if not _IDENTITY.fullmatch(text):
        raise InvalidRecord(field, f"{shown(text)} is none: up to 64 letters, digits, dashes and underscores")
    return text


def check_link_urls(field: str, urls: Sequence[str]) -> tuple[str, ...]:
    """Check URLs at which links are taken: of TLS only, there is no clear text between clusters.

    Raises:
        InvalidRecord: one is none, or there are too many.
    """
    if len(urls) > MOST_URLS:
        raise InvalidRecord(field, f"has {len(urls)} entries; {MOST_URLS} are the most")
    for url in urls:
        try:
            parts = urlsplit(url)
            fits = parts.scheme == _SCHEME and bool(parts.hostname) and parts.port is not None
            fits = fits and parts.username is None and parts.path in {"", "/"} and not parts.query
        except ValueError:
            fits = False
        if not fits or len(url) > MOST_URL_CHARACTERS:
            # A password may be in it.
            said = "one with a user" if "@" in url else shown(url)
            raise InvalidRecord(field, f"has {said}, which is no URL of a link, such as wss://gateway.example:8401")
    return tuple(url.rstrip("/") for url in urls)


def check_fingerprints(field: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Check fingerprints of certificates; colons and capitals, as tools print them, are taken.

    Raises:
        InvalidRecord: one is none, or there are too many.
    """
    if len(texts) > MOST_URLS:
        raise InvalidRecord(field, f"has {len(texts)} entries; {MOST_URLS} are the most")
    plain = tuple(each.replace(":", "").lower() for each in texts)
    for each, given in zip(plain, texts, strict=True):
        if not _HASH.fullmatch(each):
            raise InvalidRecord(field, f"{shown(given)} is no SHA-256 of a certificate: 64 hexadecimal digits")
    return plain


def check_selectors(field: str, texts: Sequence[str]) -> tuple[Selector, ...]:
    """Check the selectors of a join.

    Raises:
        InvalidRecord: one is none or is of the system's topics, there are none, or too many.
    """
    if not 0 < len(texts) <= MOST_SELECTORS_OF_A_JOIN:
        raise InvalidRecord(field, f"has {len(texts)} entries; a join has 1 to {MOST_SELECTORS_OF_A_JOIN}")
    found = []
    for text in texts:
        try:
            selector = parse_selector(text)
        except InvalidSelector as error:
            raise InvalidRecord(field, str(error)) from None
        if is_reserved(selector.text):
            raise InvalidRecord(field, f"{shown(text)} is of the system's topics, which never leave a cluster")
        found.append(selector)
    return tuple(dict.fromkeys(found))


def check_hops(field: str, hops: int) -> int:
    """Check how many joins an event may cross.

    Raises:
        InvalidRecord: too many, or none.
    """
    if not 1 <= hops <= MOST_HOPS:
        raise InvalidRecord(field, f"is {hops}, and may be 1 to {MOST_HOPS}")
    return hops


@lru_cache(MOST_MEMBERS)
def check_member(member: Member) -> Member:
    """Check a member that another cluster has told of.

    Those that are right are remembered: each link that comes up tells of all members, and so do the grid's records, so
    that in a large zone the same URLs and fingerprints are read again and again.

    Raises:
        InvalidRecord: something about it is wrong.
    """
    check_identity("zone", member.zone)
    check_identity("cluster", member.cluster)
    if member.name:
        check_name("name", member.name)
    check_link_urls("urls", member.urls)
    check_fingerprints("fingerprints", member.fingerprints)
    if not 0 < member.revision < _MOST_REVISIONS:
        raise InvalidRecord("revision", f"is {member.revision}")
    return member


_MOST_REVISIONS: Final = 2**40
"""More changes than any member makes."""

# --- In the grid ------------------------------------------------------------------------------------------------------


def encode_record(record: Record) -> bytes:
    """Encode what the grid holds of a record beside its name: its rank, a blank, and JSON."""
    described: dict[str, object] = {"v": ENCODING_VERSION}
    match record:
        case Zone():
            described |= {"name": record.name, "key": record.key, "seeds": record.seeds}
        case Member():
            described |= {"name": record.name, "urls": record.urls, "fingerprints": record.fingerprints}
            described["left"] = record.left
        case Join():
            described |= {
                "direction": record.direction.value,
                "selectors": [each.text for each in record.selectors],
                "urls": record.urls,
                "fingerprints": record.fingerprints,
                "key": record.key,
                "most_hops": record.most_hops,
            }
        case Membership():
            described["zone"] = record.zone
    return f"{record.rank!r} ".encode() + orjson.dumps(described)


def decode_record(row: str, data: bytes) -> Record:
    """Read what ``encode_record`` has written, here or at a node of another release.

    Args:
        row: name of the record.
        data: what the grid holds.

    Raises:
        UnreadableRecord: it is damaged, of a later version, or of a kind that this release does not know.
    """
    rank, found = _take_apart(data)
    kind, _, rest = row.partition(" ")
    try:
        match kind:
            case "zone":
                return Zone(
                    uid=ZoneUid(check_identity("uid", rest)),
                    name=check_name("name", _text(found, "name")),
                    key=_key(found),
                    made=rank,
                    seeds=check_link_urls("seeds", _texts(found, "seeds")),
                )
            case "member":
                zone, _, cluster = rest.partition(" ")
                return check_member(
                    Member(
                        zone=ZoneUid(zone),
                        cluster=ClusterId(cluster),
                        name=_text(found, "name"),
                        urls=_texts(found, "urls"),
                        fingerprints=_texts(found, "fingerprints"),
                        revision=int(rank),
                        left=found.get("left") is True,
                    )
                )
            case "join":
                return Join(
                    name=check_name("name", rest),
                    direction=JoinDirection(_text(found, "direction")),
                    selectors=check_selectors("selectors", _texts(found, "selectors")),
                    urls=check_link_urls("urls", _texts(found, "urls")),
                    fingerprints=check_fingerprints("fingerprints", _texts(found, "fingerprints")),
                    key=_key(found),
                    made=rank,
                    most_hops=check_hops("most_hops", _number(found, "most_hops")),
                )
            case "membership" if row == MEMBERSHIP:
                zone_uid = found.get("zone")
                uid = None if zone_uid is None else ZoneUid(check_identity("zone", _text(found, "zone")))
                return Membership(zone=uid, made=rank)
    except (InvalidRecord, ValueError) as error:
        raise UnreadableRecord(f"an entry cannot be read: {error}") from None
    raise UnreadableRecord(f"{shown(row)} is no name of a record")


def _take_apart(data: bytes) -> tuple[float, Mapping[str, object]]:
    if len(data) > MOST_ENCODED_BYTES:
        raise UnreadableRecord(f"an entry of {len(data)} bytes is no record")
    before, _, described = data.partition(b" ")
    try:
        rank, found = float(before), orjson.loads(described)
    except ValueError as error:
        raise UnreadableRecord(f"an entry is no number and JSON: {error}") from None
    if not isfinite(rank) or not isinstance(found, dict):
        raise UnreadableRecord("an entry is no number and JSON object")
    if found.get("v") != ENCODING_VERSION:
        raise UnreadableRecord(f"an entry has version {found.get('v')!r}, and this release reads {ENCODING_VERSION}")
    return rank, found


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise InvalidRecord(name, "is no text")
    return value


def _texts(found: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = found.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidRecord(name, "is no list of texts")
    return tuple(value)


def _number(found: Mapping[str, object], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRecord(name, "is no number")
    return value


def _key(found: Mapping[str, object]) -> str:
    key = _text(found, "key")
    if not _HASH.fullmatch(key):
        raise InvalidRecord("key", "is none")
    return key
