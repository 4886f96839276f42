"""The policy file: TOML with roles, and who has them.

```toml
default = ["reader"]                       # roles that everybody has

[roles.reader]
select = ["prices/**", "users/${principal}/**"]

[roles.trader]
publish = ["orders/${principal}/*"]
properties = ["desk"]

[principals]                               # roles besides those that the authenticator gives
alice = ["trader"]
```

It is read strictly. A key that nobody knows is most often one that was misspelt, and a permission that silently does
not exist is found out by the wrong person.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

from gateway.core.destinations.presence import MOST_TREE_BYTES, MOST_TREE_SEGMENTS, watching
from gateway.core.policy.permissions import ADMIN_ACTIONS, EVERYTHING, Policy, Role, Template, kind_of, parse_template
from gateway.core.topics.topics import SEPARATOR, SYSTEM_ROOT, is_reserved
from gateway.core.visible import visible
from gateway.core.wire.codes import MirrorMode
from gateway.core.wire.errors import GatewayError, InvalidSelector

_HEADER: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_KEY: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART: Final = re.compile(r"""([A-Za-z0-9_-]+)|"([^"]*)"|'([^']*)'""")


class Lines:
    """Finds keys in a text that is valid TOML. What is written in an unusual way is not found, which does no harm.

    Args:
        text: the file.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._keys: list[tuple[tuple[str, ...], int]] = list(self._read())

    def _read(self) -> Iterator[tuple[tuple[str, ...], int]]:
        table: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, start=1):
            if header := _HEADER.match(line):
                table = _parts(header[1])
                yield table, number
            elif key := _KEY.match(line):
                yield (*table, *_parts(key[1])), number

    def find(self, key: tuple[str, ...], entry: str | None = None) -> int | None:
        """Tell the line of a key.

        Args:
            key: its name with those of the tables around it.
            entry: of the list that is its value; then the line of that.

        Returns:
            The line, from 1; of the innermost table around it that is found, else None.
        """
        for known, number in self._keys:
            if known[: len(key)] == key:
                return number if entry is None else self._line_of(entry, number)
        return self.find(key[:-1]) if len(key) > 1 else None

    def _line_of(self, entry: str, first: int) -> int:
        following = min((number for _, number in self._keys if number > first), default=len(self._lines) + 1)
        quoted = (f'"{entry}"', f"'{entry}'")
        for number in range(first, following):
            if any(each in self._lines[number - 1] for each in quoted):
                return number
        return first


def _parts(key: str) -> tuple[str, ...]:
    return tuple(found[1] or found[2] or found[3] or "" for found in _PART.finditer(key))


LARGEST_FILE: Final = 16 * 1024**2
"""Bytes: some hundred thousand principals; beyond, roles belong into the credentials."""

LONGEST_NAME: Final = 256
"""Characters of a role's or a principal's name."""

LONGEST_PROPERTY: Final = 64
"""Characters of a property's name (protocol section 9.3)."""

_TOP: Final = ("default", "roles", "principals")
_OF_A_ROLE: Final = (
    "select",
    "publish",
    "send",
    "consume",
    "request",
    "handle",
    "address",
    "presence",
    "declare",
    "properties",
    "admin",
    "mirror",
)
_ACTIONS: Final = (EVERYTHING, *sorted({kind_of(action) for action in ADMIN_ACTIONS}), *ADMIN_ACTIONS)


class PolicyProblem(NamedTuple):
    """One thing that is wrong with a policy file.

    Attributes:
        place: file, line as far as it is known, and key.
        complaint: what is wrong.
        remedy: what to do.
    """

    place: str
    complaint: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.complaint}; {self.remedy}"


