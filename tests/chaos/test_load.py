"""What clients of a run do at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gateway.client import Session
from gateway.core.client.types import SessionState
from tests.chaos.account.account import Account
from tests.chaos.load.application import Application
from tests.chaos.load.crowd import Crowd


class Leaving(Application):
    """Its first session says bye, and the run ends before that is confirmed."""

    opened = 0

    async def _open(self) -> Session:
        self.opened += 1
        self.session = cast(Session, SimpleNamespace(closed_reason=None, state=SessionState.CONNECTED))
        return self.session

    async def _live(self, session: Session, until: float) -> None:
        """It lives no longer than this."""

    async def close(self) -> None:
        self.session = None
        self.crowd.ending.set()


@pytest.mark.parametrize(("stays", "opened"), [(False, 1), (True, 2)])
async def test_who_has_to_be_there_at_the_end_comes_back_from_its_last_bye(stays: bool, opened: int) -> None:
    """Found: a reader had just left when the run ended, and so it was never handed the last events."""
    crowd = Crowd("", Account(), lambda: 0.0, 30.0, lambda _: False, lambda: False, seed=1)
    client = Leaving(crowd, "reader-0")
    client.stays = stays
    await client.run()
    assert client.opened == opened
    assert (client.session is not None) is stays
