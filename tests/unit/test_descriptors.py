"""How many connections the descriptors of a process leave room for, and that a process makes use of all it may have."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from gateway.adapters.admin.places import CALLERS, UNAUTHENTICATED
from gateway.adapters.websocket.server import MOST_REQUESTS
from gateway.bootstrap.descriptors import ADMIN, OTHERS, Descriptors


def test_the_reserve_is_what_the_admin_port_may_have() -> None:
    assert ADMIN >= CALLERS + UNAUTHENTICATED


@pytest.mark.promise("P20")
@pytest.mark.parametrize("most", [64, 256, 1024, 4096, 20_000, 65_536, 1_048_576])
@pytest.mark.parametrize("configured", [0, 1, 500, 50_000])
def test_all_that_may_be_open_at_once_fits(most: int, configured: int) -> None:
    descriptors = Descriptors(most)
    connections = descriptors.connections(configured)
    reserve = OTHERS + min(ADMIN, most // 4)

    assert connections >= 1
    assert not configured or connections <= configured
    if most >= 1024:
        assert connections + descriptors.requests + reserve <= most
        assert connections >= min(configured or most, most // 8), "and the reserve is not most of it"


@pytest.mark.promise("P20")
@pytest.mark.parametrize(
    ("configured", "of", "expected"),
    [(10_000, 50_000, 76), (50_000, 50_000, 384), (100, 200, 100), (1, 500, 1), (10, 0, 10), (0, 50_000, 0)],
)
def test_one_address_has_no_larger_share_of_fewer_connections(configured: int, of: int, expected: int) -> None:
    descriptors = Descriptors(1024)

    assert descriptors.connections(0) == 384
    assert descriptors.address_connections(configured, of=of) == expected
    assert Descriptors(None).address_connections(configured, of=of) == configured


def test_without_a_limit_the_settings_hold() -> None:
    descriptors = Descriptors(None)

    assert (descriptors.connections(0), descriptors.connections(7)) == (0, 7)
    assert descriptors.requests == MOST_REQUESTS


CHILD = """
import resource
from gateway.bootstrap.descriptors import raise_limit
print(raise_limit().most, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.thorough
@pytest.mark.promise("P20")
@pytest.mark.parametrize(("soft", "hard"), [(256, 2048), (2048, 2048)])
def test_a_process_raises_its_soft_limit_to_the_hard_one(soft: int, hard: int) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=True,
    )

    assert child.stdout.split() == [str(hard)] * 3
