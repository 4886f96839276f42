"""Who may do what: roles, and the permissions that they add up to.

```text
principal ─┐
roles      ├─► Policy ─► Permissions: select, publish, send, consume, request, handle, address, presence (selectors),
properties ┘                          properties (names), admin (actions)
```

Roles only ever add. There is nothing that takes away what another role gives, so the order of roles means nothing, what
is allowed of a selector can be said in selectors, and a value that cannot be filled in gives less and never more.

**A session's own values.** A segment of a permission may be ``${principal}``, or ``${principal.NAME}`` for a property
that the authenticator gave (one that a client has set itself proves nothing). It stands for exactly that one segment. A
value that is no segment (it has a ``/``, is empty, has a wildcard in it) or begins with ``$`` does not fit, and then
this one entry gives nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sys import getsizeof
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from gateway.core.destinations.presence import watching
from gateway.core.policy.rule_sets import RuleSet
from gateway.core.topics.entry_index import Entry, entry_bytes
from gateway.core.topics.remembered import Remembered, SharedRoom
from gateway.core.topics.selections import Selections
from gateway.core.topics.selector_sets import MAX_PARTS, Common
from gateway.core.topics.selectors import ANY, Selector, parse_selector
from gateway.core.topics.topics import SEPARATOR, SYSTEM_SIGN, is_reserved, shown
from gateway.core.topics.work import MOST_STEPS, Work
from gateway.core.types import TopicPath
from gateway.core.wire.codes import MirrorMode
from gateway.core.wire.errors import InvalidSelector

ADMIN_ACTIONS: Final[Mapping[str, str]] = {
    "configuration:read": "see the effective configuration, without secrets",
    "destinations:declare": "say of which topics history is kept, and how much",
    "zones:read": "see zones, their members, joins and links",
    "zones:change": "make, join and leave zones, and change joins",
    "destinations:read": "see what paths are",
    "hooks:read": "see event hooks, and how their receivers are",
    "hooks:retry": "have a receiver of an event hook tried at once",
    "queues:read": "see queues, and their dead letters",
    "queues:write": "put dead letters of queues back, or drop them",
    "nodes:drain": "drain a node, and let it serve again",
    "nodes:read": "see nodes",
    "revocations:read": "see what is revoked",
    "revocations:write": "revoke sessions, principals and credentials, and take it back",
    "sessions:close": "end sessions",
    "sessions:move": "move sessions to another node",
    "sessions:notify": "send notices to sessions",
    "sessions:read": "see sessions",
    "topics:read": "see topics, their values and who is subscribed",
    "topics:write": "set and delete topics",
}
"""Everything an administrator may do, with what it means."""

EVERYTHING: Final = "*"
"""Stands for every property, every action, or in ``sessions:*`` every action of a kind."""

PRINCIPAL: Final = "principal"
"""Name of the value that is the session's principal."""

PROPERTY_PREFIX: Final = "principal."
"""Begins the names of the values that are its properties."""

REMEMBERED_BYTES: Final = 512 * 1024
"""Bytes of answers about topics that are remembered per set of permissions, and as many again for what may be received:
some 2,000 usual topics. What is asked beyond that is found anew, at some microseconds each."""

ANSWERS_BYTES: Final = 64 * 1024**2
"""Bytes of all these answers of a node, for all sets of permissions: with ``${principal}`` each principal has its own.
Fifty that ask for as much as each may remember, or 250,000 usual topics."""

SELECTOR_BYTES: Final = 256 * 1024
"""Bytes of answers about selectors, likewise: some 1,000 usual ones. They are judged again at each resume."""

STEPS_PER_ENTRY: Final = 8
"""Steps that the judgement of a whole list may take for each entry, besides those of one request. A rule that covers an
entry is found in fewer; a list of 1,000 is judged in less than the time that reading it takes."""

_PLACEHOLDER: Final = re.compile(r"\$\{(principal|principal\.[^{}$/*]{1,64})\}")


