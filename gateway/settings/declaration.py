"""How a setting is declared: once, as a dataclass field that carries all that people and programs need to know of it.

From a declaration come the default, the flag, the environment variable, the key in TOML, the checks, the help and the
reference page. One rule ties the names together: setting ``grid_timeout`` is ``grid_timeout`` in TOML,
``GATEWAY_GRID_TIMEOUT`` in the environment and ``--grid-timeout`` on the command line.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from gateway.settings.kinds import Kind, Switch

T = TypeVar("T")

ENVIRONMENT_PREFIX: Final = "GATEWAY_"
"""Of every environment variable that is a node's."""

_KEY: Final = "gateway.setting"


@dataclass(frozen=True, slots=True)
class Declared(Generic[T]):
    """What was declared of a setting, apart from its name and default.

    Attributes:
        kind: how values are read, checked and shown.
        meaning: one sentence for operators.
        reason: why the default is what it is.
        secret: True if no value of it may be given on a command line, where other users can see it (P8).
        shown: False if a value, or a part of it, is secret: messages do not repeat what was given.
        absent: what no value means, or None if there always is one.
        default_text: the default in words, where it is computed.
    """

    kind: Kind[T]
    meaning: str
    reason: str
    secret: bool = False
    shown: bool = True
    absent: str | None = None
    default_text: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as its declaration makes it known.

    Attributes:
        name: in Python and TOML.
        group: the title of the group it belongs to.
        declared: the rest.
        default: its value if nobody gives one; None if it was declared with a factory.
        prefix: of its environment variable.
    """

    name: str
    group: str
    declared: Declared[Any]
    default: object
    prefix: str = ENVIRONMENT_PREFIX

    @property
    def variable(self) -> str:
        """The environment variable."""
        return self.prefix + self.name.upper()

    @property
    def flag(self) -> str | None:
        """The command line flag; None for secrets."""
        return None if self.declared.secret else "--" + self.name.replace("_", "-")

    @property
    def negative_flag(self) -> str | None:
        """The flag that says no; None unless the setting is a switch."""
        return f"--no-{self.name.replace('_', '-')}" if isinstance(self.declared.kind, Switch) else None

    @property
    def shown_default(self) -> str:
        """The default for people."""
        return self.declared.default_text or self.show(self.default)

    def show(self, value: object) -> str:
        """Write a value for people; secrets are masked, and no value says what that means."""
        if value is None or value == ():
            return self.declared.absent or "none"
        return self.declared.kind.show(value)


def setting(
    kind: Kind[T],
    default: T,
    meaning: str,
    *,
    reason: str,
    secret: bool = False,
    absent: str | None = None,
) -> T:
    """Declare a setting that always has a value. The result is a dataclass field, typed as its value.

    Args:
        kind: how values are read, checked and shown.
        default: its value if nobody gives one.
        meaning: one sentence for operators.
        reason: why the default is what it is.
        secret: True if no value may be shown; see ``Declared``.
        absent: for lists, what an empty one means.
    """
    declared = Declared(kind, meaning, reason, secret=secret, shown=not secret, absent=absent)
    return dataclasses.field(default=default, repr=not secret, metadata={_KEY: declared})


def optional(kind: Kind[T], meaning: str, *, absent: str, reason: str, shown: bool = True) -> T | None:
    """Declare a setting that has no value unless somebody gives one.

    Args:
        kind: how values are read, checked and shown.
        meaning: one sentence for operators.
        absent: what no value means.
        reason: why there is none by default.
        shown: False keeps the value out of ``repr`` and of messages, because a part of it is secret.
    """
    declared = Declared(kind, meaning, reason, shown=shown, absent=absent)
    return cast("T | None", dataclasses.field(default=None, repr=shown, metadata={_KEY: declared}))


def computed(kind: Kind[T], factory: Callable[[], T], meaning: str, *, default_text: str, reason: str) -> T:
    """Declare a setting whose default depends on the machine.

    Args:
        kind: how values are read, checked and shown.
        factory: makes the default.
        meaning: one sentence for operators.
        default_text: the default in words.
        reason: why.
    """
    declared = Declared(kind, meaning, reason, default_text=default_text)
    return dataclasses.field(default_factory=factory, metadata={_KEY: declared})


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that belong together.

    Attributes:
        title: for people.
        introduction: one sentence about them.
        settings: in the order in which they are declared.
    """

    title: str
    introduction: str
    settings: tuple[Setting, ...]


def group_of(declaring: type, title: str, prefix: str = ENVIRONMENT_PREFIX) -> Group:
    """Make a group of the settings that the dataclass *declaring* itself declares, under *title*."""
    return Group(title, inspect.getdoc(declaring) or "", declared_in(declaring, title, prefix))


def declared_in(group: type, title: str, prefix: str = ENVIRONMENT_PREFIX) -> tuple[Setting, ...]:
    """List the settings that the dataclass *group* itself declares, in order, under *title*."""
    own = _own_names(group)
    return tuple(
        Setting(
            name=each.name,
            group=title,
            declared=each.metadata[_KEY],
            default=None if each.default is dataclasses.MISSING else each.default,
            prefix=prefix,
        )
        for each in dataclasses.fields(group)
        if each.name in own
    )


def _own_names(group: type) -> frozenset[str]:
    """Names annotated in the body of *group* and not inherited."""
    return frozenset(inspect.get_annotations(group))
