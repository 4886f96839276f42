"""Each kind reads what TOML and text can say, refuses the rest with ``Unfit``, and shows what it can read again."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings.errors import Unfit
from gateway.settings.kinds import Kind, OneOf, Several, Switch, Word
from gateway.settings.places import Advertised, Auth, File, GridUrl, Key, Listen, Net, Origin
from gateway.settings.quantities import Bytes, Rate, Seconds, Whole
from gateway.settings.values import AnonymousUsers, HostPort, LogFormat, Secret, StaticUsers

ALL_KINDS: list[Kind[Any]] = [
    Advertised(),
    Auth(),
    Bytes(),
    File(),
    GridUrl(),
    Key(),
    Listen(),
    Net(),
    OneOf(LogFormat),
    Origin(),
    Rate("things"),
    Seconds(),
    Several(Net(), "networks"),
    Switch(),
    Whole("things"),
    Word(r"[a-z]+", "small letters"),
]


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        (Switch(), True, True),
        (Switch(), " Yes ", True),
        (Switch(), "off", False),
        (Whole("x"), 7, 7),
        (Whole("x"), "1_000", 1000),
        (Seconds(), 60, 60.0),
        (Seconds(), "250ms", 0.25),
        (Seconds(), "1.5 m", 90.0),
        (Seconds(), "24h", 86400.0),
        (Seconds(), "7d", 604800.0),
        (Bytes(), 1024, 1024),
        (Bytes(), "64KiB", 65536),
        (Bytes(), "1.5 MiB", 1572864),
        (Rate("x"), "0.5", 0.5),
        (OneOf(LogFormat), "JSON", LogFormat.JSON),
        (Listen(), "127.0.0.1:8101", HostPort("127.0.0.1", 8101)),
        (Listen(), "[::1]:0", HostPort("::1", 0)),
        (Listen(), "gateway.internal:80", HostPort("gateway.internal", 80)),
        (Advertised(), "n1.example.com:0", HostPort("n1.example.com", 0)),
        (Advertised(), f"{'x' * 63}.example.com.:1", HostPort(f"{'x' * 63}.example.com.", 1)),
        (Advertised(), "[fd00::7]:8301", HostPort("fd00::7", 8301)),
        (Listen(), "[10.42.0.7]:9101", HostPort("10.42.0.7", 9101)),
        (GridUrl(), "redis://localhost:6379/0", "redis://localhost:6379/0"),
        (GridUrl(), "unix:///run/redis.sock", "unix:///run/redis.sock"),
        (Auth(), "anonymous", AnonymousUsers()),
        (Auth(), "static:/etc/users", StaticUsers(Path("/etc/users"))),
        (Origin(), "https://App.Example.com:443", "https://app.example.com"),
        (Origin(), "http://localhost:3000", "http://localhost:3000"),
        (Origin(), "*", "*"),
        (Key(), "0123456789abcdef", Secret("0123456789abcdef")),
    ],
)
def test_reads_what_is_meant(kind: Kind[Any], raw: object, expected: object) -> None:
    assert kind.read(raw) == expected


@pytest.mark.parametrize(
    ("kind", "raw", "complaint"),
    [
        (Switch(), "maybe", "neither true nor false"),
        (Switch(), 1, "not a text"),
        (Whole("x"), 0, "too small"),
        (Whole("x", 1, 5), 6, "too large"),
        (Whole("x"), True, "not a whole number"),
        (Whole("x"), 1.5, "not a whole number"),
        (Whole("x"), "٣", "not a whole number"),
        (Seconds(), "60 parsecs", "not a duration"),
        (Seconds(), "-1s", "not a duration"),
        (Seconds(), math.nan, "not a duration"),
        (Seconds(1), -1, "too small"),
        (Bytes(), "64KB", "not an amount of bytes"),
        (Bytes(), 1.5, "not a whole number of bytes"),
        (Rate("x"), "inf", "not a finite number"),
        (Rate("x"), True, "not a number"),
        (OneOf(LogFormat), "xml", "not one of the known words"),
        (Word("[a-z]+", "letters"), "", "is empty"),
        (Listen(), "8101", "lacks a host or a port"),
        (Listen(), "127.0.0.1:", "port that is not a number"),
        (Listen(), "127.0.0.1:65536", "port that is not a number"),
        (Listen(), "::1:8101", "square brackets"),
        (Advertised(), "0.0.0.0:8301", "others can reach none"),
        (Advertised(), "[::]:8301", "others can reach none"),
        (Advertised(), "[0::0]:8301", "others can reach none"),
        (Listen(), "a b:1", "neither a name nor an address"),
        (Listen(), "n1..example.com:1", "neither a name nor an address"),
        (Advertised(), f"{'x' * 64}.example.com:1", "neither a name nor an address"),
        (GridUrl(), "redis://n1..example.com:1", "neither a name nor an address"),
        (GridUrl(), "redis+sentinel://n1..example.com:1/m", "neither a name nor an address"),
        (GridUrl(), "localhost:6379", "does not begin with"),
        (GridUrl(), "redis://", "names no host"),
        (GridUrl(), "redis://h:0/0", "port 0"),
        (GridUrl(), "redis://h:x/0", "not a URL"),
        (GridUrl(), "redis://h/zero", "number of a database"),
        (GridUrl(), "unix://", "names no socket"),
        (Auth(), "ldap", "no known way"),
        (Auth(), "static:", "names no file"),
        (Origin(), "https://app.example.com/", "no path"),
        (Origin(), "app.example.com", "not scheme://host"),
        (Net(), "10.0.0.1/8", "no address and no network"),
        (Key(), "short", "shorter than 16 bytes"),
        (Key(), "0123456789 abcdef", "blanks"),
        (Several(Whole("x"), "numbers"), "1,1", "an entry twice"),
        (Several(Whole("x"), "numbers"), 1, "not a list"),
        (File(), "", "not a path"),
    ],
)
def test_refuses_with_a_reason_that_does_not_repeat_the_value(kind: Kind[Any], raw: object, complaint: str) -> None:
    with pytest.raises(Unfit) as caught:
        kind.read(raw)

    assert complaint in str(caught.value)


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: type(kind).__name__)
@given(raw=st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.text())))
def test_nothing_but_unfit_escapes(kind: Kind[Any], raw: object) -> None:
    try:
        value = kind.read(raw)
    except Unfit:
        return
    kind.show(value)


@given(st.floats(0.001, 10**7).map(lambda value: round(value, 3)))
def test_a_shown_duration_is_read_again(seconds: float) -> None:
    shown = Seconds().show(seconds)

    assert Seconds().read(shown) == pytest.approx(seconds, rel=1e-5)


@given(st.integers(1, 2**40))
def test_shown_bytes_are_read_again(amount: int) -> None:
    assert Bytes().read(Bytes().show(amount)) == amount


def test_a_list_is_split_at_commas_or_is_an_array() -> None:
    kind = Several(Origin(), "origins")

    assert kind.read("http://a, http://b,") == kind.read(["http://a", "http://b"]) == ("http://a", "http://b")
    assert kind.show(("http://a", "http://b")) == "http://a,http://b"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:hunter2@h:1/0", "redis://:…@h:1/0"),
        ("rediss://bob:hunter2@h/0", "rediss://bob:…@h/0"),
        ("redis://h/0?password=hunter2", "redis://h/0?…"),
        ("redis://h:1/2", "redis://h:1/2"),
    ],
)
def test_a_password_in_the_grids_url_is_never_shown(url: str, shown: str) -> None:
    assert GridUrl().show(GridUrl().read(url)) == shown


def test_secrets_show_themselves_to_nobody() -> None:
    secret = Secret("0123456789abcdef")

    assert "0123" not in f"{secret!r} {secret} {Key().show(secret)}"
    assert secret.reveal() == "0123456789abcdef"
