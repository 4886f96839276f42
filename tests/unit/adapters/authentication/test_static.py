"""The file of users, and that checking a secret neither blocks the loop nor tells who exists."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.adapters.authentication import (
    HashParameters,
    SecretHash,
    StaticAuthenticator,
    UsersFileError,
    hash_secret,
    read_users,
    static,
    users_line,
)
from gateway.adapters.authentication.static import NICENESS
from gateway.ports import Credentials, CredentialsRefused, Identity
from tests.support.times import scaled
from tests.support.verifications import pool

QUICK = HashParameters(n=2, r=1, p=1)
DEADLINE = scaled(10.0)


def line(principal: str, secret: str) -> str:
    return users_line(principal, hash_secret(secret, QUICK))


def rewrite(file: Path, *lines: str) -> None:
    file.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# people\n\n{line('alice', 'wonderland')}\n{line('urn:x:bob', 'builder')}\r\n", "utf-8")
    return path


@pytest.fixture
def authenticator(file: Path) -> Iterator[StaticAuthenticator]:
    found = StaticAuthenticator(file, pool())
    yield found
    found.close()


class CountedHashing:
    """Counts verifications, and may hold them until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[SecretHash] = []
        self.running = self.most_running = 0
        self.threads: set[int] = set()
        self.go = threading.Event()
        self.go.set()
        self._changed = threading.Condition()
        genuine = SecretHash.matches

        def matches(hashed: SecretHash, secret: str) -> bool:
            with self._changed:
                self.calls.append(hashed)
                self.threads.add(threading.get_ident())
                self.running += 1
                self.most_running = max(self.most_running, self.running)
                self._changed.notify_all()
            assert self.go.wait(DEADLINE)
            with self._changed:
                self.running -= 1
            return genuine(hashed, secret)

        monkeypatch.setattr(SecretHash, "matches", matches)

    async def until_running(self, number: int) -> None:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self.running >= number, DEADLINE)

        assert await asyncio.to_thread(wait)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> CountedHashing:
    return CountedHashing(monkeypatch)


async def ask(authenticator: StaticAuthenticator, principal: str, secret: str | None) -> str | None:
    """Tell who was admitted; None if nobody was, whether another authenticator may be asked or not."""
    try:
        identity = await authenticator.authenticate(Credentials(principal=principal, secret=secret))
    except CredentialsRefused:
        return None
    return None if identity is None else identity.principal


async def test_the_right_secret_opens_and_no_other(authenticator: StaticAuthenticator) -> None:
    assert await ask(authenticator, "alice", "wonderland") == "alice"
    assert await ask(authenticator, "urn:x:bob", "builder") == "urn:x:bob"
    assert await ask(authenticator, "alice", "builder") is None
    assert await ask(authenticator, "alice", "") is None
    assert await ask(authenticator, "Alice", "wonderland") is None
    assert await ask(authenticator, "carol", "wonderland") is None


async def test_an_unknown_principal_costs_the_same_hash(
    authenticator: StaticAuthenticator, hashing: CountedHashing
) -> None:
    await ask(authenticator, "alice", "wrong")
    await ask(authenticator, "carol", "wrong")

    known, unknown = hashing.calls
    assert known.parameters == unknown.parameters
    assert threading.get_ident() not in hashing.threads


@pytest.mark.parametrize("secret", [None, "x" * 2000])
async def test_no_secret_and_endless_ones_are_refused_without_work_for_everybody(
    authenticator: StaticAuthenticator, hashing: CountedHashing, secret: str | None
) -> None:
    assert await ask(authenticator, "alice", secret) is None
    assert await ask(authenticator, "carol", secret) is None
    assert hashing.calls == []


async def test_who_names_nobody_is_passed_over_without_work(
    authenticator: StaticAuthenticator, hashing: CountedHashing
) -> None:
    assert await ask(authenticator, "", "a.b.c") is None
    assert await ask(authenticator, " alice", "wonderland") is None
    assert hashing.calls == []


async def test_what_was_verified_is_told_without_waiting_for_a_place(
    authenticator: StaticAuthenticator, hashing: CountedHashing
) -> None:
    assert await ask(authenticator, "alice", "wonderland") == "alice"
    hashing.go.clear()
    guesses = [asyncio.create_task(ask(authenticator, "alice", f"wrong {number}")) for number in range(30)]
    await hashing.until_running(2)

    assert await ask(authenticator, "alice", "wonderland") == "alice"

    hashing.go.set()
    assert set(await asyncio.gather(*guesses)) == {None}


