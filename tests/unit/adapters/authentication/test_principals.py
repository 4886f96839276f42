import pytest

from gateway.adapters.authentication import LONGEST_PRINCIPAL, AnonymousAuthenticator, is_valid_principal
from gateway.ports import Credentials, Identity

BAD = ["", " ", " alice", "alice ", "al\nice", "al\x00ice", "al\x1bice", "a\u202eb", "a\u2028b", "\ud800"]


@pytest.mark.parametrize("principal", ["alice", "alice@example.com", "Ünïcødé", "a b", "x:y", "x" * LONGEST_PRINCIPAL])
def test_ordinary_names_are_principals(principal: str) -> None:
    assert is_valid_principal(principal)


@pytest.mark.parametrize("principal", [*BAD, "x" * (LONGEST_PRINCIPAL + 1)])
def test_empty_long_and_invisible_names_are_none(principal: str) -> None:
    assert not is_valid_principal(principal)


async def test_anonymous_believes_every_name_that_is_one() -> None:
    authenticator = AnonymousAuthenticator()

    alice = Identity(principal="alice")
    assert await authenticator.authenticate(Credentials(principal="alice")) == alice
    assert await authenticator.authenticate(Credentials(principal="alice", secret="ignored")) == alice
    for principal in BAD:
        assert await authenticator.authenticate(Credentials(principal=principal)) is None
