"""Interfaces of a node: what may be said of them, how it is spelled, and what is told of what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import HostPort, Interface, client_interfaces
from gateway.settings.interfaces import Interfaces
from tests.unit.settings.test_load import loaded, problems, toml

DEV = {"GATEWAY_DEV": "true"}

TWO = """
[[interface]]
name = "public"
listen = "0.0.0.0:8443"

[[interface]]
name = "inside"
listen = "10.0.0.7:8101"
tls = false
"""


def of(text: str) -> dict[str, str]:
    return {"GATEWAY_INTERFACE": text}


def test_without_interfaces_listen_is_the_only_one() -> None:
    settings = loaded().settings
    assert client_interfaces(settings) == [Interface(listen=settings.listen)]


def test_interfaces_are_tables_in_toml_and_one_text_elsewhere(tmp_path: Path) -> None:
    in_toml = loaded(file=toml(tmp_path, TWO)).settings.interface
    assert in_toml == (
        Interface(name="public", listen=HostPort("0.0.0.0", 8443)),
        Interface(name="inside", listen=HostPort("10.0.0.7", 8101), tls=False),
    )
    assert (
        loaded(of("name=public listen=0.0.0.0:8443; name=inside listen=10.0.0.7:8101 tls=false")).settings.interface
        == in_toml
    )


def test_what_is_shown_is_read_again() -> None:
    kind = Interfaces()
    interfaces = kind.read("name=a listen=[::1]:1 tls=true; name=b listen=x:2 links=true; name=c listen=x:3 tls=no")
    assert kind.read(kind.show(interfaces)) == interfaces


def test_an_interface_for_links_stands_for_link_and_leaves_listen_to_clients() -> None:
    settings = loaded({**of("name=cluster listen=127.0.0.1:8301 links=true"), **DEV}).settings
    assert settings.link == HostPort("127.0.0.1", 8301)
    assert [each.listen for each in client_interfaces(settings)] == [settings.listen]


def test_tls_is_as_the_certificate_says_unless_the_interface_says_no(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate"
    plain, silent = Interface(listen=HostPort("a", 1), tls=False), Interface(listen=HostPort("a", 2))
    assert [each.speaks_tls(certificate) for each in (plain, silent)] == [False, True]
    assert [each.speaks_tls(None) for each in (plain, silent)] == [False, False]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("listen=127.0.0.1:1", "an interface without a name"),
        ("name=a", "does not say where the interface a listens"),
        ("name=a listen=127.0.0.1", "the interface a, of which a value lacks a host or a port"),
        ("name=a listen=127.0.0.1:1 tls=maybe", "the interface a, of which a value is neither true nor false"),
        ("name=a listen=127.0.0.1:1 colour=blue", "says colour of the interface a, which means nothing"),
        ("name=a listen=127.0.0.1:1; name=a listen=127.0.0.1:2", "two interfaces of one name"),
        ("name=a listen=127.0.0.1:1 fast", "a word that is not name=value"),
        ("; ".join(f"name=i{each} listen=127.0.0.1:{each}" for each in range(1, 18)), "more than 16 interfaces"),
        ("name=a listen=127.0.0.1:1 tls=true", "the interface a has tls without tls_certificate"),
        ("name=a listen=127.0.0.1:1 clients=false", "the interface a serves nobody"),
        ("name=a listen=127.0.0.1:1 clients=true links=true", "the interface a is for links and for clients"),
        ("name=a listen=127.0.0.1:1 links=true tls=false", "the interface a is for links and says tls"),
        ("name=a listen=127.0.0.1:1 advertise=true", "the interface a is advertised without url"),
        ("name=a listen=127.0.0.1:1 links=true advertise=true url=ws://a", "advertised, but not for clients"),
        ("name=a listen=127.0.0.1:1 links=true url=ws://a", "the interface a is for links and has a url"),
        ("name=a listen=127.0.0.1:1 url=https://a", "the interface a, of which a value is not a URL"),
        ("name=a listen=127.0.0.1:1 url=wss://user:secret@a", "the interface a, of which a value is not a URL"),
        ("name=a listen=127.0.0.1:9101", "a and admin are both 127.0.0.1:9101"),
        ("name=a listen=127.0.0.1:1; name=b listen=127.0.0.1:1", "a and b are both 127.0.0.1:1"),
        ("name=a listen=127.0.0.1:1 links=true; name=b listen=127.0.0.1:2 links=true", "a and b are both for links"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, complaint: str) -> None:
    message = problems({**of(text), **DEV})
    assert complaint in message
    assert "GATEWAY_INTERFACE" in message


def test_a_url_in_clear_text_of_an_interface_with_tls_leads_nowhere(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.touch()
    given = {**of("name=a listen=127.0.0.1:1 url=ws://a"), "GATEWAY_TLS_CERTIFICATE": str(certificate)}
    assert "the interface a speaks TLS, and its url does not" in problems(given)


def test_one_table_in_the_place_of_several_is_told(tmp_path: Path) -> None:
    assert "write [[interface]]" in problems(file=toml(tmp_path, '[interface]\nname = "a"\nlisten = "127.0.0.1:1"\n'))


def test_listen_beside_interfaces_for_clients_would_not_be_heard() -> None:
    message = problems({**of("name=a listen=127.0.0.1:1"), "GATEWAY_LISTEN": "127.0.0.1:2"})
    assert "listen is given beside interfaces for clients" in message


def test_link_beside_an_interface_for_links_is_one_too_many() -> None:
    message = problems({**of("name=a listen=127.0.0.1:1 links=true"), "GATEWAY_LINK": "127.0.0.1:2", **DEV})
    assert "the interface a is for links, too" in message


def test_clear_text_is_told_of_the_interfaces_that_others_can_reach(tmp_path: Path) -> None:
    (exposed,) = loaded(file=toml(tmp_path, TWO)).exposed
    assert "0.0.0.0:8443, 10.0.0.7:8101 in clear text" in exposed
