"""Fuzzes every file that an operator writes: each is read, or refused with sentences that a terminal can show."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from gateway.adapters.admin import AdminTokens, TokensFileError
from gateway.adapters.authentication.key_sets import KeysError, read_jwks_file, read_pem_file, read_secret_file
from gateway.adapters.authentication.static import UsersFileError, read_users
from gateway.adapters.policy import PolicyFileError, read_policy
from gateway.adapters.tls import CertificateError, ServerTls
from gateway.settings import ConfigurationError, load
from gateway.settings.places import read_keys
from lb import topology
from lb.errors import InvalidTopology
from lb.render import render
from loadtests import slo
from tests.fuzz.engine import Case, Finding
from tests.fuzz.mutation import INTERESTING_BYTES, mutate_bytes

SECRET: Final = "swordfish-swordfish-swordfish-42"
"""Stands in files of keys; no message may repeat it."""


class Kind(NamedTuple):
    """A kind of files.

    Attributes:
        read: reads one.
        refuses: what it raises if the file is no good.
        samples: good ones to begin with.
        words: pieces that its files are made of.
    """

    read: Callable[[Path], object]
    refuses: tuple[type[Exception], ...]
    samples: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


def _settings(path: Path) -> object:
    return load(file=path, environment={}, flags={})


def _token_keys(path: Path) -> object:
    _, problems = read_keys(path, "token_keys_file")
    if problems:
        raise ConfigurationError(problems)
    return None


def _topology(path: Path) -> object:
    return render(topology.build(topology.load(path), source=str(path)))


def _thresholds(path: Path) -> object:
    return slo.load(path, "steady")


_ROOT: Final = Path(__file__).parents[2]

KINDS: Final[dict[str, Kind]] = {
    "settings": Kind(
        _settings,
        (ConfigurationError,),
        (
            b"""\