async def test_threads_that_hash_stand_behind_the_loop(
    authenticator: StaticAuthenticator, hashing: CountedHashing
) -> None:
    hashing.go.clear()
    asked = asyncio.create_task(ask(authenticator, "alice", "wonderland"))
    await hashing.until_running(1)
    (thread,) = [each for each in threading.enumerate() if each.ident in hashing.threads]
    if sys.platform == "linux":
        assert thread.native_id is not None
        assert os.getpriority(os.PRIO_PROCESS, thread.native_id) == min(19, os.nice(0) + NICENESS)
    hashing.go.set()
    assert await asked == "alice"


async def test_a_storm_of_one_users_clients_costs_few_hashes(
    authenticator: StaticAuthenticator, hashing: CountedHashing
) -> None:
    answers = await asyncio.gather(*(ask(authenticator, "alice", "wonderland") for _ in range(200)))

    assert set(answers) == {"alice"}
    assert len(hashing.calls) == 1


async def test_what_was_refused_costs_one_hash_until_the_file_is_read_again_and_tells_nobody_who_exists(
    authenticator: StaticAuthenticator, hashing: CountedHashing
) -> None:
    for principal in ("alice", "carol"):
        for _ in range(3):
            assert await ask(authenticator, principal, "wrong") is None
    assert len(hashing.calls) == 2

    authenticator.reload()

    for principal in ("alice", "carol"):
        assert await ask(authenticator, principal, "wrong") is None
    assert len(hashing.calls) == 4


async def test_what_is_remembered_of_refusals_is_bounded(
    authenticator: StaticAuthenticator, hashing: CountedHashing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "REFUSED_REMEMBERED", 3)
    for secret in ("wrong 1", "wrong 2", "wrong 3", "wrong 1", "wrong 4"):
        assert await ask(authenticator, "alice", secret) is None
    assert len(hashing.calls) == 4
    for secret in ("wrong 1", "wrong 3", "wrong 4"):
        assert await ask(authenticator, "alice", secret) is None
    assert len(hashing.calls) == 4
    assert await ask(authenticator, "alice", "wrong 2") is None
    assert len(hashing.calls) == 5
    assert await ask(authenticator, "alice", "wonderland") == "alice"


async def test_only_a_few_verifications_run_at_the_same_time_and_the_loop_goes_on(
    file: Path, hashing: CountedHashing
) -> None:
    authenticator = StaticAuthenticator(file, pool(2))
    hashing.go.clear()
    asked = [asyncio.create_task(ask(authenticator, "alice", f"wrong {number}")) for number in range(10)]
    await hashing.until_running(2)

    hashing.go.set()

    assert await asyncio.gather(*asked) == [None] * 10
    assert hashing.most_running == 2
    authenticator.close()


async def test_a_caller_that_gives_up_leaves_the_queue(file: Path, hashing: CountedHashing) -> None:
    authenticator = StaticAuthenticator(file, pool(1))
    hashing.go.clear()
    first = asyncio.create_task(ask(authenticator, "alice", "wonderland"))
    waiting = [asyncio.create_task(ask(authenticator, "carol", "x")) for _ in range(5)]
    await hashing.until_running(1)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    hashing.go.set()

    assert await first == "alice"
    assert len(hashing.calls) == 1
    authenticator.close()


async def test_reload_takes_the_new_file_and_forgets_what_was_verified(
    authenticator: StaticAuthenticator, file: Path
) -> None:
    assert await ask(authenticator, "alice", "wonderland") == "alice"
    rewrite(file, line("alice", "looking-glass"), line("carol", "singer"))

    assert authenticator.reload() == 2

    assert await ask(authenticator, "alice", "wonderland") is None
    assert await ask(authenticator, "alice", "looking-glass") == "alice"
    assert await ask(authenticator, "urn:x:bob", "builder") is None


async def test_a_reload_during_a_verification_wins(file: Path, hashing: CountedHashing) -> None:
    authenticator = StaticAuthenticator(file, pool())
    hashing.go.clear()
    asked = asyncio.create_task(ask(authenticator, "alice", "wonderland"))
    await hashing.until_running(1)
    rewrite(file, line("carol", "singer"))
    authenticator.reload()

    hashing.go.set()

    assert await asked is None
    authenticator.close()


