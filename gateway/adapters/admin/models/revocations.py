"""What the admin API gives and takes about revocations."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from gateway.adapters.admin.models.base import Given, Told
from gateway.core.policy.revocations import MAX_REVOCATION_REASON, MAX_REVOKED_VALUE, RevocationKind

LAST_MOMENT: Final = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970."""


def _revocation_word(given: object) -> object:
    """Take the words of the enumeration, though JSON has nothing but texts."""
    return RevocationKind(given) if isinstance(given, str) and given in set(RevocationKind) else given


RevocationWord = Annotated[RevocationKind, BeforeValidator(_revocation_word)]


class Revocation(Told):
    """A session, principal or credential that is blocked."""

    kind: RevocationKind = Field(description="What `value` is.")
    value: str = Field(description="Id of a session, name of a principal, or id (`jti`) of a credential.")
    reason: str = Field(description="Why, for administrators.")
    made: float = Field(description="When, in seconds since 1970.")
    until: float | None = Field(description="When it ends, in seconds since 1970; null for never.")


class RevocationPage(Told):
    """Some revocations."""

    items: list[Revocation]
    cursor: str | None = Field(description="Pass it to get the next page; null on the last one.")


class Revoke(Given):
    """What to block."""

    kind: RevocationWord = Field(description="What `value` is.")
    value: str = Field(min_length=1, max_length=MAX_REVOKED_VALUE, description="Compared exactly.")
    reason: str = Field(default="", max_length=MAX_REVOCATION_REASON, description="For administrators alone.")
    until: float | None = Field(
        default=None, ge=0, le=LAST_MOMENT, description="When it ends, in seconds since 1970; absent: never."
    )


class RevocationPath(Given):
    """Which revocation."""

    kind: RevocationKind = Field(description="What `value` is.")
    value: str = Field(min_length=1, max_length=MAX_REVOKED_VALUE, description="What is blocked; `/` is written `%2F`.")
