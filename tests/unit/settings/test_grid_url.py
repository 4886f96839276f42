"""Grid URLs: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest

from gateway.settings.errors import Unfit
from gateway.settings.grid_url import GridKind, read_grid_url
from gateway.settings.places import GridUrl
from gateway.settings.values import HostPort


def test_one_redis_is_passed_on_as_it_is() -> None:
    for url in ("redis://bob:p%40ss@h:1/2?health_check_interval=5", "rediss://h", "unix:///run/redis.sock?db=3"):
        place = read_grid_url(url)
        assert (place.kind, place.hosts, place.redis_url()) == (GridKind.SINGLE, (), url)


def test_sentinels_and_their_master() -> None:
    place = read_grid_url(
        "redis+sentinel://bob:p%40ss@h1,h2:26380,[::1]:5/my%20master/3?sentinel_password=s%26&ssl_x=1"
    )
    assert place.kind is GridKind.SENTINEL
    assert place.hosts == (HostPort("h1", 26379), HostPort("h2", 26380), HostPort("::1", 5))
    assert (place.master, place.sentinel_username, place.sentinel_password) == ("my master", None, "s&")
    assert (place.tls, place.sentinel_tls) == (False, False)
    assert place.redis_url(HostPort("::2", 7)) == "redis://bob:p%40ss@[::2]:7/3?ssl_x=1"


def test_a_cluster() -> None:
    place = read_grid_url("redis+cluster://:pw@h1:7000,h2?ssl_x=1")
    assert (place.kind, place.tls) == (GridKind.CLUSTER, False)
    assert place.hosts == (HostPort("h1", 7000), HostPort("h2", 6379))
    assert place.redis_url(HostPort("h3", 1)) == "redis://:pw@h3:1/0?ssl_x=1"


@pytest.mark.parametrize(
    ("url", "tls", "sentinel_tls"),
    [
        ("rediss+sentinel://h/m", True, True),
        ("rediss+sentinel://h/m?sentinel_tls=no", True, False),
        ("redis+sentinel://h/m?sentinel_tls=Yes", False, True),
        ("rediss+cluster://h", True, False),
    ],
)
def test_tls_of_redis_and_of_sentinels(url: str, *, tls: bool, sentinel_tls: bool) -> None:
    place = read_grid_url(url)
    assert (place.tls, place.sentinel_tls) == (tls, sentinel_tls)
    assert place.redis_url(place.hosts[0]).startswith("rediss://" if tls else "redis://")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sentinel://h/m", "redis+sentinel://"),
        ("redis+sentinel://h", "names no master"),
        ("redis+sentinel://h/", "names no master"),
        ("redis+sentinel:///m", "no host"),
        ("redis+sentinel://h1,,h2/m", "empty place"),
        ("redis+sentinel://h/m/zero", "number of a database"),
        ("redis+sentinel://h/m/0/1", "number of a database"),
        ("redis+sentinel://h/m?sentinel_tls=perhaps", "neither yes nor no"),
        ("redis+sentinel://h/m?sentinel_pass=x", "sentinel_pass"),
        ("redis+sentinel://bob:a#b@h/m", "%23"),
        ("redis+cluster://", "no host"),
        ("redis+cluster://h/1", "only database 0"),
        ("redis+cluster://h:0", "port 0"),
        ("redis+cluster://h:70000", "up to 65535"),
        ("redis+cluster://h:x", "not a number"),
        ("redis+cluster://::1", "square brackets"),
        ("redis+cluster://h_1 x:1", "neither a name nor an address"),
        ("redis://h1:1,h2:2/0", "several hosts"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(url: str, sentence: str) -> None:
    with pytest.raises(Unfit) as caught:
        read_grid_url(url.replace("://", "://eve:hunter2@", 1) if "@" not in url else url)
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_nothing_secret_is_shown() -> None:
    url = "redis+sentinel://bob:hunter2@h1,h2/m/0?sentinel_password=hunter3"
    assert GridUrl().show(GridUrl().read(url)) == "redis+sentinel://bob:…@h1,h2/m/0?…"
    assert "hunter" not in repr(read_grid_url(url))
    assert GridUrl().show("redis+cluster://:hunter2@h1:1,h2:2") == "redis+cluster://:…@h1:1,h2:2"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "unix"])
@pytest.mark.parametrize(
    ("password", "sentence"), [("12#swordfish", "must be written %23"), ("12?swordfish", "must be written %3F")]
)
def test_a_password_that_ends_a_url_is_refused_and_not_shown(scheme: str, password: str, sentence: str) -> None:
    """Taken literally it would be a host called gateway with port 12, and the rest no secret."""
    url = f"{scheme}://gateway:{password}@10.0.0.1:6379/0"
    with pytest.raises(Unfit, match=sentence) as caught:
        read_grid_url(url)
    assert "swordfish" not in str(caught.value)
    assert "swordfish" not in GridUrl().show(url)


def test_a_password_that_is_written_as_it_must_be_is_masked() -> None:
    url = "redis://gateway:12%23sword%3Ffish@10.0.0.1:6379/0?health_check_interval=5"
    assert read_grid_url(url).redis_url() == url
    assert GridUrl().show(url) == "redis://gateway:…@10.0.0.1:6379/0?…"
