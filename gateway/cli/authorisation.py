"""``gateway policy``: check a policy file, and ask what it allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from gateway.adapters.policy import PolicyFileError, read_policy
from gateway.core.policy.permissions import ADMIN_ACTIONS, PRINCIPAL, PROPERTY_PREFIX, Policy
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import is_reserved, parse_topic
from gateway.core.wire.errors import RequestRefused
from gateway.settings import ConfigurationError, Problem

_FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.group()
def policy() -> None:
    """Check who may do what."""


_OF_PATHS: Final = ("select", "publish", "send", "consume", "request", "handle", "address")
"""What a role gives as selectors, in the order of ``Role.templates``."""

_ACTIONS: Final = (*_OF_PATHS, "property", "admin")
"""What can be asked about."""


@policy.command()
@_FILE
def check(file: Path) -> None:
    """Check the policy in FILE, and sum it up.

    Exit code 2 if a node would refuse it, with everything that is wrong.
    """
    found = policy_of(file)
    for name, role in found.roles.items():
        click.echo(f"role {_shown(name)}{' (every principal has it)' if name in found.default else ''}")
        for what, given in (
            ("select", [each.text for each in role.select]),
            ("publish", [each.text for each in role.publish]),
            ("send", [each.text for each in role.send]),
            ("consume", [each.text for each in role.consume]),
            ("request", [each.text for each in role.request]),
            ("handle", [each.text for each in role.handle]),
            ("address", [each.text for each in role.address]),
            ("presence", [each.text for each in role.presence]),
            ("declare", ["temporary queues"] if role.declare else []),
            ("properties", sorted(role.properties)),
            ("admin", sorted(role.admin)),
        ):
            if given:
                click.echo(f"  {what:<12}{', '.join(map(_shown, given))}")
    click.echo(f"principals with roles of their own: {len(found.principals)}")
    click.echo("The policy is fit to run.")


@policy.command()
@_FILE
@click.option("--principal", default="", metavar="NAME", help="The principal of the session.")
@click.option("--roles", default="", metavar="NAME,NAME", help="Roles that its credentials give.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property that its credentials vouch for. May be repeated.",
)
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("what", metavar="SELECTOR|TOPIC|QUEUE|PATH|NAME|ACTION")
def explain(file: Path, *, principal: str, roles: str, properties: Sequence[str], action: str, what: str) -> int:
    """Check whether the policy in FILE allows something, and by which role.

    For example: gateway policy explain policy.toml --principal alice select 'prices/**'

    Exit code 0 if it does and 1 if it does not.
    """
    found = policy_of(file)
    given = [each.strip() for each in roles.split(",") if each.strip()]
    if unknown := [each for each in given if each not in found.roles]:
        raise click.UsageError(f"there is no role {unknown[0]!r} in {file}; there are {', '.join(found.roles)}")
    person = _Person(principal, dict(map(_property, properties)))
    held = found.roles_of(principal, given)
    click.echo(f"roles: {', '.join(map(_shown, sorted(held))) or 'none'}")
    try:
        allowed, answer = _answer(found, person, held, action, what)
        by = [each for each in sorted(held) if _answer(found, person, frozenset((each,)), action, what)[0]]
    except RequestRefused as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"{'allowed' if allowed else 'forbidden'}: {answer}")
    if allowed:
        click.echo(f"by: {', '.join(map(_shown, by)) or 'several roles together'}")
    for line in _idle_entries(found, person, held, action):
        click.echo(f"note: {line}")
    return 0 if allowed else 1


def policy_of(file: Path) -> Policy:
    """Read a policy.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    try:
        return read_policy(file)
    except PolicyFileError as error:
        raise ConfigurationError([Problem(*each) for each in error.problems]) from None


@dataclass(frozen=True, slots=True)
class _Person:
    """Whose permissions are asked for.

    Attributes:
        principal: the name.
        properties: what the credentials vouch for.
    """

    principal: str
    properties: Mapping[str, str]

    @property
    def values(self) -> dict[str, str]:
        """What fills in the placeholders."""
        return {PRINCIPAL: self.principal} | {PROPERTY_PREFIX + name: text for name, text in self.properties.items()}


def _answer(  # noqa: C901 - a case for each kind
    found: Policy, person: _Person, roles: frozenset[str], action: str, what: str
) -> tuple[bool, str]:
    """Tell whether some roles allow something, and say it.

    Raises:
        RequestRefused: it is nothing that can be allowed.
    """
    # As a policy of its own: the roles are given, and nobody has any besides.
    alone = Policy({name: found.roles[name] for name in roles})
    permissions = alone.permissions_of(person.principal, roles, person.properties)
    match action:
        case "select":
            selector = parse_selector(what)
            if permissions.may_select(selector):
                return True, f"all of {selector.text!r} may be selected"
            part, complete = permissions.allowed(selector)
            named = ", ".join(_shown(each.text) for each in part) or "nothing"
            return False, f"of {selector.text!r} may be selected: {named}{'' if complete else ', and more'}"
        case "publish":
            topic = parse_topic(what)
            if is_reserved(topic):
                return False, "only the gateway publishes to topics that begin with '$'"
            return permissions.may_publish(topic), f"to publish to {topic!r}"
        case "send":
            return permissions.may_send(parse_topic(what)), f"to send messages to {what!r}"
        case "consume":
            return permissions.may_consume(parse_topic(what)), f"to consume messages of {what!r}"
        case "request":
            return permissions.may_request(parse_topic(what)), f"to ask {what!r}"
        case "handle":
            return permissions.may_handle(parse_selector(what)), f"to handle all questions of {what!r}"
        case "address":
            return permissions.may_address(parse_topic(what)), f"to choose who is asked {what!r}"
        case "property":
            return permissions.may_set(what), f"to set the property {what!r}"
        case _:
            if what not in ADMIN_ACTIONS:
                raise click.UsageError(f"there is no action {what!r}; there are {', '.join(ADMIN_ACTIONS)}")
            return what in alone.admin_actions(roles), f"to {ADMIN_ACTIONS[what]}"


def _idle_entries(found: Policy, person: _Person, roles: frozenset[str], action: str) -> Iterator[str]:
    """Entries that could allow the action, if their placeholders could be filled in."""
    for name in sorted(roles):
        role = found.roles[name]
        given = dict(zip(_OF_PATHS, role.templates, strict=True))
        for each in given.get(action, ()):
            if each.bind(person.values) is None:
                yield (f"{each.text!r} of role {_shown(name)} gives nothing here: a value is missing, or is no segment")


def _property(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"a property is given as NAME=VALUE, but {text!r} is not")
    return name, value


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)
