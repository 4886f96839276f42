"""An identity provider: keys of all kinds, tokens made by PyJWT, and a server that publishes a JWK set."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from functools import cache
from types import TracebackType
from typing import Any, Final, Self

import jwt
import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

ISSUER: Final = "https://id.example.com/realms/trading"
AUDIENCE: Final = "gateway"
SECRET: Final = "a secret of the issuer and the gateway, long enough"
"""For HS256."""

NOW: Final = 1_795_249_200.0
"""The time in tests, in seconds since 1970."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def private_key(algorithm: str, number: int = 1) -> PrivateKey:
    """Make a key for an algorithm, once for all tests: *number* tells several apart."""
    del number
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(65537, 2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            raise ValueError(algorithm)


def public_pem(algorithm: str, number: int = 1) -> bytes:
    """The public key in PEM."""
    return private_key(algorithm, number).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(algorithm: str, number: int = 1) -> bytes:
    """The private key in PEM."""
    return private_key(algorithm, number).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


_WRITERS: Final[dict[str, Any]] = {
    "RS256": jwt.algorithms.RSAAlgorithm,
    "ES256": jwt.algorithms.ECAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}


def jwk(algorithm: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    """The public key as a JWK, named after algorithm and number."""
    made = json.loads(_WRITERS[algorithm].to_jwk(private_key(algorithm, number).public_key()))
    made |= {"kid": f"{algorithm}-{number}", "use": "sig", "alg": algorithm} | fields
    return dict(made)


def jwks(*keys: dict[str, Any]) -> bytes:
    """A JWK set."""
    return orjson.dumps({"keys": list(keys)})


def claims(**changes: Any) -> dict[str, Any]:
    """Claims as a provider writes them; None leaves one out."""
    usual = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": NOW - 10,
        "exp": NOW + 300,
        "jti": "token-1",
        "realm_access": {"roles": ["trader", "auditor"]},
        "team": "fx",
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


def token(algorithm: str = "RS256", number: int = 1, *, headers: dict[str, Any] | None = None, **changes: Any) -> str:
    """A signed token; *changes* are of its claims, and None leaves a field of the header out."""
    key: Any = SECRET if algorithm == "HS256" else private_key(algorithm, number)
    named = {} if algorithm == "HS256" else {"kid": f"{algorithm}-{number}"}
    wanted = {name: value for name, value in (named | (headers or {})).items() if value is not None or name == "typ"}
    return jwt.encode(claims(**changes), key, algorithm, headers=wanted)


def encode(part: bytes) -> str:
    """Encode a part of a token."""
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def signed(header: bytes, payload: bytes, number: int = 1) -> str:
    """A token of any bytes at all, signed with the RSA key of that number."""
    body = f"{encode(header)}.{encode(payload)}"
    key = private_key("RS256", number)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{body}.{encode(jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(body.encode(), key))}"


class HttpStandIn:
    """A server on a free port of this machine that answers as told.

    Attributes:
        answer: what answers each request; replace it at any time.
        requests: how many came.
    """

    def __init__(self, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        self.answer = answer
        self.requests = 0
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**22)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Refuse connections from now on; entering the context again takes the same port."""
        await self.__aexit__(None, None, None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        return await self.answer(request)


class Provider(HttpStandIn):
    """Publishes a JWK set.

    Attributes:
        keys: of the set; replace them to rotate.
        status: of the answer.
        held: set to hold answers back until it is set to None.
    """

    def __init__(self, *keys: dict[str, Any]) -> None:
        super().__init__(self._publish)
        self.keys = list(keys)
        self.status = 200
        self.held: asyncio.Event | None = None

    async def _publish(self, _request: web.Request) -> web.Response:
        if self.held is not None:
            await self.held.wait()
        return web.Response(body=jwks(*self.keys), status=self.status, content_type="application/json")
