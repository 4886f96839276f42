"""The file of hooks: read as meant, and every mistake told at once with its place and a remedy."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from gateway.settings import hooks as module
from gateway.settings.errors import ConfigurationError
from gateway.settings.hooks import read_hooks

SECRET = f"whsec_{b64encode(b'a secret for tests of 32 bytes.!').decode()}"
GOOD = '[[hook]]\nname = "crm"\nurl = "https://crm.example/x"\nevents = ["session_*"]\nsecret_file = "secret"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(f"{SECRET}\n", "utf-8")
    return tmp_path / "hooks.toml"


def refused(file: Path, text: str, *, dev: bool = False) -> str:
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as error:
        read_hooks(file, dev=dev)
    assert SECRET[6:] not in str(error.value)
    return str(error.value)


def test_a_hook_is_read_as_it_is_meant(file: Path) -> None:
    (file.parent / "old").write_text(f"whsec_{b64encode(b'o' * 24).decode()}", "utf-8")
    file.write_text(
        GOOD + 'previous_secret_file = "old"\nbatch_events = 7\nbatch_bytes = "64KiB"\nwait = "500ms"\ntimeout = 3\n',
        "utf-8",
    )
    (hook,) = read_hooks(file)
    assert (hook.name, hook.url) == ("crm", "https://crm.example/x")
    assert {"session_opened", "session_selections_changed"} <= hook.events
    assert hook.keys == (b"a secret for tests of 32 bytes.!", b"o" * 24)
    assert (hook.batch_events, hook.batch_bytes, hook.wait, hook.timeout) == (7, 64 * 1024, 0.5, 3.0)


def test_the_example_of_the_module_is_good(file: Path) -> None:
    assert module.__doc__ is not None
    (file.parent / "hook-crm-secret").write_text(SECRET, "utf-8")
    file.write_text(module.__doc__.split("```toml")[1].split("```")[0], "utf-8")
    assert [each.name for each in read_hooks(file)] == ["crm"]


def test_filters_are_read_as_they_are_meant(file: Path) -> None:
    file.write_text(GOOD + 'principals = ["alice", "team-*"]\nselectors = ["orders/**", "trades/1"]\n', "utf-8")
    (hook,) = read_hooks(file)
    assert hook.principals == ("alice", "team-*")
    assert [each.text for each in hook.selectors] == ["orders/**", "trades/1"]


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ('principals = ["a*b"]', "in another place than the end"),
        ('principals = [""]', "is empty"),
        (f"principals = {[f'p{number}' for number in range(21)]}", "there are 21, and 20 at most"),
        ('selectors = ["a//b"]', "is no selector"),
        (f"selectors = {[f'p{number}' for number in range(21)]}", "there are 21, and 20 at most"),
    ],
)
def test_filters_that_cannot_be_meant_are_refused(file: Path, filters: str, said: str) -> None:
    assert said in refused(file, GOOD + filters + "\n")


def test_filters_that_could_let_nothing_through_are_refused(file: Path) -> None:
    orphaned = GOOD.replace('"session_*"', '"session_orphaned"') + 'principals = ["alice"]\n'
    assert "session_orphaned never tells a principal" in refused(file, orphaned)
    opened = GOOD.replace('"session_*"', '"session_opened"') + 'selectors = ["orders/**"]\n'
    assert "gets no session_selections_changed" in refused(file, opened)


def test_principals_are_named_as_the_journal_does(file: Path) -> None:
    file.write_text(GOOD + 'principals = ["alice", "hmac:00ff"]\n', "utf-8")
    with pytest.raises(ConfigurationError, match="alice is none"):
        read_hooks(file, hashed=True)
    file.write_text(GOOD + 'principals = ["hmac:00ff"]\n', "utf-8")
    assert read_hooks(file, hashed=True)[0].principals == ("hmac:00ff",)


def test_there_may_be_none(file: Path) -> None:
    file.write_text("", "utf-8")
    assert read_hooks(file) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"session_*"', '"session_opend"'), "did you mean session_opened?"),
        (('"session_*"', ""), "there is no events"),
        (('name = "crm"\n', ""), "there is no name"),
        (('"crm"', '"C R M"'), "name"),
        (('"secret"', '"nowhere"'), "cannot be read"),
        (("secret_file", "secret"), "there is no such key"),
        (("https://crm.example/x", "ftp://crm.example"), "url"),
        (("https://crm.example/x", "https://user:pass@crm.example"), "a user, a password"),
        (("[[hook]]", "[[hooks]]"), "there is no such key"),
        (("[[hook]]", "[hook]"), "no list of tables"),
        (('"secret"\n', '"secret"\nbatch_events = 0\n'), "batch_events"),
        (('"secret"\n', '"secret"\nca_file = "nowhere.pem"\n'), "ca_file"),
    ],
)
def test_what_is_wrong_is_told(file: Path, change: tuple[str, str], said: str) -> None:
    assert said in refused(file, GOOD.replace(*change))


def test_http_to_another_host_is_refused(file: Path) -> None:
    plain = GOOD.replace("https://crm.example", "http://crm.example")
    assert "give an https URL" in refused(file, plain)
    assert len(read_hooks(file, dev=True)) == 1
    file.write_text(plain.replace("crm.example", "127.0.0.1:8300"), "utf-8")
    assert len(read_hooks(file)) == 1


def test_everything_is_told_at_once(file: Path) -> None:
    said = refused(file, GOOD.replace("session_*", "x") + GOOD.replace("https", "ftp") + "other = 1\n")
    assert len(said.splitlines()) == 3


def test_a_name_is_given_once_and_there_are_not_too_many(file: Path) -> None:
    assert "another hook of this name" in refused(file, GOOD + GOOD)
    many = "".join(GOOD.replace("crm", f"h{number}") for number in range(17))
    assert "at most 16" in refused(file, many)


def test_a_secret_that_is_none_is_refused_without_being_repeated(file: Path) -> None:
    for text in ("whsec_c2hvcnQ=", "password", "whsec_%%%"):
        (file.parent / "secret").write_text(text, "utf-8")
        said = refused(file, GOOD)
        assert "openssl rand" in said
        assert text.removeprefix("whsec_") not in said
    (file.parent / "secret").write_bytes(b"\xff\xfe")
    assert "not a text file" in refused(file, GOOD)
