"""Layers, their order, where a value came from, and messages that tell what to do."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.adapters.tokens import LEAST_KEY_BYTES as LEAST_OF_SIGNER
from gateway.settings import SETTINGS, AnonymousUsers, ConfigurationError, Loaded, Settings, StaticUsers, load
from gateway.settings.layers import is_service_link
from gateway.settings.places import LEAST_KEY_BYTES

KEY = "k" * 32
OTHER_KEY = "o" * 32
COMPLETE = {"GATEWAY_TOKEN_KEYS": KEY, "GATEWAY_AUTH": "anonymous", "GATEWAY_GRID": "redis://127.0.0.1:6379/0"}


def loaded(
    environment: Mapping[str, str] | None = None, *, flags: Mapping[str, str] | None = None, file: Path | None = None
) -> Loaded:
    return load(environment={**COMPLETE, **(environment or {})}, flags=flags, file=file)


def problems(
    environment: Mapping[str, str] | None = None, *, flags: Mapping[str, str] | None = None, file: Path | None = None
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        loaded(environment, flags=flags, file=file)
    return str(caught.value)


def toml(folder: Path, text: str) -> Path:
    file = folder / "gateway.toml"
    file.write_text(text, "utf-8")
    return file


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = toml(tmp_path, "lease = 10\nlease_renew = 3\nreap_interval = 7\n")

    result = loaded({"GATEWAY_LEASE": "11", "GATEWAY_LEASE_RENEW": "4"}, flags={"lease": "12"}, file=file)

    settings = result.settings
    assert (settings.lease, settings.lease_renew, settings.reap_interval) == (12, 4, 7)
    assert settings.restore_rate == Settings().restore_rate
    assert [result.places[name] for name in ("lease", "lease_renew", "reap_interval", "restore_rate")] == [
        "--lease",
        "GATEWAY_LEASE_RENEW",
        f"{file}: reap_interval",
        "default",
    ]


def test_only_what_was_given_is_listed_as_given() -> None:
    given = {each.name: (value, place) for each, value, place in loaded(flags={"node": "n1"}).given}

    assert given["node"] == ("n1", "--node")
    assert given["token_keys"] == ("…", "GATEWAY_TOKEN_KEYS")
    assert set(given) == {"node", "token_keys", "auth", "grid"}


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    file = toml(tmp_path, 'node = "n7"\n')

    assert loaded({"GATEWAY_CONFIG": str(file)}).settings.node == "n7"


def test_relative_paths_in_the_file_start_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# newest last\n\n{OTHER_KEY}\n{KEY}\n", "ascii")
    file = toml(tmp_path, 'auth = "static:users"\ntoken_keys_file = "keys"\n')

    settings = load(environment={}, file=file).settings

    assert settings.auth == StaticUsers(tmp_path / "users")
    assert [key.reveal() for key in settings.token_keys] == [OTHER_KEY, KEY]


def test_an_empty_variable_counts_as_not_set() -> None:
    assert loaded({"GATEWAY_AGENT": "", "GATEWAY_LEASE": " "}).settings == loaded().settings


def test_none_takes_back_what_a_lower_layer_gave() -> None:
    assert loaded({"GATEWAY_AGENT": "127.0.0.1:1"}, flags={"agent": "none"}).settings.agent is None


@pytest.mark.parametrize("service", ["GATEWAY", "GATEWAY_ZONE", "GATEWAY_2_ADMIN"])
def test_variables_that_container_platforms_make_up_are_no_mistakes(service: str) -> None:
    injected = {
        f"{service}_SERVICE_HOST": "10.0.0.1",
        f"{service}_SERVICE_PORT": "8401",
        f"{service}_SERVICE_PORT_ZONE": "8401",
        f"{service}_PORT": "tcp://10.0.0.1:8401",
        f"{service}_PORT_8401_TCP": "tcp://10.0.0.1:8401",
        f"{service}_PORT_8401_TCP_PROTO": "tcp",
        f"{service}_PORT_8401_TCP_PORT": "8401",
        f"{service}_PORT_8401_TCP_ADDR": "10.0.0.1",
    }

    assert loaded(injected).settings == loaded().settings


@pytest.mark.parametrize("variable", ["GATEWAY_PORT", "GATEWAY_ADMIN_PORT", "GATEWAY_LISTEN_HOST"])
def test_a_port_that_somebody_gives_is_not_taken_for_what_a_platform_makes_up(variable: str) -> None:
    assert f"{variable}: there is no such setting" in problems({variable: "9101"})


def test_no_setting_is_called_as_what_a_platform_makes_up() -> None:
    for each in SETTINGS.values():
        name = each.variable.removeprefix("GATEWAY_")
        assert not is_service_link(name, "tcp://10.0.0.1:80"), each.name


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"GATEWAY_LEASE": "soon"},
            "GATEWAY_LEASE: 'soon' is not a duration; give seconds between 1 and 300, or a text such as",
        ),
        (
            {"GATEWAY_WINDW_DEFAULT": "1"},
            "GATEWAY_WINDW_DEFAULT: there is no such setting; did you mean GATEWAY_WINDOW_DEFAULT?",
        ),
        (
            {"GATEWAY_PING_INTERVAL": "50"},
            "GATEWAY_PING_INTERVAL: ping_interval is 50 s and ping_timeout is 45 s; ping_interval must be less than",
        ),
        (
            {"GATEWAY_LEASE": "3s"},
            "GATEWAY_LEASE: lease_renew is 2 s and lease is 3 s; 2 times lease_renew must be at most lease",
        ),
        (
            {"GATEWAY_TOKEN_LIFE": "1h"},
            "GATEWAY_TOKEN_LIFE: window_maximum is 3600 s and token_life is 3600 s; 2 times window_maximum",
        ),
        ({"GATEWAY_ADMIN": "127.0.0.1:8101"}, "GATEWAY_ADMIN: listen and admin are both 127.0.0.1:8101; give each"),
        (
            {"GATEWAY_LISTEN": "0.0.0.0:9101"},
            "GATEWAY_LISTEN: listen is 0.0.0.0:9101 and admin is 127.0.0.1:9101, which is the same port of one address",
        ),
        (
            {"GATEWAY_AGENT": "[::1]:9201", "GATEWAY_ADMIN": "[::]:9201"},
            "GATEWAY_ADMIN and GATEWAY_AGENT: admin is [::]:9201 and agent is [::1]:9201, which is the same port",
        ),
        (
            {"GATEWAY_AGENT": "localhost:9201", "GATEWAY_ADMIN": "0.0.0.0:9201"},
            "GATEWAY_ADMIN and GATEWAY_AGENT: admin is 0.0.0.0:9201 and agent is localhost:9201, which is the same",
        ),
        (
            {"GATEWAY_ADMIN_ADVERTISE": "0.0.0.0:9101"},
            "GATEWAY_ADMIN_ADVERTISE: '0.0.0.0:9101' is where a node listens on all its addresses, and",
        ),
        (
            {"GATEWAY_GRID_TIMEOUT": "6"},
            "GATEWAY_GRID_TIMEOUT: grid_timeout is 6 s and lease is 6 s; grid_timeout must be below lease",
        ),
        (
            {"GATEWAY_LEASE": "3", "GATEWAY_GRID_TIMEOUT": "4", "GATEWAY_LEASE_RENEW": "1"},
            "GATEWAY_GRID_TIMEOUT and GATEWAY_LEASE: grid_timeout is 4 s and lease is 3 s; grid_timeout must be below",
        ),
        ({"GATEWAY_TOKEN_KEYS": f"{KEY},{KEY}"}, "GATEWAY_TOKEN_KEYS: its value has an entry twice"),
        (
            {"GATEWAY_TOKEN_VERIFY_KEYS": KEY},
            "GATEWAY_TOKEN_KEYS and GATEWAY_TOKEN_VERIFY_KEYS: a key stands in both lists; remove it",
        ),
        (
            {"GATEWAY_TOKEN_KEYS_FILE": "/nowhere"},
            "GATEWAY_TOKEN_KEYS and GATEWAY_TOKEN_KEYS_FILE: both give the same keys; keep one of",
        ),
        ({"GATEWAY_CONFIG": "/nowhere.toml"}, "GATEWAY_CONFIG /nowhere.toml: the file cannot be read (No such file"),
    ],
)
def test_a_mistake_is_told_with_place_value_and_remedy(environment: dict[str, str], message: str) -> None:
    assert message in problems(environment)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windw_default = 1", "gateway.toml: windw_default: there is no such setting; did you mean window_default?"),
        ("[window]\ndefault = 1", "gateway.toml: window: there are no tables; keys are flat; write window_default"),
        ("lease = true", "gateway.toml: lease: True is not a duration; give seconds"),
        ("claim_rate = []", "gateway.toml: claim_rate: [] is not a number; give a number"),
        ("lease = ", "gateway.toml: the file is not TOML: "),
        ('token_keys_file = "absent"', "absent cannot be read (No such file or directory); name a file"),
    ],
)
def test_a_mistake_in_the_file_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={"GATEWAY_AUTH": "anonymous"}, file=toml(tmp_path, text))

    assert message in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    message = problems({"GATEWAY_LEASE": "x"}, flags={"rate_burst": "0"}, file=toml(tmp_path, "node = 1\n"))

    places = [line.split(":")[0] for line in message.splitlines()]
    assert places == [str(tmp_path / "gateway.toml"), "GATEWAY_LEASE", "--rate-burst"]


def test_key_files_are_checked_line_by_line_without_repeating_a_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\nhunter2\n{KEY}\n", "ascii")

    with pytest.raises(ConfigurationError) as caught:
        load(environment={"GATEWAY_TOKEN_KEYS_FILE": str(keys)})

    message = str(caught.value)
    assert f"{keys}:2: the line has a key shorter than 16 bytes" in message
    assert f"{keys}:3: the key of line 1 again" in message
    assert "hunter2" not in message
    assert KEY not in message


@pytest.mark.parametrize(("content", "complaint"), [(b"\xff\xfe", "not a text file"), (b"# none\n", "holds no key")])
def test_a_key_file_without_keys_is_told(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "keys").write_bytes(content)

    with pytest.raises(ConfigurationError, match=complaint):
        load(environment={"GATEWAY_TOKEN_KEYS_FILE": str(tmp_path / "keys")})


def test_no_message_holds_a_secret() -> None:
    message = problems({"GATEWAY_TOKEN_KEYS": "hunter2", "GATEWAY_GRID": "http://bob:hunter3@h"})

    assert "hunter" not in message
    assert "GATEWAY_TOKEN_KEYS: its value has a key shorter than 16 bytes" in message


def test_no_representation_holds_a_secret() -> None:
    result = loaded({"GATEWAY_GRID": "redis://:hunter2@h/0"})

    assert "hunter2" not in f"{result!r} {result.given}"
    assert KEY not in f"{result!r} {result.given}"


def test_a_long_wrong_value_is_shortened() -> None:
    assert len(problems({"GATEWAY_LEASE": "x" * 10_000})) < 400


def test_without_keys_and_authentication_a_node_does_not_start() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={})

    assert [problem.place for problem in caught.value.problems] == ["token_keys", "auth"]
    assert all("--dev" in problem.remedy for problem in caught.value.problems)


def test_development_mode_makes_up_what_is_missing_and_says_so() -> None:
    one, other = (load(environment={}, flags={"dev": "true"}) for _ in range(2))

    assert one.settings.auth == AnonymousUsers()
    assert one.settings.token_keys != other.settings.token_keys
    assert one.places["token_keys"] == "made up (--dev)"
    assert [text.partition(":")[0] for text in one.settings.shortcuts()] == [
        "the grid is in memory",
        "authentication is anonymous",
        "there is no policy either",
        "the token key is random",
    ]


def test_development_mode_replaces_nothing_that_was_given(tmp_path: Path) -> None:
    settings = loaded({"GATEWAY_AUTH": f"static:{tmp_path}/users"}, flags={"dev": "true"}).settings

    assert [key.reveal() for key in settings.token_keys] == [KEY]
    assert settings.shortcuts() == ()


def test_a_wildcard_of_origins_is_loud() -> None:
    assert any("origins is *" in text for text in loaded({"GATEWAY_ORIGINS": "*"}).settings.shortcuts())
    assert any("origins has loopback" in text for text in loaded({"GATEWAY_ORIGINS": "loopback"}).settings.shortcuts())


def test_every_default_fits_its_own_kind() -> None:
    for each in SETTINGS.values():
        value = getattr(Settings(), each.name)
        if value not in (None, ()):
            assert each.declared.kind.read(each.declared.kind.show(value)) == value


def test_names_of_flags_and_variables_follow_one_rule() -> None:
    for name, each in SETTINGS.items():
        assert each.variable == f"GATEWAY_{name.upper()}"
        assert each.flag == (None if each.declared.secret else f"--{name.replace('_', '-')}")


def test_settings_and_signer_ask_for_the_same_length_of_keys() -> None:
    assert LEAST_KEY_BYTES == LEAST_OF_SIGNER


def test_no_message_moves_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('dev = true\n"\\u001b[2J" = 1\nlisten = "\\u202e\\u0007"\n["a\\nb"]\nc = 1\n')

    with pytest.raises(ConfigurationError) as caught:
        load(file=file, environment={}, flags={})

    assert len(str(caught.value).split("\n")) == len(caught.value.problems) == 3
    assert all(each.isprintable() or each == "\n" for each in str(caught.value))


@pytest.mark.parametrize(
    ("listen", "admin"),
    [("[::]:9101", "127.0.0.1:9101"), ("0.0.0.0:9101", "[::1]:9101"), ("10.0.0.1:9101", "127.0.0.1:9101")],
)
def test_one_port_of_different_addresses_is_fine(listen: str, admin: str) -> None:
    settings = loaded({"GATEWAY_LISTEN": listen, "GATEWAY_ADMIN": admin}).settings

    assert (str(settings.listen), str(settings.admin)) == (listen, admin)


@pytest.mark.parametrize(
    "environment",
    [
        {"GATEWAY_LEASE": "1", "GATEWAY_LEASE_RENEW": "0.5"},
        {"GATEWAY_GRID": "", "GATEWAY_LEASE": "2", "GATEWAY_LEASE_RENEW": "1", "GATEWAY_GRID_TIMEOUT": "3"},
    ],
)
def test_a_short_lease_needs_no_other_time_limit_for_a_grid_that_is_not_there_or_quick(
    environment: dict[str, str],
) -> None:
    assert loaded(environment).settings.lease == float(environment["GATEWAY_LEASE"])