class Template:
    """A selector of a policy, in which the values of a session may be left open; make one with ``parse_template``.

    Attributes:
        text: as written.
        names: of the values that it leaves open: ``principal``, ``principal.team``.
    """

    __slots__ = ("_selector", "names", "text")

    def __init__(self, text: str, names: tuple[str, ...], selector: Selector | None) -> None:
        self.text = text
        self.names = names
        self._selector = selector
        """Of a template that leaves nothing open."""

    def __repr__(self) -> str:
        return f"<Template {self.text}>"

    def bind(self, values: Mapping[str, str]) -> Selector | None:
        """Fill in the values of a session.

        Args:
            values: by name.

        Returns:
            The selector; None if a value is missing or does not fit, so that the session is given nothing by this.
        """
        if self._selector is not None:
            return self._selector
        filled: list[str] = []
        for segment in self.text.split(SEPARATOR):
            found = _PLACEHOLDER.fullmatch(segment)
            value = segment if found is None else values.get(found[1], "")
            if found is not None and not fits_segment(value):
                return None
            filled.append(value)
        try:
            return parse_selector(SEPARATOR.join(filled))
        except InvalidSelector:
            return None  # it has become too long, or has control characters


def fits_segment(value: str) -> bool:
    """Tell whether a value can stand for one segment of a permission, and for nothing else."""
    return bool(value) and SEPARATOR not in value and "*" not in value and not value.startswith(SYSTEM_SIGN)