dev = true
listen = "0.0.0.0:8101"
grid = "redis://:swordfish@10.0.0.9:6379/0"
ping_interval = "90s"
limit_message_bytes = "64KiB"
origins = ["https://app.example"]
trusted_proxies = ["10.0.0.0/8"]
""",
            b'auth = "static:users"\ntoken_keys = ["swordfish-swordfish-swordfish-42"]\nlease = 6\nlease_renew = 2.0\n',
            b'dev = true\nlog_format = "json"\nlog_level = "debug"\nwindow_default = "1m"\ntls_certificate = "a.pem"\n',
        ),
        (
            b"[table]\n",
            b"1979-05-27T07:32:00Z",
            b"nan",
            b"inf",
            b"0x_1",
            b'"""',
            b"{a = 1}",
            b'"\\u001b[31m" = 1\n',
            b"= =",
        ),
    ),
    "token keys": Kind(
        _token_keys, (ConfigurationError,), (b"# newest last\n\n" + SECRET.encode() + b"\nanother-key-0123456789\n",)
    ),
    "users": Kind(
        read_users,
        (UsersFileError,),
        (
            b"# users\nalice:scrypt$16384$8$1$c2FsdHNhbHRzYWx0c2FsdA$" + b"A" * 43 + b"\n",
            b"bob:x:scrypt$16384$8$1$c2FsdHNhbHRzYWx0c2FsdA$" + b"A" * 43 + b"\n",
        ),
        (b":", b"$", b"scrypt", b"99999999999999999999", b"roles=a,b", b"\x85", b"\xe2\x80\xa8"),
    ),
    "policy": Kind(
        read_policy,
        (PolicyFileError,),
        (
            b"""\
default = ["reader"]

[roles.reader]
select = ["prices/**", "users/${principal}/**"]

[roles."ops: night"]
select = ["$gateway/**"]
properties = ["*"]
admin = ["sessions:*", "nodes:drain"]

[principals]
"bob@example.com" = ["reader", "ops: night"]
""",
        ),
        (b"[roles]", b"[[roles]]", b"${principal}", b"${", b'["\\u001b[31m"]', b"**", b"sessions:", b"= 1", b"[[[[["),
    ),
    "admin tokens": Kind(
        AdminTokens,
        (TokensFileError,),
        (b"# tokens\nalice:operator,viewer:sha256$" + b"a" * 64 + b"\n", b"bob:admin:" + b"b" * 64 + b"\n"),
        (b":", b",", b"$", b"sha256"),
    ),
    "JWKS": Kind(
        read_jwks_file,
        (KeysError,),
        (
            b"""\
{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig",
"x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}
""",
            b'{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}',
            b'{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AAAA"}]}',
        ),
        (b'"kty"', b'"x":1', b"null", b"[" * 3000, b'"e":"AA"', b'"crv":"P-999"', b"=", b"1e999", b'{"keys":{}}'),
    ),
    "public key": Kind(
        read_pem_file,
        (KeysError,),
        (
            b"""\
-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
""",
            b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        ),
        (b"-----BEGIN PUBLIC KEY-----", b"-----BEGIN CERTIFICATE-----", b"-----END", b"PRIVATE KEY", b"MII", b"===="),
    ),
    "shared secret": Kind(read_secret_file, (KeysError,), (SECRET.encode() + b"\n", b"ssh-ed25519 AAAA\n")),
    "certificate": Kind(
        ServerTls,
        (CertificateError,),
        (
            b"""\
-----BEGIN CERTIFICATE-----
MIIB
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGH
-----END PRIVATE KEY-----
""",
        ),
        (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN EC PRIVATE KEY-----", b"-----BEGIN ENCRYPTED PRIVATE KEY-----"),
    ),
    "topology": Kind(
        _topology,
        (InvalidTopology,),
        (
            b"""\
stickiness = "cookie"
runtime_socket = "/run/h.sock"
[frontend]
bind = ["*:443"]
certificate = "/c.pem"
hsts = 60
[nodes_tls]
ca = "/ca.pem"
[timeouts]
tunnel = 90
[[nodes]]
name = "n1"
host = "n1.internal"
client_port = 8101
admin_port = 9101
agent_port = 9201
""",
        ),
        (b"[[nodes]]", b"[nodes]", b"nan", b"inf", b"-0.0", b'"\\u0000"', b'"\\nserver x"', b"1e400", b"[[frontend]]"),
    ),
    "thresholds": Kind(
        _thresholds,
        (slo.InvalidThresholds,),
        ((_ROOT / "loadtests" / "slo.toml").read_bytes(),),
        (b"nan", b"inf", b"[every]"),
    ),
}
"""By name."""


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class ConfigFuzzer:
    """See the module."""

    name = "config"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-config-"))
        self._descriptors = _open_descriptors()

    def draw(self, random: Random) -> Case:
        """Draw a file of some kind."""
        kind = random.choice(list(KINDS))
        data = random.choice(KINDS[kind].samples)
        words = (*KINDS[kind].words, *INTERESTING_BYTES)
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            at = random.randrange(len(data) + 1)
            data = data[:at] + random.choice(words) + data[at + random.choice((0, 0, 1, 5, 30)) :]
        if random.random() < 0.5:
            data = mutate_bytes(random, data)
        if random.random() < 0.1:
            lines = data.splitlines(keepends=True)
            random.shuffle(lines)
            data = b"".join(lines)
        return [[kind, data.decode("latin-1")]]

    async def run(self, case: Case) -> None:
        """Read it."""
        await asyncio.sleep(0)
        for kind, content in case:
            await asyncio.to_thread(self._read, KINDS[kind], content.encode("latin-1"))

    async def look(self) -> None:
        """Nothing stays open."""
        await asyncio.sleep(0)
        left = _open_descriptors()
        # Threads of the executor wake each other through two descriptors.
        if left > self._descriptors + 4:
            raise Finding(f"{left} descriptors are open, after {self._descriptors} at the beginning")

    def _read(self, kind: Kind, content: bytes) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        path = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            kind.read(path)
        except kind.refuses as refused:
            message = str(refused)
            if SECRET in message:
                raise Finding(f"a message repeats a secret: {message!r}") from None
            if unprintable := {each for each in message if not each.isprintable() and each != "\n"}:
                raise Finding(f"a message has {unprintable!r}, which a terminal obeys: {message[:500]!r}") from None
        except Exception as other:
            raise Finding(f"{type(other).__name__}: {other}"[:500]) from other
        finally:
            path.unlink()

    def clean(self) -> None:
        """Remove the folder."""
        self._folder.rmdir()
