"""Interfaces: the places at which a node listens, each with a name, and for whom it is (seed: Universal Messaging).

In TOML each is a table of its own, in a variable or flag all of them are one text:

```toml
[[interface]]
name = "public"
listen = "0.0.0.0:8443"

[[interface]]
name = "inside"
listen = "10.0.0.7:8101"
tls = false
```
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from gateway.core.topology import is_secure
from gateway.settings.errors import Problem, Unfit
from gateway.settings.kinds import Kind, Switch, text_of
from gateway.settings.places import Listen
from gateway.settings.values import HostPort

MOST_INTERFACES: Final = 16
"""Of one node: one for each network that a machine is in, and some to spare."""

_URL: Final = re.compile(
    r"wss?://(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9_./~-]{0,128})?"
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A place at which a node listens.

    Attributes:
        name: of its own among those of the node; empty for the one that the setting ``listen`` stands for.
        listen: where.
        tls: whether clients must use TLS there, with ``tls_certificate``; None if they must whenever there is one.
        url: where clients reach it, through whatever stands before it; None if nobody has said.
        advertise: whether clients are told of that URL.
        clients: whether clients are served there.
        links: whether it is where the other nodes connect to this one; no client is served there.
    """

    name: str = ""
    listen: HostPort
    tls: bool | None = None
    url: str | None = None
    advertise: bool = False
    clients: bool = True
    links: bool = False

    def speaks_tls(self, certificate: Path | None) -> bool:
        """Tell whether clients must use TLS there.

        Args:
            certificate: the setting ``tls_certificate``.
        """
        return certificate is not None and self.tls is not False


@dataclass(frozen=True, slots=True)
class ClientUrl(Kind[str]):
    """Where clients reach a node."""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "a URL such as wss://n1.example.com or ws://10.0.0.7:8101"

    def read(self, raw: object) -> str:
        """See the base class."""
        text = text_of(raw)
        if _URL.fullmatch(text) is None:
            raise Unfit("is not a URL such as wss://n1.example.com:8443, without user, query and fragment")
        return text


_KINDS: Final[Mapping[str, Kind[Any]]] = {
    "listen": Listen(),
    "url": ClientUrl(),
    **dict.fromkeys(("tls", "advertise", "clients", "links"), Switch()),
}
"""How what is said of an interface is read, but for its name."""


@dataclass(frozen=True, slots=True)
class Interfaces(Kind[tuple[Interface, ...]]):
    """A list of interfaces."""

    metavar: ClassVar[str] = "LIST"

    @property
    def domain(self) -> str:
        """See the base class."""
        return "interfaces"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return (
            "in TOML a table [[interface]] for each, with name, listen, tls, url, advertise, clients and links; "
            "elsewhere such as name=public listen=0.0.0.0:8443; name=inside listen=10.0.0.7:8101 tls=false"
        )

    def read(self, raw: object) -> tuple[Interface, ...]:
        """See the base class."""
        if isinstance(raw, dict):
            raise Unfit("is one table, where there may be several (write [[interface]])")
        tables = [_table(each) for each in raw.split(";") if each.strip()] if isinstance(raw, str) else raw
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise Unfit("is not a list of interfaces")
        if len(tables) > MOST_INTERFACES:
            raise Unfit(f"has more than {MOST_INTERFACES} interfaces")
        interfaces = tuple(map(_interface, tables))
        if len({each.name for each in interfaces}) != len(interfaces):
            raise Unfit("has two interfaces of one name")
        return interfaces

    def show(self, value: tuple[Interface, ...]) -> str:
        """See the base class."""
        return "; ".join(map(_shown, value))


def _table(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split()]
    if not all(equals for _, equals, _ in pairs):
        raise Unfit("has a word that is not name=value")
    return {name: value for name, _, value in pairs}


def _interface(table: Mapping[str, object]) -> Interface:
    name = text_of(table.get("name", ""))
    if _NAME.fullmatch(name) is None:
        raise Unfit("has an interface without a name of up to 63 letters, digits, dots, dashes and underscores")
    unknown = table.keys() - _KINDS.keys() - {"name"}
    if unknown:
        raise Unfit(f"says {', '.join(sorted(unknown))} of the interface {name}, which means nothing")
    if "listen" not in table:
        raise Unfit(f"does not say where the interface {name} listens")
    try:
        values = {key: _KINDS[key].read(raw) for key, raw in table.items() if key != "name"}
    except Unfit as unfit:
        raise Unfit(f"has the interface {name}, of which a value {unfit}") from None
    # Where other nodes connect, clients speak another language.
    return Interface(name=name, **{"clients": not values.get("links", False), **values})


