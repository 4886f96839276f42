"""Settings of links between nodes: what goes together, and what a message says about what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.settings.test_load import loaded, problems

LOOPBACK = {"GATEWAY_LINK": "127.0.0.1:8301"}
DEV = {"GATEWAY_DEV": "true"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    given = {}
    for name in ("certificate", "key", "ca"):
        file = tmp_path / name
        file.write_text("for check-config and the start to read", "ascii")
        given[f"GATEWAY_LINK_TLS_{name.upper()}"] = str(file)
    return given


def test_without_a_place_there_are_no_links() -> None:
    settings = loaded().settings
    assert settings.link is None
    assert settings.heartbeat == 0.5


def test_with_certificates_links_may_listen_anywhere(files: dict[str, str]) -> None:
    settings = loaded(
        {"GATEWAY_LINK": "0.0.0.0:8301", "GATEWAY_LINK_ADVERTISE": "n1.example.com:18301", **files}
    ).settings
    assert str(settings.link) == "0.0.0.0:8301"
    assert str(settings.link_advertise) == "n1.example.com:18301"
    assert not any("links" in text for text in settings.shortcuts())


@pytest.mark.parametrize("link", ["127.0.0.1:8301", "[::1]:8301", "localhost:0"])
def test_clear_text_needs_dev_and_loopback(link: str) -> None:
    settings = loaded({"GATEWAY_LINK": link, **DEV}).settings
    assert any("links have no certificates" in text for text in settings.shortcuts())
    assert "gateway keys link" in problems({"GATEWAY_LINK": link})


@pytest.mark.parametrize("link", ["0.0.0.0:8301", "10.0.0.7:8301", "n1.example.com:8301"])
def test_clear_text_is_refused_where_others_can_hear_it(link: str) -> None:
    message = problems({"GATEWAY_LINK": link, **DEV})
    assert "GATEWAY_LINK: " in message
    assert "not on loopback" in message


def test_certificates_need_an_authority(files: dict[str, str]) -> None:
    del files["GATEWAY_LINK_TLS_CA"]
    assert "link_tls_certificate is given without link_tls_ca" in problems({**LOOPBACK, **files})


@pytest.mark.parametrize("name", ["GATEWAY_LINK_TLS_KEY", "GATEWAY_LINK_TLS_CA"])
def test_key_and_authority_need_a_certificate(files: dict[str, str], name: str) -> None:
    message = problems({**LOOPBACK, **DEV, name: files[name]})
    assert f"{name.removeprefix('GATEWAY_').lower()} is given without link_tls_certificate" in message


def test_nothing_of_links_without_a_place(files: dict[str, str]) -> None:
    message = problems({"GATEWAY_LINK_ADVERTISE": "n1:8301", **files})
    for name in ("link_advertise", "link_tls_certificate", "link_tls_key", "link_tls_ca"):
        assert f"{name} is given without link" in message


def test_links_need_a_port_of_their_own() -> None:
    assert "listen and link are both" in problems({"GATEWAY_LINK": "127.0.0.1:8101", **DEV})


@pytest.mark.parametrize("heartbeat", ["0", "20", "-1", "often"])
def test_heartbeats_have_bounds(heartbeat: str) -> None:
    assert "GATEWAY_HEARTBEAT" in problems({"GATEWAY_HEARTBEAT": heartbeat})
