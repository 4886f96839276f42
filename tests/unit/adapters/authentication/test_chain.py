"""Several authenticators: who is asked, and who decides."""

from __future__ import annotations

import pytest

from gateway.adapters.authentication import ChainAuthenticator
from gateway.ports import AuthenticationUnavailable, Credentials, CredentialsRefused, Identity

WHO = Credentials(principal="alice", secret="x")
ALICE, BOB = Identity(principal="alice"), Identity(principal="bob")

Answer = Identity | CredentialsRefused | AuthenticationUnavailable | None


class Scripted:
    """Answers as told, and counts."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        assert credentials is WHO
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


NO = CredentialsRefused("never")
NOT_MINE = CredentialsRefused("of another issuer", final=False)
NOT_MINE_EITHER = CredentialsRefused("unknown", final=False)
AWAY = AuthenticationUnavailable("away")


@pytest.mark.parametrize(
    ("answers", "outcome", "asked"),
    [
        ([ALICE, BOB], ALICE, 1),
        ([None, BOB], BOB, 2),
        ([NOT_MINE, BOB], BOB, 2),
        ([NO, BOB], NO, 1),
        ([None, NO, BOB], NO, 2),
        ([AWAY, BOB], AWAY, 1),
        ([NOT_MINE, AWAY], AWAY, 2),
        ([None, None], None, 2),
        ([None, NOT_MINE, NOT_MINE_EITHER], NOT_MINE, 3),
        ([NOT_MINE, None], NOT_MINE, 2),
    ],
)
async def test_the_first_who_decides_decides(answers: list[Answer], outcome: Answer, asked: int) -> None:
    parts = [Scripted(each) for each in answers]
    chain = ChainAuthenticator(parts)

    if isinstance(outcome, Exception):
        with pytest.raises(type(outcome)) as caught:
            await chain.authenticate(WHO)
        assert caught.value is outcome
    else:
        assert await chain.authenticate(WHO) is outcome
    assert [each.asked for each in parts] == [1] * asked + [0] * (len(parts) - asked)