def _shown(interface: Interface) -> str:
    words = [f"name={interface.name}", f"listen={interface.listen}"]
    for each in fields(Interface)[2:]:
        value = getattr(interface, each.name)
        if value != each.default and not (each.name == "clients" and interface.links):
            words.append(f"{each.name}={_KINDS[each.name].show(value)}")
    return " ".join(words)


class NodeWithInterfaces(Protocol):
    """What is looked at here, of all settings."""

    @property
    def listen(self) -> HostPort:
        """Where clients connect, unless an interface says so."""

    @property
    def interface(self) -> tuple[Interface, ...]:
        """Interfaces by name."""

    @property
    def link(self) -> HostPort | None:
        """Where other nodes connect."""

    @property
    def tls_certificate(self) -> Path | None:
        """The certificate of the client ports."""


def client_interfaces(settings: NodeWithInterfaces) -> Sequence[Interface]:
    """List where clients connect; the one of the setting ``listen`` if no other is named."""
    return [each for each in settings.interface if each.clients] or [Interface(listen=settings.listen)]


def advertised_urls(settings: NodeWithInterfaces) -> tuple[str, ...]:
    """List the URLs that clients are told of."""
    return tuple(each.url for each in client_interfaces(settings) if each.advertise and each.url is not None)


def link_interface(settings: NodeWithInterfaces) -> Interface | None:
    """Tell which interface is for the other nodes; None if none is."""
    return next((each for each in settings.interface if each.links), None)


def check_interfaces(settings: NodeWithInterfaces, place: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what does not fit together.

    Args:
        settings: to check.
        place: tells where a setting was given.
    """
    where = place("interface")
    if any(each.clients for each in settings.interface) and place("listen") != "default":
        yield Problem(
            f"{place('listen')} and {where}",
            "listen is given beside interfaces for clients",
            "write it as an interface, too, or leave it out: without interfaces for clients it stands for one",
        )
    linked = [each for each in settings.interface if each.links]
    if len(linked) > 1:
        names = " and ".join(each.name for each in linked)
        yield Problem(
            where, f"{names} are both for links", "leave links out of all but one: there is one place for them"
        )
    elif linked and settings.link != linked[0].listen:
        yield Problem(
            f"{place('link')} and {where}",
            f"link is {settings.link}, and the interface {linked[0].name} is for links, too",
            "leave one of them out: a node has one place for links",
        )
    for each in settings.interface:
        if each.links and each.clients:
            yield Problem(
                where,
                f"the interface {each.name} is for links and for clients",
                "make it two: nodes and clients do not speak the same language",
            )
        elif not each.links and not each.clients:
            yield Problem(where, f"the interface {each.name} serves nobody", "give clients or links, or remove it")
        yield from _check_url(each, settings, where)
        if each.tls is not None and each.links:
            yield Problem(
                where, f"the interface {each.name} is for links and says tls", "give link_tls_certificate in its place"
            )
        elif each.tls and settings.tls_certificate is None:
            yield Problem(
                where, f"the interface {each.name} has tls without tls_certificate", "give tls_certificate and tls_key"
            )


def _check_url(interface: Interface, settings: NodeWithInterfaces, where: str) -> Iterator[Problem]:
    name = f"the interface {interface.name}"
    if interface.advertise and not interface.clients:
        yield Problem(where, f"{name} is advertised, but not for clients", "leave advertise out: only clients are told")
    elif interface.advertise and interface.url is None:
        yield Problem(where, f"{name} is advertised without url", "give url, where clients reach it from outside")
    if interface.url is not None and interface.links:
        yield Problem(where, f"{name} is for links and has a url", "give link_advertise in its place")
    elif interface.url is not None and interface.speaks_tls(settings.tls_certificate) and not is_secure(interface.url):
        yield Problem(where, f"{name} speaks TLS, and its url does not", "begin the url with wss, or give tls = false")