async def test_a_bad_file_changes_nothing_when_reloaded(authenticator: StaticAuthenticator, file: Path) -> None:
    rewrite(file, "nonsense")

    with pytest.raises(UsersFileError):
        authenticator.reload()

    assert await ask(authenticator, "alice", "wonderland") == "alice"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("alice\n", ":1: there is no colon between principal and hash; make the line with `gateway hash-secret"),
        ("# x\nalice:hunter2\n", ":2: 'alice': the hash has not the form scrypt"),
        (":x\n", ":1: the principal is empty, too long"),
        ("a\x00b:x\n", ":1: the principal is empty, too long"),
        ("", ": the file holds no user, so no client could connect"),
    ],
)
def test_a_bad_file_is_told_with_its_line_and_a_remedy(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "users"
    path.write_text(content, "utf-8")

    with pytest.raises(UsersFileError) as caught:
        read_users(path)

    assert f"{path}{message}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_principal_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"{line('alice', 'a')}\n{line('alice', 'b')}\n", "utf-8")

    with pytest.raises(UsersFileError, match=r":2: 'alice' stands in an earlier line already"):
        read_users(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsersFileError, match=r"cannot be read \(No such file or directory\)"):
        read_users(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsersFileError, match="not UTF-8"):
        read_users(tmp_path / "binary")


async def test_a_wrong_secret_is_final_and_an_unknown_principal_is_left_to_others(
    authenticator: StaticAuthenticator,
) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        await authenticator.authenticate(Credentials(principal="alice", secret="hunter2"))

    assert "hunter2" not in str(caught.value)
    assert await authenticator.authenticate(Credentials(principal="carol", secret="hunter2")) is None


async def test_a_line_may_give_roles_and_properties(file: Path) -> None:
    made = users_line(
        "a:b c", hash_secret("x", QUICK), ["trader", "auditor"], {"team": "fx", "desk": "Rates, London: 'A'"}
    )
    rewrite(file, made, f"{line('carol', 'y')}   roles=one,two\tteam=fx", line("dave", "z"))
    authenticator = StaticAuthenticator(file, pool())

    assert await authenticator.authenticate(Credentials(principal="a:b c", secret="x")) == Identity(
        principal="a:b c",
        roles=frozenset({"trader", "auditor"}),
        properties={"team": "fx", "desk": "Rates, London: 'A'"},
    )
    assert await authenticator.authenticate(Credentials(principal="carol", secret="y")) == Identity(
        principal="carol", roles=frozenset({"one", "two"}), properties={"team": "fx"}
    )
    assert await authenticator.authenticate(Credentials(principal="dave", secret="z")) == Identity(principal="dave")
    authenticator.close()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("trader", "there is a word without ="),
        ("team='fx", "a quotation mark has no partner"),
        ("team=fx team=rates", "'team' is given twice"),
        ("roles=a,,b", "a role has 1 to 128 visible characters"),
        ("roles='a b'", "neither blanks nor commas"),
        ("$team=fx", "the name of a property has 1 to 48 letters"),
        ("roles=" + ",".join(f"r{number}" for number in range(65)), "65 roles; at most 64"),
        (" ".join(f"p{number}=x" for number in range(33)), "33 properties; at most 32"),
        (f"team={'x' * 1025}", "the value of 'team' has more than 1024 characters"),
        ("team=a\u202eb", "invisible"),
    ],
)
def test_bad_attributes_are_told_with_their_line(tmp_path: Path, attributes: str, message: str) -> None:
    path = tmp_path / "users"
    rewrite(path, f"{line('alice', 'x')} {attributes}")

    with pytest.raises(UsersFileError) as caught:
        read_users(path)

    assert f"{path}:1: 'alice': " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("roles", "properties"), [(["a,b"], {}), (["a b"], {}), ([""], {}), ([], {"roles": "x"}), ([], {"$team": "x"})]
)
def test_no_line_is_made_with_attributes_that_could_not_be_read_again(
    roles: list[str], properties: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"role|propert"):
        users_line("alice", hash_secret("secret", QUICK), roles, properties)


@pytest.mark.parametrize("principal", ["", "#alice", " alice", "al\nice"])
def test_no_line_is_made_for_who_could_not_be_read_again(principal: str) -> None:
    with pytest.raises(ValueError, match="visible characters"):
        users_line(principal, hash_secret("secret", QUICK))
