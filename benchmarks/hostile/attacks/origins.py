"""The same attacks from elsewhere: the node's own machine, several addresses, through HAProxy, at the console's port.

Where limits of an address bound an attack, they bound these attackers otherwise: by default whoever comes from the
node's own machine has none, who has several addresses has them several times, and whoever comes through HAProxy is told
apart by a header.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.hostile.attack import Attack
from benchmarks.hostile.attacks import account, admin, connections, frames, hashing, requests, tls, tokens
from benchmarks.hostile.target import ATTACKER, BALANCER, OTHER_ATTACKERS, Entry

TITLE: Final = "From elsewhere"

_MODULES: Final = (frames, requests, hashing, tokens, account, connections, tls, admin)

_LOCAL: Final = (
    "stranger-undecodable-many",
    "wrong-hellos-100",
    "wrong-resumes-60",
    "forged-tokens",
    "superseded-tokens",
    "connects",
    "requests-gone",
    "upgrades",
    "hellos-gone",
    "byes",
    "http-404",
    "descriptors-sessions",
    "tls-hellos",
    "tls-handshakes",
    "admin-wrong-tokens",
)
"""What limits of an address bound elsewhere."""

_SEVERAL: Final = ("stranger-undecodable-many", "wrong-hellos-100", "forged-tokens", "hellos-gone", "tls-handshakes")
"""What the limits of one address bound most."""

_BALANCED: Final = ("publish-several", "hellos-gone")

_CONSOLE: Final = ("wrong-hellos-100", "upgrades")


def _others() -> Iterator[Attack]:
    known: Mapping[str, Attack] = {each.name: each for module in _MODULES for each in module.ATTACKS}
    for name in _LOCAL:
        yield _named(known[name], "local", "from the node's own machine", addresses=(BALANCER,), exempt=True)
    for name in _SEVERAL:
        addresses = (ATTACKER, *OTHER_ATTACKERS)
        yield _named(known[name], "addresses", f"from {len(addresses)} addresses", addresses=addresses)
    for name in _BALANCED:
        yield _named(known[name], "balanced", "through HAProxy", entry=Entry.BALANCER)
    for name in _CONSOLE:
        yield _named(known[name], "console", "at the console's WebSocket", entry=Entry.CONSOLE)


def _named(
    attack: Attack,
    suffix: str,
    where: str,
    *,
    addresses: tuple[str, ...] = (ATTACKER,),
    exempt: bool = False,
    entry: Entry = Entry.CLIENTS,
) -> Attack:
    return dataclasses.replace(
        attack,
        name=f"{attack.name}-{suffix}",
        about=f"{attack.about}, {where}",
        needs=dataclasses.replace(attack.needs, exempt=exempt),
        addresses=addresses,
        entry=entry,
    )


ATTACKS: Final = tuple(_others())
