"""The JavaScript client in Chromium, while pages, their network and the gateway break (P1, P2, P5, P6, P7, P8).

Each test does every fault of a kind once, in an order that the seed decides; ``python -m tests.browser`` does it for
longer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.browser.faults import GATEWAY, NETWORK, PAGE, STOP
from tests.browser.run import run
from tests.cluster.crowds import Figures
from tests.support.seeds import SEED

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.haproxy,
    pytest.mark.promise("P1", "P2", "P5", "P6", "P7", "P8"),
]


ARTIFACTS: Final = Path(".local/browser")
"""Where pictures and records of failed runs are kept, in the working directory; git ignores it."""


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(GATEWAY, id="of-the-gateway"),
        pytest.param(NETWORK, id="of-the-network", marks=pytest.mark.thorough),
        pytest.param(PAGE, id="of-the-page", marks=pytest.mark.thorough),
        pytest.param(STOP, id="stopped", marks=pytest.mark.thorough),
    ],
)
async def test_pages_keep_their_sessions_over_faults(
    faults: dict[str, object], tmp_path: Path, figures: Figures, request: pytest.FixtureRequest
) -> None:
    outcome = await run(tmp_path, seed=SEED, faults=faults.keys(), artifacts=ARTIFACTS / request.node.callspec.id)
    assert not outcome.violations, outcome.explain()
    assert sorted(outcome.faults) == sorted(faults), "each fault came once"
    figures(str(outcome.figures))
