"""``gateway keys link``: certificates by which nodes know each other, never overwritten, never readable by others."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from gateway.adapters.peers.hello import names_of
from gateway.adapters.tls import CertificateError, LinkTls
from tests.unit.adapters.test_tls import shake
from tests.unit.cli.conftest import Run


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def tls(folder: Path, node: str, name: str = "") -> LinkTls:
    return LinkTls(name or node, folder / f"{node}.pem", key=folder / f"{node}.key", ca=folder / "link-ca.pem")


def test_certificates_are_made_for_nodes_that_believe_each_other(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    made = run("keys", "link", "n1", "n_2.west", "--folder", str(folder))
    assert made.code == 0
    files = ["link-ca.pem", "link-ca.key", "n1.pem", "n1.key", "n_2.west.pem", "n_2.west.key"]
    assert made.out.splitlines() == [str(folder / name) for name in files]
    for name in files:
        assert mode(folder / name) == (0o600 if name.endswith(".key") else 0o644)
    assert "PRIVATE" not in made.out + made.err
    assert "--link-tls-key n1.key" in made.err
    assert "keep link-ca.key where no node is" in made.err

    one, two = tls(folder, "n1"), tls(folder, "n_2.west")
    client, server = shake(one.accepting(), two.dialing())
    assert names_of(client.getpeercert()) == {"n1"}
    assert names_of(server.getpeercert()) == {"n_2.west"}
    assert client.version() == "TLSv1.3"


def test_nodes_are_added_to_an_authority(run: Run, tmp_path: Path) -> None:
    assert run("keys", "link", "n1", "--folder", str(tmp_path)).code == 0
    authority = (tmp_path / "link-ca.pem").read_bytes()
    added = run("keys", "link", "n2", "--folder", str(tmp_path), "--days", "30")
    assert added.out.splitlines() == [str(tmp_path / "n2.pem"), str(tmp_path / "n2.key")]
    assert (tmp_path / "link-ca.pem").read_bytes() == authority
    shake(tls(tmp_path, "n1").accepting(), tls(tmp_path, "n2").dialing())
    assert tls(tmp_path, "n2").expires < tls(tmp_path, "n1").expires


def test_nothing_is_overwritten_and_nothing_half_made(run: Run, tmp_path: Path) -> None:
    run("keys", "link", "n1", "--folder", str(tmp_path))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    again = run("keys", "link", "n2", "n1", "--folder", str(tmp_path))
    assert again.code == 1
    assert "is not overwritten" in again.err
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("lost", ["link-ca.key", "link-ca.pem"])
def test_half_an_authority_is_none(run: Run, tmp_path: Path, lost: str) -> None:
    run("keys", "link", "n1", "--folder", str(tmp_path))
    (tmp_path / lost).unlink()
    result = run("keys", "link", "n2", "--folder", str(tmp_path))
    assert result.code == 1
    assert f"{lost} is missing" in result.err
    assert not (tmp_path / "n2.pem").exists()


def test_a_key_of_another_authority_is_noticed(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("keys", "link", "n1", "--folder", str(tmp_path / name))
    (tmp_path / "two" / "link-ca.key").rename(tmp_path / "one" / "link-ca.key")
    result = run("keys", "link", "n2", "--folder", str(tmp_path / "one"))
    assert result.code == 1
    assert "is not the key of" in result.err


@pytest.mark.parametrize("name", ["../n1", "", "-n1", "link-ca", "n" * 64, "nöde"])
def test_names_that_no_node_can_have_are_refused(run: Run, tmp_path: Path, name: str) -> None:
    result = run("keys", "link", "--folder", str(tmp_path / "new"), "--", name)
    assert result.code == 1
    assert not (tmp_path / "new").exists()


def test_a_certificate_is_for_its_node_alone(run: Run, tmp_path: Path) -> None:
    run("keys", "link", "n1", "--folder", str(tmp_path))
    with pytest.raises(CertificateError, match="is for n1, and this node is n2"):
        tls(tmp_path, "n1", name="n2")


def test_other_authorities_are_strangers(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("keys", "link", "n1", "n2", "--folder", str(tmp_path / name))
    with pytest.raises(ssl.SSLError):
        shake(tls(tmp_path / "one", "n1").accepting(), tls(tmp_path / "two", "n2").dialing())


def test_a_reload_takes_the_new_files_or_keeps_the_old_ones(run: Run, tmp_path: Path) -> None:
    run("keys", "link", "n1", "n2", "--folder", str(tmp_path))
    node = tls(tmp_path, "n1")
    before = node.expires
    for file in (tmp_path / "n1.pem", tmp_path / "n1.key"):
        file.unlink()
    with pytest.raises(CertificateError):
        node.reload()
    assert node.expires == before
    shake(node.accepting(), tls(tmp_path, "n2").dialing())
    run("keys", "link", "n1", "--folder", str(tmp_path), "--days", "7")
    node.reload()
    assert node.expires < before
    shake(tls(tmp_path, "n2").accepting(), node.dialing())
    # The certificate of another node is no reason to lose what was in force.
    (tmp_path / "n2.pem").rename(tmp_path / "n1.pem")
    (tmp_path / "n2.key").rename(tmp_path / "n1.key")
    with pytest.raises(CertificateError):
        node.reload()
    assert node.expires < before


def test_check_config_reads_the_certificates(run: Run, tmp_path: Path) -> None:
    run("keys", "link", "n1", "--folder", str(tmp_path))
    flags = [
        *("check-config", "--dev", "--node", "n1", "--link", "0.0.0.0:8301"),
        *("--link-tls-ca", str(tmp_path / "link-ca.pem"), "--link-tls-certificate", str(tmp_path / "n1.pem")),
        *("--link-tls-key", str(tmp_path / "n1.key")),
    ]
    good = run(*flags)
    assert good.code == 0
    assert "links: 0.0.0.0:8301, with a certificate until 20" in good.out
    assert "can be read by every user" not in good.err
    (tmp_path / "n1.key").chmod(0o644)
    assert f"{tmp_path / 'n1.key'} holds secrets and can be read by every user" in run(*flags).err
    wrong = run(*flags, "--node", "n2")
    assert wrong.code == 2
    assert "--link-tls-certificate: " in wrong.err
    assert "gateway keys link n2" in wrong.err
