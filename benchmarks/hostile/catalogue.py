"""All attacks, by name and in the order of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.hostile.attack import Attack
from benchmarks.hostile.attacks import (
    account,
    admin,
    connections,
    content,
    frames,
    hashing,
    origins,
    pages,
    requests,
    selectors,
    tls,
    tokens,
)

GROUPS: Final[Mapping[str, Sequence[Attack]]] = {
    module.TITLE: module.ATTACKS
    for module in (
        frames,
        requests,
        hashing,
        tokens,
        selectors,
        content,
        account,
        connections,
        pages,
        tls,
        admin,
        origins,
    )
}
"""Attacks by the title of their kind."""

ATTACKS: Final[Mapping[str, Attack]] = {each.name: each for attacks in GROUPS.values() for each in attacks}

GROUP_OF: Final[Mapping[str, str]] = {each.name: title for title, attacks in GROUPS.items() for each in attacks}
"""Title of the kind, by the name of the attack."""