class PolicyFileError(GatewayError):
    """The policy cannot be used. All that is wrong is told at once.

    Attributes:
        problems: at least one.
    """

    def __init__(self, problems: list[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


def read_policy(file: Path) -> Policy:
    """Read a policy; blocks while it reads.

    Raises:
        PolicyFileError: the file cannot be read, or something in it is wrong.
    """

    def refuse(complaint: str, remedy: str) -> PolicyFileError:
        return PolicyFileError([PolicyProblem(str(file), complaint, remedy)])

    try:
        if file.stat().st_size > LARGEST_FILE:
            raise refuse(f"the file is larger than {LARGEST_FILE // 1024**2} MiB", "have the authenticator give roles")
        text = file.read_text("utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise refuse(
            f"the policy cannot be read ({error.strerror or error})", "name a file that this user may read"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refuse(f"the file is not TOML ({error})", "correct it") from None
    reader = _Reader(file, Lines(text))
    policy = reader.policy(content)
    if reader.problems:
        raise PolicyFileError(reader.problems)
    return policy


class _Reader:
    """Turns what a file says into a policy, and collects what is wrong."""

    def __init__(self, file: Path, lines: Lines) -> None:
        self._file = file
        self._lines = lines
        self.problems: list[PolicyProblem] = []

    def policy(self, content: Mapping[str, object]) -> Policy:
        self._check_keys(content, _TOP, ())
        roles = {
            name: self._role(name, table)
            for name, table in self._table(content, "roles", "is a table of roles such as [roles.reader]").items()
        }
        if not roles:
            self._complain(
                ("roles",),
                "the policy has no role, so no principal could do anything",
                "add one such as [roles.reader]",
            )
        default = self._roles(content.get("default", []), ("default",), roles)
        principals = {
            name: self._roles(given, ("principals", name), roles)
            for name, given in self._table(content, "principals", 'has lines such as alice = ["reader"]').items()
        }
        return Policy(roles, default=default, principals=principals)

    def _role(self, name: str, table: object) -> Role:
        where = ("roles", name)
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME or is_reserved(name):
            self._complain(
                where,
                "the name of the role cannot be used",
                f"use 1 to {LONGEST_NAME} visible characters, the first of them not a '$'",
            )
        if not isinstance(table, dict):
            self._complain(where, "a role is a table", f"write [roles.{name}] above its permissions")
            return Role()
        self._check_keys(table, _OF_A_ROLE, where)
        return Role(
            select=tuple(self._selectors(table, (*where, "select"))),
            publish=tuple(self._selectors(table, (*where, "publish"))),
            send=tuple(self._selectors(table, (*where, "send"))),
            consume=tuple(self._selectors(table, (*where, "consume"))),
            request=tuple(self._selectors(table, (*where, "request"))),
            handle=tuple(self._selectors(table, (*where, "handle"))),
            address=tuple(self._selectors(table, (*where, "address"))),
            presence=tuple(self._selectors(table, (*where, "presence"))),
            declare=self._declare(table, (*where, "declare")),
            properties=frozenset(self._properties(table, (*where, "properties"))),
            admin=frozenset(self._actions(table, (*where, "admin"))),
            mirror=self._mirror(table, (*where, "mirror")),
        )

    def _selectors(self, table: Mapping[str, object], where: tuple[str, ...]) -> Iterator[Template]:
        for text in self._texts(table.get(where[-1], []), where):
            try:
                template = parse_template(text)
            except InvalidSelector as error:
                self._complain(where, f"{text!r} is not a selector: {error}", "correct it", text)
                continue
            root = text.partition(SEPARATOR)[0]
            if is_reserved(root) and not root.startswith("${"):
                if where[-1] == "publish":
                    self._complain(where, f"{text!r}: only the gateway publishes below {root!r}", "remove it", text)
                elif where[-1] in {"send", "consume"}:
                    self._complain(where, f"{text!r}: there is no queue below {root!r}", "remove it", text)
                elif where[-1] in {"request", "handle", "address"}:
                    self._complain(where, f"{text!r}: nobody asks anything below {root!r}", "remove it", text)
                elif where[-1] == "presence":
                    self._complain(where, f"{text!r}: nobody subscribes below {root!r}", "remove it", text)
                elif root != SYSTEM_ROOT:
                    self._complain(
                        where, f"{text!r}: there is nothing below {root!r}", f"say {SYSTEM_ROOT}, or remove it", text
                    )
            if where[-1] == "presence" and (why := _too_long(text)):
                self._complain(
                    where,
                    f"{text!r} is too long for a tree that tells who is there: {why}",
                    f"name a tree of at most {MOST_TREE_SEGMENTS} segments and {MOST_TREE_BYTES} bytes, as no longer "
                    "one has members",
                    text,
                )
                continue
            yield template

    def _properties(self, table: Mapping[str, object], where: tuple[str, ...]) -> Iterator[str]:
        for name in self._texts(table.get(where[-1], []), where):
            if is_reserved(name):
                self._complain(where, f"{name!r} is the server's, and no client may set it", "remove it", name)
            elif not 0 < len(name) <= LONGEST_PROPERTY or (EVERYTHING in name and name != EVERYTHING):
                self._complain(
                    where,
                    f"{name!r} is not the name of a property",
                    f"use 1 to {LONGEST_PROPERTY} characters, or '*' alone for all properties",
                    name,
                )
            else:
                yield name

    def _actions(self, table: Mapping[str, object], where: tuple[str, ...]) -> Iterator[str]:
        for action in self._texts(table.get(where[-1], []), where):
            if action in _ACTIONS:
                yield action
            else:
                self._complain(where, f"there is no action {action!r}", _meant(action, _ACTIONS), action)

    def _declare(self, table: Mapping[str, object], where: tuple[str, ...]) -> bool:
        given = table.get(where[-1], False)
        if isinstance(given, bool):
            return given
        self._complain(where, f"{given!r} says neither that it is allowed nor that it is not", "write true or false")
        return False

    def _mirror(self, table: Mapping[str, object], where: tuple[str, ...]) -> MirrorMode:
        given = table.get(where[-1], MirrorMode.ASYNC.value)
        words = tuple(each.value for each in MirrorMode)
        if isinstance(given, str) and given in words:
            return MirrorMode(given)
        self._complain(where, f"{given!r} is nothing that output can wait for", _meant(str(given), words))
        return MirrorMode.ASYNC

    def _roles(self, given: object, where: tuple[str, ...], known: Mapping[str, Role]) -> list[str]:
        names = list(self._texts(given, where))
        for name in names:
            if name not in known:
                self._complain(where, f"there is no role {name!r}", _meant(name, tuple(known)), name)
        return names

    # --- Shapes -------------------------------------------------------------------------------------------------------

    def _table(self, content: Mapping[str, object], key: str, shape: str) -> Mapping[str, object]:
        table = content.get(key, {})
        if isinstance(table, dict):
            return table
        self._complain((key,), f"{key} {shape}", "correct it")
        return {}

    def _texts(self, given: object, where: tuple[str, ...]) -> Iterator[str]:
        if not isinstance(given, list):
            self._complain(where, "this is not a list", f'write {where[-1]} = ["…", "…"]')
            return
        for each in given:
            if isinstance(each, str):
                yield each
            else:
                self._complain(where, f"{each!r} is not a text", "put it into quotes")

    def _check_keys(self, table: Mapping[str, object], known: tuple[str, ...], where: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                self._complain((*where, key), "there is no such key", _meant(key, known))

    def _complain(self, where: tuple[str, ...], complaint: str, remedy: str, entry: str | None = None) -> None:
        line = self._lines.find(where, entry)
        place = f"{self._file}:{line}" if line else str(self._file)
        name = ".".join(part if part.isprintable() else repr(part) for part in where)
        self.problems.append(PolicyProblem(f"{place}: {name}", complaint, visible(remedy)))


def _too_long(tree: str) -> str:
    """Say why who has subscribed to a tree cannot be selected; nothing if it can."""
    try:
        for text in watching(tree):
            parse_template(text)
    except InvalidSelector as error:
        return str(error)
    return ""


def _meant(word: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(word, known, n=1)
    choice = f"there are {', '.join(known)}" if known else "define it as [roles.NAME]"
    return f"did you mean {close[0]!r}? ({choice})" if close else choice