def parse_template(text: str) -> Template:
    """Read a selector of a policy.

    Raises:
        InvalidSelector: it is none, or has a placeholder that is unknown or not a whole segment. The message says so.
    """
    segments = text.split(SEPARATOR)
    names: list[str] = []
    for number, segment in enumerate(segments):
        if found := _PLACEHOLDER.fullmatch(segment):
            names.append(found[1])
            segments[number] = "x"  # any that fits: what is checked here is the rest
        elif "${" in segment:
            raise InvalidSelector(
                f"a placeholder is a segment, ${{principal}} or ${{principal.NAME}}, and {shown(segment)} is neither"
            )
    selector = parse_selector(SEPARATOR.join(segments))
    return Template(text, tuple(dict.fromkeys(names)), None if names else selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a role gives.

    Attributes:
        select: topics that may be selected.
        publish: topics that may be published to.
        send: queues that messages may be sent to.
        consume: queues whose messages may be consumed.
        request: paths of the questions that may be asked.
        handle: paths of the questions that may be handled.
        address: paths of those that may be for one principal, or one session, alone.
        presence: trees of which it may be seen who has subscribed to them.
        declare: whether temporary queues may be declared.
        properties: names of properties that clients may set; ``*`` for all.
        admin: actions of administrators, each one of ``ADMIN_ACTIONS``, ``*``, or ``*`` in place of what follows the
            colon.
        mirror: what output waits for, if its node has a backup; of several, the most counts.
    """

    select: tuple[Template, ...] = ()
    publish: tuple[Template, ...] = ()
    send: tuple[Template, ...] = ()
    consume: tuple[Template, ...] = ()
    request: tuple[Template, ...] = ()
    handle: tuple[Template, ...] = ()
    address: tuple[Template, ...] = ()
    presence: tuple[Template, ...] = ()
    declare: bool = False
    properties: frozenset[str] = frozenset()
    admin: frozenset[str] = frozenset()
    mirror: MirrorMode = MirrorMode.ASYNC

    @property
    def templates(self) -> tuple[tuple[Template, ...], ...]:
        """What it gives as selectors, in the order of ``_Rules``."""
        # Who is there is told by topics, and who may see it may select these.
        watched = tuple([parse_template(text) for each in self.presence for text in watching(each.text)])
        return self.select + watched, self.publish, self.send, self.consume, self.request, self.handle, self.address


class _Rules(NamedTuple):
    """What may be done with which paths, as several roles say together.

    Attributes:
        select: as of ``Role``; likewise the others.
    """

    select: RuleSet
    publish: RuleSet
    send: RuleSet
    consume: RuleSet
    request: RuleSet
    handle: RuleSet
    address: RuleSet


class Narrowed(NamedTuple):
    """What permissions leave of a list of selections.

    Attributes:
        selections: what is left; the very same list if it is all.
        withdrawn: the selectors of it that were selected and may not be, or not entirely.
    """

    selections: Selections
    withdrawn: tuple[Selector, ...]


class Permissions:
    """What one session may do. Sessions with the same roles and values share one object, and what it remembers.

    Attributes:
        roles: whose permissions these are together.
        select: topics that may be selected.
        publish: topics that may be published to.
        send: queues that messages may be sent to.
        consume: queues whose messages may be consumed.
        request: as of ``Role``; likewise *handle* and *address*.
        declare: whether temporary queues may be declared.
        properties: names of properties that may be set; ``*`` for all.
        publishes_all: whether every topic may be published to that is not the system's, so that nobody has to ask.
        selects_all: likewise, whether everything may be selected.
        sends_all: whether messages may be sent to every queue.
        consumes_all: whether every queue may be consumed from.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_consume",
        "_handle",
        "_may_publish",
        "_may_receive",
        "_may_select",
        "_publish",
        "_request",
        "_select",
        "_send",
        "consume",
        "consumes_all",
        "declare",
        "properties",
        "publish",
        "publishes_all",
        "roles",
        "select",
        "selects_all",
        "send",
        "sends_all",
    )

    def __init__(
        self,
        roles: frozenset[str],
        *,
        select: Iterable[Selector] | RuleSet = (),
        publish: Iterable[Selector] | RuleSet = (),
        send: Iterable[Selector] | RuleSet = (),
        consume: Iterable[Selector] | RuleSet = (),
        request: Iterable[Selector] | RuleSet = (),
        handle: Iterable[Selector] | RuleSet = (),
        address: Iterable[Selector] | RuleSet = (),
        declare: bool = False,
        properties: frozenset[str] = frozenset(),
        room: SharedRoom | None = None,
    ) -> None:
        self.roles = roles
        self._select, self._publish, self._send, self._consume = (
            each if isinstance(each, RuleSet) else RuleSet(each) for each in (select, publish, send, consume)
        )
        self._request, self._handle, self._address = (
            each if isinstance(each, RuleSet) else RuleSet(each) for each in (request, handle, address)
        )
        self.select = self._select.selectors
        self.publish = self._publish.selectors
        self.send = self._send.selectors
        self.consume = self._consume.selectors
        self.declare = declare
        self.properties = properties
        self.publishes_all = any(each.text == ANY for each in self.publish)
        self.selects_all = any(each.text == ANY for each in self.select)
        self.sends_all = any(each.text == ANY for each in self.send)
        self.consumes_all = any(each.text == ANY for each in self.consume)
        self._may_select: Remembered[str, bool] = Remembered(SELECTOR_BYTES, _bytes_of_topic, room)
        self._may_publish: Remembered[str, bool] = Remembered(REMEMBERED_BYTES, _bytes_of_topic, room)
        self._may_receive: Remembered[str, bool] = Remembered(REMEMBERED_BYTES, _bytes_of_topic, room)

    def __repr__(self) -> str:
        return f"<Permissions of {', '.join(sorted(self.roles)) or 'no role'}>"

    def may_select(self, selector: Selector, work: Work | None = None) -> bool:
        """Tell whether all that a selector matches may be selected.

        True is always right. False is right too, unless the work is spent.

        Args:
            selector: which topics.
            work: what the judgement may cost; the usual if it is None.
        """
        text = selector.text
        if self.selects_all and not is_reserved(text):
            return True
        known = self._may_select.get(text)
        if known is None:
            work = Work() if work is None else work
            known = self._select.covers(selector, work)
            if known or not work.is_spent:
                self._may_select.put(text, known)
        return known

    def allowed(self, selector: Selector, work: Work | None = None, *, most: int = MAX_PARTS) -> Common:
        """Find the part of a selector that may be selected, or what of it is found with the work, in *most* parts."""
        work = Work() if work is None else work
        if self.may_select(selector, work):
            return Common((selector,), complete=True)
        return self._select.common(selector, work, most=most)

    def may_receive(self, topic: TopicPath) -> bool:
        """Tell whether the values of a topic may be sent to the session."""
        known = self._may_receive.get(topic)
        return self._may_receive.put(topic, self._select.matches(topic)) if known is None else known

    def may_publish(self, topic: TopicPath) -> bool:
        """Tell whether a topic may be published to. Whether it is the system's is not asked here."""
        known = self._may_publish.get(topic)
        return self._may_publish.put(topic, self._publish.matches(topic)) if known is None else known

    def may_send(self, queue: TopicPath) -> bool:
        """Tell whether messages may be sent to a queue. Whether there is one is not asked here."""
        return self.sends_all or self._send.matches(queue)

    def may_consume(self, queue: TopicPath) -> bool:
        """Tell whether messages of a queue may be consumed. Whether there is one is not asked here."""
        return self.consumes_all or self._consume.matches(queue)

    def may_request(self, path: TopicPath) -> bool:
        """Tell whether questions of a path may be asked."""
        return self._request.matches(path)

    def may_address(self, path: TopicPath) -> bool:
        """Tell whether questions of a path may be for one principal, or one session, alone."""
        return self._address.matches(path)

    def may_handle(self, selector: Selector, work: Work | None = None) -> bool:
        """Tell whether all questions whose paths a selector matches may be handled; see ``may_select``."""
        return self._handle.covers(selector, Work() if work is None else work)

    def may_set(self, name: str) -> bool:
        """Tell whether the session's client may set, change and remove a property."""
        return name in self.properties or EVERYTHING in self.properties

    def narrow(self, selections: Selections, *, most: int, most_bytes: int, work: Work | None = None) -> Narrowed:
        """Take out of a list what may not be selected, and leave the rest in force as it was.

        In the place of an entry that is allowed only in part comes that part, so that the same entry decides for each
        topic as before. What cannot be judged with the work counts as not allowed.

        Args:
            selections: a session's.
            most: entries of the longest list that may come out; of an entry whose part has no room in it, nothing is
                left.
            most_bytes: of its texts, likewise.
            work: what the judgement may cost; if it is None, as much as ``STEPS_PER_ENTRY`` says.
        """
        if self.selects_all and not selections.of_system:
            return Narrowed(selections, ())
        if work is None:
            work = Work(MOST_STEPS + STEPS_PER_ENTRY * len(selections))
        entries = selections.entries
        forbidden = {each.selector for each in entries if each.selects and not self.may_select(each.selector, work)}
        if not forbidden:
            return Narrowed(selections, ())
        room = most - len(selections) + len(forbidden)
        room_bytes = most_bytes - selections.text_bytes
        left: list[Entry] = []
        for entry in entries:
            if not entry.selects or entry.selector not in forbidden:
                left.append(entry)
                continue
            room_bytes += entry_bytes(entry)
            parts = [Entry(True, each) for each in self.allowed(entry.selector, work).selectors]
            size = sum(map(entry_bytes, parts))
            if len(parts) <= room and size <= room_bytes:
                room -= len(parts)
                room_bytes -= size
                left.extend(parts)
        compact = Work(MOST_STEPS)
        narrowed = Selections()
        for entry in left:
            narrowed = (narrowed.select if entry.selects else narrowed.deselect)(entry.selector, compact)
        return Narrowed(narrowed, tuple(each.selector for each in entries if each.selector in forbidden))


