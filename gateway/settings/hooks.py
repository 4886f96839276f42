"""The file of hooks, which the setting ``hooks`` names: who gets which events of the session journal by HTTP.

```toml
[[hook]]
name = "crm"
url = "https://crm.example.com/hooks/gateway"
events = ["session_opened", "session_closed", "session_expired"]
secret_file = "hook-crm-secret"
```

It is read strictly, and all that is wrong is told at once.
"""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.core.hooks.hook import ANY, MOST_FILTERS, MOST_HOOKS, Hook, HookName, events_of
from gateway.core.hooks.signing import PREFIX, read_secret
from gateway.core.journal import EVENT_TYPES
from gateway.core.journal.events import SESSION_SELECTIONS_CHANGED
from gateway.core.journal.fields import HASHED
from gateway.core.topics.selectors import parse_selector
from gateway.core.visible import visible
from gateway.core.wire.errors import RequestRefused
from gateway.settings.authenticators.files import Address, check_address
from gateway.settings.declaration import declared_in, optional, setting
from gateway.settings.errors import ConfigurationError, Problem, Unfit
from gateway.settings.kinds import Kind, Several, Word, text_of
from gateway.settings.layers import read_toml
from gateway.settings.model import Settings
from gateway.settings.places import File
from gateway.settings.quantities import Bytes, Seconds, Whole
from gateway.settings.values import PrincipalNames

TABLE: Final = "hook"
"""Name of the sections."""

MADE_BY: Final = "`echo whsec_$(openssl rand -base64 32)` makes one"
"""How a secret is made."""


@dataclass(frozen=True, slots=True)
class Events(Kind[str]):
    """A type of events, or the beginning of several."""

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return 'a type of events of the journal such as session_opened, or a beginning such as "session_*"'

    def read(self, raw: object) -> str:
        """See ``Kind``."""
        text = text_of(raw)
        try:
            events_of([text])
        except ValueError:
            close = get_close_matches(text, EVENT_TYPES, n=1)
            raise Unfit(f"names no event of the journal{f'; did you mean {close[0]}?' if close else ''}") from None
        return text


class HookReader(NamedTuple):
    """Reads the file of hooks as the other settings of a node have it.

    Attributes:
        file: of hooks.
        dev: allow http to any host.
        hashed: whether the journal has hashes in the place of principals.
    """

    file: Path
    dev: bool = False
    hashed: bool = False

    def __call__(self) -> tuple[Hook, ...]:
        """Read it; raises as ``read_hooks``."""
        return read_hooks(self.file, dev=self.dev, hashed=self.hashed)


def reader_of(settings: Settings) -> HookReader | None:
    """Tell how a node with these settings reads its file of hooks; None if it has none."""
    if settings.hooks is None:
        return None
    return HookReader(settings.hooks, settings.dev, settings.journal_principals is PrincipalNames.HASHED)


@dataclass(frozen=True, slots=True)
class Filter(Kind[str]):
    """A principal, or the beginning of several."""

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return 'a principal such as alice, or a beginning such as "team-*"'

    def read(self, raw: object) -> str:
        """See ``Kind``."""
        text = text_of(raw)
        if not text or ANY in text[:-1]:
            raise Unfit(f"has a {ANY} in another place than the end" if text else "is empty")
        return text


@dataclass(frozen=True, slots=True)
class Topics(Kind[str]):
    """A selector."""

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return 'a selector such as "orders/**"'

    def read(self, raw: object) -> str:
        """See ``Kind``."""
        try:
            return parse_selector(text_of(raw)).text
        except RequestRefused as refused:
            raise Unfit(f"is no selector: {refused}") from None


