"""What a token costs at each claim: one verified, one signed."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from typing import Final

from pytest_benchmark.fixture import BenchmarkFixture

from gateway.adapters.tokens import ItsdangerousTokenSigner
from gateway.core.types import SessionId, TokenGeneration

NOW: Final = 1_795_249_200.0
SESSION: Final = SessionId("s-4f1cabcdef0123456789")
SIGNER: Final = ItsdangerousTokenSigner([b"0123456789abcdef0123456789abcdef"], life=86_400.0)


def test_sign(benchmark: BenchmarkFixture) -> None:
    assert benchmark(SIGNER.sign, SESSION, TokenGeneration(3), now=NOW)


def test_verify(benchmark: BenchmarkFixture) -> None:
    token = SIGNER.sign(SESSION, TokenGeneration(3), now=NOW)
    assert benchmark(SIGNER.verify, token, now=NOW).session == SESSION