def _bytes_of_topic(topic: str, _: bool) -> int:
    return getsizeof(topic)


class Policy:
    """Roles, and who has them.

    Args:
        roles: by name.
        default: names of the roles that everybody has.
        principals: names of the roles that single principals have besides.
        answers_bytes: of answers that all permissions may remember together.

    Attributes:
        roles: as given.
        default: as given.
        principals: as given.
    """

    def __init__(
        self,
        roles: Mapping[str, Role],
        *,
        default: Iterable[str] = (),
        principals: Mapping[str, Iterable[str]] | None = None,
        answers_bytes: int = ANSWERS_BYTES,
    ) -> None:
        self._room = SharedRoom(answers_bytes)
        self.roles = dict(roles)
        self.default = frozenset(default)
        self.principals = {name: frozenset(given) for name, given in (principals or {}).items()}
        self._everybodys = self.default.intersection(self.roles)
        self._names: dict[frozenset[str], tuple[str, ...]] = {}
        self._shared: dict[frozenset[str], _Rules] = {}
        # Forgotten with the last session that has them.
        self._permissions: WeakValueDictionary[tuple[object, ...], Permissions] = WeakValueDictionary()

    @property
    def remembered_bytes(self) -> int:
        """Bytes of the answers that are remembered for all sessions."""
        return self._room.bytes

    def roles_of(self, principal: str, given: Iterable[str] = ()) -> frozenset[str]:
        """Tell which roles a session has.

        Args:
            principal: whose session it is.
            given: roles that the authenticator gave; those that the policy does not know mean nothing.
        """
        own = self.principals.get(principal)
        if own is None and not given:
            return self._everybodys
        return self.default.union(given, own or ()).intersection(self.roles)

    def permissions_of(
        self, principal: str, given: Iterable[str] = (), properties: Mapping[str, str] | None = None
    ) -> Permissions:
        """Add up what a session may do.

        Args:
            principal: whose session it is.
            given: roles that the authenticator gave.
            properties: properties that the authenticator gave.

        Returns:
            The permissions; the same object for the same roles and values, as long as somebody keeps it.
        """
        roles = self.roles_of(principal, given)
        names = self._open_names(roles)
        values: dict[str, str] = {}
        if names:
            values[PRINCIPAL] = principal
            values |= {PROPERTY_PREFIX + name: value for name, value in (properties or {}).items()}
        key = (roles, *map(values.get, names))
        found = self._permissions.get(key)
        if found is None:
            several = [self.roles[name] for name in sorted(roles)]
            select, publish, send, consume, request, handle, address = (
                _with_own(shared, (template for role in several for template in role.templates[place]), values)
                for place, shared in enumerate(self._rules_of(roles, several))
            )
            found = self._permissions[key] = Permissions(
                roles,
                select=select,
                publish=publish,
                send=send,
                consume=consume,
                request=request,
                handle=handle,
                address=address,
                declare=any(role.declare for role in several),
                properties=frozenset().union(*(role.properties for role in several)),
                room=self._room,
            )
        return found

    def mirror_mode(self, roles: Iterable[str]) -> MirrorMode:
        """Tell the most that any of some roles asks for; unknown roles mean nothing."""
        asked = {self.roles[name].mirror for name in roles if name in self.roles}
        return max(asked, key=list(MirrorMode).index, default=MirrorMode.ASYNC)

    def admin_actions(self, roles: Iterable[str]) -> frozenset[str]:
        """Tell which of ``ADMIN_ACTIONS`` an administrator with these roles may do; unknown roles mean nothing."""
        given = frozenset[str]().union(*(self.roles[name].admin for name in roles if name in self.roles))
        return frozenset(action for action in ADMIN_ACTIONS if given & {action, EVERYTHING, kind_of(action)})

    def _rules_of(self, roles: frozenset[str], several: list[Role]) -> _Rules:
        """Find what all sessions with these roles may do with which paths, whoever they belong to."""
        known = self._shared.get(roles)
        if known is None:
            known = self._shared[roles] = _Rules(
                *(
                    RuleSet(_bound((each for role in several for each in role.templates[place] if not each.names), {}))
                    for place in range(len(_Rules._fields))
                )
            )
        return known

    def _open_names(self, roles: frozenset[str]) -> tuple[str, ...]:
        known = self._names.get(roles)
        if known is None:
            templates = (each for name in roles for given in self.roles[name].templates for each in given)
            known = self._names[roles] = tuple(sorted({name for each in templates for name in each.names}))
        return known


def kind_of(action: str) -> str:
    """Make of ``sessions:read`` the ``sessions:*`` that stands for all of its kind."""
    return f"{action.partition(':')[0]}:{EVERYTHING}"


def _with_own(shared: RuleSet, templates: Iterable[Template], values: Mapping[str, str]) -> RuleSet:
    own = tuple(_bound((each for each in templates if each.names), values))
    return RuleSet(own, shared) if own else shared


def _bound(templates: Iterable[Template], values: Mapping[str, str]) -> Iterable[Selector]:
    return (selector for each in templates if (selector := each.bind(values)) is not None)


OPEN: Final = Policy(
    {
        "everybody": Role(
            select=(parse_template(ANY),),
            publish=(parse_template(ANY),),
            send=(parse_template(ANY),),
            consume=(parse_template(ANY),),
            request=(parse_template(ANY),),
            handle=(parse_template(ANY),),
            address=(parse_template(ANY),),
            presence=(parse_template(ANY),),
            declare=True,
            properties=frozenset({EVERYTHING}),
        )
    },
    default=("everybody",),
)
"""Of a node without a policy: everybody may do everything with every topic that is not the system's."""
