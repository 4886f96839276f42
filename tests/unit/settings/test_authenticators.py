"""The TOML files of authenticators: read as meant, and every mistake told at once with its place and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import (
    AnonymousUsers,
    CallbackUsers,
    ChainedUsers,
    ConfigurationError,
    JwtUsers,
    StaticUsers,
    read_callback_settings,
    read_jwt_settings,
    ways_of,
)
from gateway.settings.authenticators import TokenAlgorithm
from gateway.settings.errors import Unfit
from gateway.settings.places import Auth

JWT = """
issuer = "https://id.example.com/"
audience = ["gateway", "other"]
algorithms = ["RS256", "ES256"]
jwks_url = "https://id.example.com/keys"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "authenticator.toml"


def problems(file: Path, content: str, *, callback: bool = False, dev: bool = False) -> str:
    file.write_text(content, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        (read_callback_settings if callback else read_jwt_settings)(file, dev=dev)
    return str(caught.value).replace(str(file), "FILE")


def test_a_jwt_file_is_read(file: Path) -> None:
    file.write_text(
        JWT + 'leeway = "1m"\nroles_claim = "a.b"\nproperties = { team = "x.y" }\nca_file = "ca.pem"\n', "utf-8"
    )

    found = read_jwt_settings(file)

    assert (found.issuer, found.audience) == ("https://id.example.com/", ("gateway", "other"))
    assert found.algorithms == (TokenAlgorithm.RS256, TokenAlgorithm.ES256)
    assert (found.leeway, found.roles_claim, found.properties) == (60.0, "a.b", (("team", "x.y"),))
    assert found.ca_file == file.parent / "ca.pem", "relative paths start from the file's folder"
    assert (found.principal_claim, found.credential_claim, found.expiry_required) == ("sub", "jti", True)


def test_a_callback_file_is_read(file: Path) -> None:
    file.write_text('url = "https://auth.internal:8443/who?x=1"\nremember = 0\nbearer_file = "b"\n', "utf-8")

    found = read_callback_settings(file)

    assert (found.url, found.remember, found.bearer_file) == (
        "https://auth.internal:8443/who?x=1",
        0.0,
        file.parent / "b",
    )


def test_what_is_missing_is_told_all_at_once(file: Path) -> None:
    told = problems(file, "").splitlines()

    assert [line.partition(";")[0] for line in told] == [
        "FILE: issuer: there is no issuer",
        "FILE: audience: there is no audience",
        "FILE: algorithms: there is no algorithms",
        "FILE: no source of keys is given",
    ]
    assert "there is no url" in problems(file, "", callback=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('key_file = "k"', "jwks_url and key_file are given; give one of"),
        ("shoe_size = 43", "FILE: shoe_size: there is no such key; the keys of this file are algorithms, audience"),
        ('leeway = "soon"', "FILE: leeway: its value is not a duration; give"),
        ('properties = ["team"]', "FILE: properties: its value is not a table of texts"),
        ('properties = { "$team" = "x" }', "has a name with other characters"),
        ("expiry_required = 7", "is not a text"),
        ("nonsense", "the file is not TOML"),
    ],
)
def test_mistakes_in_a_jwt_file(file: Path, content: str, message: str) -> None:
    assert message in problems(file, JWT + content)


@pytest.mark.parametrize("name", ["none", "HS384", "rs256", "RS512", ""])
def test_only_known_algorithms_can_be_configured(file: Path, name: str) -> None:
    assert "is no algorithm that is accepted" in problems(file, JWT.replace('"ES256"', f'"{name}"'))


@pytest.mark.parametrize(
    ("algorithms", "source", "message"),
    [
        ('["HS256", "RS256"]', 'secret_file = "s"', "HS256 stands beside others"),
        ('["HS256"]', 'key_file = "k"', "key_file does not go with HS256"),
        ('["HS256"]', 'jwks_url = "https://h/k"', "jwks_url does not go with HS256"),
        (
            '["RS256"]',
            'secret_file = "s"',
            "secret_file does not go with RS256; HS256 takes secret_file",
        ),
    ],
)
def test_a_public_key_cannot_be_configured_as_a_secret(file: Path, algorithms: str, source: str, message: str) -> None:
    content = f'issuer = "i"\naudience = ["a"]\nalgorithms = {algorithms}\n{source}\n'

    assert message in problems(file, content)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://id.example.com/keys", "it is http, which everybody on the network path can read"),
        ("http://10.0.0.1/keys", "it is http"),
        ("http://localhost.example.com/", "it is http"),
        ("ftp://id.example.com/", "is no URL that begins with https://"),
        ("https://", "is no URL"),
        ("https://user:secret@id.example.com/", "has a user, a password or a fragment"),
        ("https://id.example.com:99999/", "is no URL"),
        ("https://[::1", "is no URL"),
    ],
)
def test_addresses_that_are_not_asked(file: Path, url: str, message: str) -> None:
    told = problems(file, f'url = "{url}"', callback=True)

    assert message in told
    assert "secret" not in told
    assert message in problems(file, JWT.replace("https://id.example.com/keys", url))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost/x", "http://[::1]:80/"])
def test_http_on_the_same_machine_is_fine(file: Path, url: str) -> None:
    file.write_text(f'url = "{url}"', "utf-8")

    assert read_callback_settings(file).url == url


def test_development_mode_allows_http_everywhere(file: Path) -> None:
    file.write_text('url = "http://auth.internal/"', "utf-8")

    assert read_callback_settings(file, dev=True).url == "http://auth.internal/"


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read \(No such file or directory\); name a TOML file"):
        read_jwt_settings(file)


# --- The setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["static:u, jwt:a.toml ,http:b.toml", ["static:u", "jwt:a.toml", "http:b.toml"]])
def test_several_ways_are_a_chain(raw: object) -> None:
    chain = ChainedUsers((StaticUsers(Path("u")), JwtUsers(Path("a.toml")), CallbackUsers(Path("b.toml"))))

    assert Auth().read(raw) == chain
    assert Auth().read(str(chain)) == chain
    assert ways_of(chain) == chain.ways
    assert ways_of(AnonymousUsers()) == (AnonymousUsers(),)
    assert ways_of(None) == ()
    anchored = Auth().anchor(chain, Path("/etc"))
    assert str(anchored) == "static:/etc/u,jwt:/etc/a.toml,http:/etc/b.toml"


def test_a_list_of_one_is_that_one() -> None:
    assert Auth().read(["jwt:a.toml"]) == JwtUsers(Path("a.toml"))


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ("", "no known way"),
        ([], "is empty"),
        ([7], "not a text"),
        ("static:u,", "no known way"),
        ("static:u,ldap:x", "no known way"),
        ("static:u,static:u", "has an entry twice"),
        ("static:u,anonymous", "would accept every client"),
        ("anonymous,anonymous", "would accept every client"),
        ("jwt", "names no file"),
        ("http://auth.internal/who", "is a URL; write it into a TOML file"),
        ("https://auth.internal/who", "is a URL"),
    ],
)
def test_what_is_no_chain_is_told(raw: object, complaint: str) -> None:
    with pytest.raises(Unfit, match=complaint):
        Auth().read(raw)
