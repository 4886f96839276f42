"""Checks that concern more than one setting.

Each check knows the settings it compares, so that a complaint names the places where both of them stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.settings.errors import Problem
from gateway.settings.groups.links import check_links
from gateway.settings.groups.node import check_tls
from gateway.settings.groups.zone_links import check_zone_links
from gateway.settings.interfaces import check_interfaces, client_interfaces
from gateway.settings.model import SETTINGS, Settings
from gateway.settings.values import HostPort, PrincipalNames

LEASE_RENEWALS: Final = 2
"""Renewals that must fit into a lease: one may fail without costing it."""

ACKS_PER_BUFFER: Final = 2
"""Acknowledgements that must fit into a resend buffer: it may not fill up only because none was due yet."""


@dataclass(frozen=True, slots=True)
class _Order:
    """``factor`` times one setting must not exceed another.

    Attributes:
        smaller: name of the one.
        larger: name of the other.
        because: why.
        factor: how often the smaller must fit.
        strict: True if they must not be equal either.
    """

    smaller: str
    larger: str
    because: str
    factor: int = 1
    strict: bool = False

    def holds(self, settings: Settings) -> bool:
        smaller, larger = getattr(settings, self.smaller) * self.factor, getattr(settings, self.larger)
        return bool(smaller < larger if self.strict else smaller <= larger)

    @property
    def rule(self) -> str:
        times = f"{self.factor} times " if self.factor > 1 else ""
        return f"{times}{self.smaller} must be {'less than' if self.strict else 'at most'} {self.larger}"


_ORDERS: Final = (
    _Order("window_default", "window_maximum", "no client gets a window above the maximum"),
    _Order(
        "window_maximum",
        "token_life",
        "a connected client gets a new token at half the life, and the rest must outlive its window",
        2,
    ),
    _Order("ping_interval", "ping_timeout", "a ping needs time to be answered", strict=True),
    _Order("lease_renew", "lease", "one renewal may fail", LEASE_RENEWALS),
    _Order("limit_value_bytes", "limit_message_bytes", "a value travels inside a message", strict=True),
    _Order("limit_value_bytes", "limit_outbox_bytes", "a queue must hold at least one value"),
    _Order("ack_packets", "limit_resend_packets", "buffers must not wait for acknowledgements", ACKS_PER_BUFFER),
    _Order("backoff_initial", "backoff_maximum", "the bound grows"),
    _Order("drain_jitter", "drain_timeout", "the last batch needs its time"),
)

Place = Callable[[str], str]
"""Tells where a setting was given, for a message."""


def check(settings: Settings, place: Place) -> Iterator[Problem]:
    """Yield all that does not fit together.

    Args:
        settings: to check.
        place: tells where a setting was given.
    """
    yield from _orders(settings, place)
    yield from _slow_answers(settings, place)
    yield from _ports(settings, place)
    yield from _keys(settings, place)
    yield from check_tls(settings, place)
    yield from check_interfaces(settings, place)
    yield from check_links(settings, place)
    yield from check_zone_links(settings, place)
    yield from _journal(settings, place)
    if settings.auth is None and not settings.dev:
        yield Problem(
            "auth",
            "there is no authentication",
            "give --auth static:FILE (`gateway hash-secret` makes its lines), or --dev on a developer's machine",
        )


def _orders(settings: Settings, place: Place) -> Iterator[Problem]:
    for order in _ORDERS:
        if not order.holds(settings):
            shown = [
                f"{name} is {SETTINGS[name].show(getattr(settings, name))}" for name in (order.smaller, order.larger)
            ]
            yield Problem(
                _places(place, order.smaller, order.larger),
                f"{shown[0]} and {shown[1]}",
                f"{order.rule}, because {order.because}",
            )


def _slow_answers(settings: Settings, place: Place) -> Iterator[Problem]:
    """Whoever gives a time limit for the grid has to give one below the lease.

    Else each renewal that is not answered in time costs the lease, and sessions are taken over from a node that lives.
    The default is left alone: whoever shortens the lease alone may do so to have deaths noticed sooner, in a test.
    """
    if settings.grid is None or place("grid_timeout") == "default" or settings.grid_timeout < settings.lease:
        return
    names = ("grid_timeout", "lease")
    shown = [f"{name} is {SETTINGS[name].show(getattr(settings, name))}" for name in names]
    yield Problem(
        _places(place, *names),
        " and ".join(shown),
        "grid_timeout must be below lease, because a node whose renewal is not answered for as long as that has lost "
        "its lease; a third of lease is a good value",
    )


def _places(place: Place, *names: str) -> str:
    """Name the places where somebody gave one of *names*; at least the first name itself."""
    given = dict.fromkeys(where for where in map(place, names) if where != "default")
    return " and ".join(given) or names[0]


def _ports(settings: Settings, place: Place) -> Iterator[Problem]:
    ports: list[tuple[str, HostPort | None]] = [
        (each.name or "listen", each.listen) for each in client_interfaces(settings)
    ]
    ports += [(name, getattr(settings, name)) for name in ("admin", "agent", "link", "zone_listen")]
    given = [(name, where) for name, where in ports if where is not None]
    for index, (name, where) in enumerate(given):
        for other, before in given[:index]:
            if other != name and before.overlaps(where):
                places = _places(place, *(each if each in SETTINGS else "interface" for each in (other, name)))
                complaint = (
                    f"{other} and {name} are both {where}"
                    if before == where
                    else f"{other} is {before} and {name} is {where}, which is the same port of one address"
                )
                yield Problem(places, complaint, "give each its own port")
                break


def _journal(settings: Settings, place: Place) -> Iterator[Problem]:
    if settings.hooks is not None and not settings.journal:
        yield Problem(
            _places(place, "hooks", "journal"),
            "there are event hooks, and no session journal from which they could take events",
            "give --journal, or remove the hooks",
        )
    file = settings.journal_principals_key_file
    if settings.journal and settings.journal_principals is PrincipalNames.HASHED and file is None:
        yield Problem(
            _places(place, "journal_principals"),
            "there is no key to hash principals with",
            "give --journal-principals-key-file FILE (`openssl rand -hex 32` makes a key), the same on all nodes, or "
            "journal_principals plain",
        )
    if file is not None and settings.journal_principals is PrincipalNames.PLAIN:
        yield Problem(
            _places(place, "journal_principals_key_file", "journal_principals"),
            "there is a key to hash principals with, but they are not to be hashed",
            "give --journal-principals hashed, or remove the key",
        )


def _keys(settings: Settings, place: Place) -> Iterator[Problem]:
    if not settings.token_keys:
        yield Problem(
            "token_keys",
            "there is no key to sign session tokens with",
            "set GATEWAY_TOKEN_KEYS or GATEWAY_TOKEN_KEYS_FILE (`openssl rand -hex 32` makes a key), the same on all "
            "nodes, or give --dev on a developer's machine",
        )
    both = set(settings.token_keys) & set(settings.token_verify_keys)
    if both:
        yield Problem(
            _places(place, "token_keys", "token_verify_keys"),
            "a key stands in both lists",
            "remove it from token_verify_keys: keys of token_keys verify anyway",
        )