@dataclass(frozen=True, kw_only=True)
class HookSettings:
    """One section `[[hook]]`."""

    name: str | None = optional(
        Word(r"[a-z0-9][a-z0-9-]{0,39}", "up to 40 small letters, digits and dashes"),
        "Its name in logs, metrics and commands. Where it has come in the journal is kept under this name: a hook with "
        "another name is a new one.",
        absent="refuse to start",
        reason="There is no default.",
    )
    url: str | None = optional(
        Address(),
        "Where events are posted. Redirects are not followed.",
        absent="refuse to start",
        reason="There is no default.",
    )
    events: tuple[str, ...] = setting(
        Several(Events(), "types of events"),
        (),
        'The types of [events](journal.md) that it gets; `"session_*"` are all that begin so. Which events are missing '
        "is told in any case.",
        reason="There is no default.",
        absent="refuse to start",
    )
    principals: tuple[str, ...] = setting(
        Several(Filter(), "principals"),
        (),
        'Of events about sessions, it gets only those of these principals; `"team-*"` are all that begin so. They are '
        "compared with what the journal says, which is a hash if `journal_principals` says so. Events that tell no "
        "principal are left out.",
        reason="A receiver gets everybody's events, unless it is for some.",
        absent="everybody's",
    )
    selectors: tuple[str, ...] = setting(
        Several(Topics(), "selectors"),
        (),
        "Of `session_selections_changed`, it gets only changes of selectors that select a topic which one of these "
        "matches, too.",
        reason="A receiver gets all changes, unless it is for some topics.",
        absent="all changes",
    )
    secret_file: Path | None = optional(
        File(),
        f"File with the secret that signs requests: `{PREFIX}` and 24 to 64 bytes in base64; {MADE_BY}.",
        absent="refuse to start",
        reason="A receiver could not tell requests from those of a stranger.",
    )
    previous_secret_file: Path | None = optional(
        File(),
        "File with the secret that is being replaced. Requests are signed with both.",
        absent="there is one secret",
        reason="Needed only until the receiver has the new one.",
    )
    batch_events: int = setting(
        Whole("events", 1, 1000),
        100,
        "Events in one request at most.",
        reason="Few requests in a storm, and little to do again if one fails.",
    )
    batch_bytes: int = setting(
        Bytes(16 * 1024, 1024**2),
        256 * 1024,
        "Bytes of one request at most, unless a single event has more.",
        reason="Less than receivers usually accept.",
    )
    wait: float = setting(
        Seconds(0.1, 60),
        1.0,
        "For how long events gather before they are sent; a full request is sent at once.",
        reason="Events come half a second late anyway, as nodes write the journal so often.",
    )
    timeout: float = setting(
        Seconds(0.5, 60),
        10.0,
        "How long a request may take; then it has failed.",
        reason="Receivers should store events and answer, and do the work later.",
    )
    ca_file: Path | None = optional(
        File(),
        "File with certificates in PEM that sign the certificate of url's host.",
        absent="the system's trust store",
        reason="Needed only for a private certificate authority.",
    )


def read_hooks(file: Path, *, dev: bool = False, hashed: bool = False) -> tuple[Hook, ...]:
    """Read the file of hooks, and their secrets; blocks while it reads.

    Args:
        file: to read; relative paths in it are relative to where it is.
        dev: allow http to any host.
        hashed: whether the journal has hashes in the place of principals.

    Raises:
        ConfigurationError: with everything that is wrong; no message repeats a secret.
    """
    content = read_toml(file, "hooks:")
    problems = [
        Problem(f"{file}: {visible(key)}", "there is no such key", f"write [[{TABLE}]] above each hook")
        for key in content
        if key != TABLE
    ]
    tables = content.get(TABLE, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        problems.append(Problem(f"{file}: {TABLE}", "this is no list of tables", f"write [[{TABLE}]] above each hook"))
        tables = []
    if len(tables) > MOST_HOOKS:
        problems.append(
            Problem(
                f"{file}: {TABLE}",
                f"there are {len(tables)} hooks, and a cluster has at most {MOST_HOOKS}",
                "have one receiver pass events on",
            )
        )
    hooks: dict[HookName, Hook] = {}
    for number, table in enumerate(tables, start=1):
        place = f"{file}: {TABLE} {visible(str(table.get('name', number)))[:40]}"
        settings, wrong = _read_table(place, file.parent, table)
        wrong += [] if settings is None else _check(place, settings, dev=dev, hashed=hashed)
        if settings is None or wrong:
            problems += wrong
            continue
        hook, wrong = _hook(place, settings)
        problems += wrong
        if hook is not None and hook.name in hooks:
            problems.append(Problem(place, "there is another hook of this name", "give each its own name"))
        elif hook is not None:
            hooks[hook.name] = hook
    if problems:
        raise ConfigurationError(problems)
    return tuple(hooks.values())


def _read_table(place: str, folder: Path, table: Mapping[str, object]) -> tuple[HookSettings | None, list[Problem]]:
    known = {each.name: each for each in declared_in(HookSettings, "")}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, raw in table.items():
        if key not in known:
            there = f"the keys of a hook are {', '.join(known)}"
            problems.append(Problem(f"{place}: {visible(key)}", "there is no such key", there))
            continue
        kind = known[key].declared.kind
        try:
            values[key] = kind.anchor(kind.read(raw), folder)
        except Unfit as unfit:
            problems.append(Problem(f"{place}: {key}", f"its value {unfit}", f"give {kind.accepts}"))
    return (None if problems else HookSettings(**values)), problems


def _check(place: str, settings: HookSettings, *, dev: bool, hashed: bool) -> list[Problem]:
    given = {
        "name": (settings.name, "a name"),
        "url": (settings.url, Address().accepts),
        "events": (settings.events, 'the types of events that it gets, such as ["session_*"]'),
        "secret_file": (settings.secret_file, f"a file with a secret; {MADE_BY}"),
    }
    problems = [
        Problem(place, f"there is no {key}", f"give {wanted}") for key, (value, wanted) in given.items() if not value
    ]
    problems += check_address(Path(place), "url", settings.url, dev=dev)
    if settings.ca_file is not None and not settings.ca_file.is_file():
        problems.append(Problem(f"{place}: ca_file", f"there is no file {settings.ca_file}", "name a file in PEM"))
    return problems + _check_filters(place, settings, hashed=hashed)


def _check_filters(place: str, settings: HookSettings, *, hashed: bool) -> list[Problem]:
    problems: list[Problem] = []
    wanted = events_of(settings.events)
    for key, given in (("principals", settings.principals), ("selectors", settings.selectors)):
        if len(given) > MOST_FILTERS:
            problems.append(
                Problem(f"{place}: {key}", f"there are {len(given)}, and {MOST_FILTERS} at most", "name less")
            )
    if settings.principals:
        # A pattern may name more than has a principal; who names such a type waits for it in vain.
        problems += [
            Problem(f"{place}: events", f"{each} never tells a principal, so that it is never sent", "leave it out")
            for each in settings.events
            if each in EVENT_TYPES and EVENT_TYPES[each].about_session and "principal" not in EVENT_TYPES[each].fields
        ]
        plain = [each for each in settings.principals if not each.startswith(HASHED)]
        if hashed and plain:
            problems.append(
                Problem(
                    f"{place}: principals",
                    f"the journal has hashes in the place of principals, and {visible(plain[0])} is none",
                    f"give what events have as principal, which begins with {HASHED}",
                )
            )
    if settings.selectors and SESSION_SELECTIONS_CHANGED.name not in wanted:
        problems.append(
            Problem(
                f"{place}: selectors",
                f"it gets no {SESSION_SELECTIONS_CHANGED.name}, which is all that is chosen by them",
                "add that to events, or leave selectors out",
            )
        )
    return problems


def _hook(place: str, settings: HookSettings) -> tuple[Hook | None, list[Problem]]:
    keys: list[bytes] = []
    problems: list[Problem] = []
    files = {"secret_file": settings.secret_file, "previous_secret_file": settings.previous_secret_file}
    for key, file in files.items():
        if file is not None:
            read, wrong = _key(f"{place}: {key}", file)
            keys += read
            problems += wrong
    if problems or settings.name is None or settings.url is None:
        return None, problems
    return (
        Hook(
            name=HookName(settings.name),
            url=settings.url,
            events=events_of(settings.events),
            keys=tuple(keys),
            batch_events=settings.batch_events,
            batch_bytes=settings.batch_bytes,
            wait=settings.wait,
            timeout=settings.timeout,
            ca_file=settings.ca_file,
            principals=settings.principals,
            selectors=tuple(map(parse_selector, settings.selectors)),
        ),
        [],
    )


def _key(place: str, file: Path) -> tuple[list[bytes], list[Problem]]:
    try:
        return [read_secret(file.read_text("utf-8"))], []
    except OSError as error:
        complaint = f"{file} cannot be read ({error.strerror or error})"
        return [], [Problem(place, complaint, "name a file that this user may read")]
    except UnicodeDecodeError:
        return [], [Problem(place, f"{file} is not a text file", f"write a secret into it; {MADE_BY}")]
    except ValueError as error:
        return [], [Problem(place, f"the secret in {file} {error}", MADE_BY)]
