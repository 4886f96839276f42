"""The reference page of the admin API, made from the declarations that the nodes serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway import __version__
from gateway.adapters.admin import OPERATIONS, Action
from gateway.adapters.admin.access import ROLES, allows
from gateway.adapters.admin.openapi import ALWAYS, WITH_BODY, document
from gateway.adapters.admin.operations import Operation
from gateway.adapters.admin.problems import TYPE_PREFIX, Kind
from gateway.core.policy.permissions import ADMIN_ACTIONS
from scripts.reference.markdown import code, page, table

_INTRODUCTION: Final = """\
How to switch it on and use it: [Administer a cluster](../how-to/administer-a-cluster.md). Every node serves the
same as an OpenAPI 3.1 document at `/openapi.json`, which needs no token. Any node answers for the whole cluster."""

_CONVENTIONS: Final = """\
- **Token.** `Authorization: Bearer …`, of the file that `admin_tokens_file` names. `/healthz`, `/readyz`,
  `/metrics` and `/openapi.json` need none. After 10 requests without a valid token an address has to
  wait (429), but requests with a valid one are always served. Hellos of consoles count, too; they get `try_later`.
- **Connections.** There may be 64 connections over which a valid token came; they stay for 75 s between two
  requests. Of unauthenticated clients, which have shown none, there may be 448: the one that was idle for longest is
  closed for a newer one. They get 5 s between two requests, 10 s for a head of 128 KiB at most and 10 s to take an
  answer, and all of them together three tenths of a core, shared among health, metrics and the rest. A health check
  without a token ends its connection, and a body without a valid token is not read. Of the metrics, twenty answers at
  once show this moment, then four in a second; requests in between get the last answer, a quarter of a second old at
  most.
- **Host.** The `Host` of a request must be an address, `localhost`, the name of the machine or one of `admin_hosts`
  (421), so that no page can have its own name resolve to the node and ask with a visitor's browser. `/healthz`,
  `/readyz` and `/metrics` answer for every `Host`: load balancers, probes and Prometheus ask by names that nobody has
  listed, and all that such a page learns is how the node is and what it counts, never a principal, a session or a
  value.
- **Problems.** Whatever is no success is `application/problem+json` (RFC 9457); `errors` names each thing that is
  wrong with the request. What cannot be done now (503) has a `Retry-After`. Of a change, 503 and 502 leave open whether
  it was made if the grid or the node did not answer in time; the detail says so.
- **Begun or done.** 200, 201 and 204 say that the grid, or the node that was asked for, has done it. 202 says that it
  is begun: it goes on after the answer, and the body tells what is still to come.
- **Names.** A name in a path is one segment, with `%` escapes. `.` and `..` are written with a slash in front, `%2F.`
  and `%2F..`: browsers and others take such segments out of a path. `/.` and `/..` have one slash more.
- **Pages.** A list has `items` and a `cursor`; pass that to get the next page, until it is null. A page can be
  short, or empty, though more follow: it also ends after so much work.
- **Other nodes.** What only one node knows or can do, it is asked for with the same token: all nodes need the same
  file of administrators, and must reach each other's admin ports (`admin_advertise`).
- **Audit.** The log event `admin_acted` records each change, and `admin_refused` each refused token or role, at the
  node that was asked and at the one that did it.
- **Methods.** `HEAD` where there is `GET`; `OPTIONS` lists the methods of a page. Of pages of other
  origins only the consoles of the cluster's own nodes may read answers, by headers of CORS."""


_TRIED: Final = """\
Schemathesis has asked two nodes on one Redis for ten minutes whatever the OpenAPI document allows and much that it
does not, by all its checks but one (that a filter can be read, JSON Schema cannot say), chains of operations
included: 15,786 requests to 18 operations, no answer that is not in the document, no 500, no traceback in a log,
and as much memory afterwards as before. A run of seconds is part of the tests; `FUZZ_EXAMPLES=2000 python -m pytest
tests/integration/admin/test_fuzz.py` makes it longer."""


def admin_api_page() -> str:
    """The page about the admin API."""
    told = document(OPERATIONS, version=__version__)
    blocks = [_INTRODUCTION, "## Conventions", _CONVENTIONS, "## Permissions", _ROLES_INTRODUCTION, _roles()]
    for tag in told["tags"]:
        blocks += [f"## {tag['name']}", tag["description"]]
        for operation in OPERATIONS:
            if operation.tag == tag["name"]:
                blocks += _operation(operation, told)
    blocks += [
        "## Answers and bodies",
        *_schemas(told["components"]["schemas"]),
        "## Problems",
        _problems(),
        "## Tried",
        _TRIED,
    ]
    return page("Admin API", *blocks)


_ROLES_INTRODUCTION: Final = """\
A token has roles. Those that a policy defines may do what it says ([Restrict who may do
what](../how-to/restrict-who-may-do-what.md)); these are built in:"""


def _roles() -> str:
    rows = (
        (
            code(action.value),
            ADMIN_ACTIONS[action.value],
            *("yes" if allows(ROLES[role], action) else "" for role in ROLES),
        )
        for action in Action
    )
    return table(("Permission", "What it allows", *(code(role) for role in ROLES)), rows)


def _operation(operation: Operation, told: Mapping[str, Any]) -> Iterator[str]:
    made = told["paths"][operation.path][operation.method.lower()]
    yield f"### `{operation.method} {operation.path}`"
    answer = f"{int(operation.status)}" + (
        "" if operation.result is None else f" with {_link(operation.result.__name__)}"
    )
    if operation.pending is not None:
        answer += f", or 202 with {_link(operation.pending.__name__)} if it is begun and not confirmed"
    about = f"{operation.summary}. {operation.description}".strip()
    permission = "Any token will do" if operation.action is None else f"Permission {code(operation.action.value)}"
    yield f"{about} {permission}; answers {answer}."
    if made["parameters"]:
        yield table(
            ("Parameter", "In", "Type", "Meaning"),
            (
                (
                    code(each["name"]),
                    each["in"],
                    _type(each["schema"]),
                    each.get("description", each["schema"].get("description", "")),
                )
                for each in made["parameters"]
            ),
        )
    if operation.body_model is not None:
        optional = "" if operation.body_needed else ", which may be left out"
        yield f"Body: {_link(operation.body_model.__name__)}{optional}."
    own = [kind for kind in operation.problems if kind not in ALWAYS]
    if own:
        yield f"Problems of its own: {', '.join(code(kind.slug) for kind in own)}."


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        if "properties" not in schema:
            continue
        yield f"### {name}"
        yield schema.get("description", "")
        required = set(schema.get("required", ()))
        yield table(
            ("Field", "Type", "Meaning"),
            (
                (code(field), f"{_type(each)}{'' if field in required else ', optional'}", each.get("description", ""))
                for field, each in schema["properties"].items()
            ),
        )


def _problems() -> str:
    everywhere = {*ALWAYS, *WITH_BODY}
    rows = (
        (str(int(kind.status)), code(TYPE_PREFIX + kind.slug), kind.title, "everywhere" if kind in everywhere else "")
        for kind in Kind
    )
    return table(("Status", "`type`", "Title", "Where"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return "any JSON" if name == "JsonValue" else _link(name)
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    kind = str(schema.get("type", "any JSON"))
    bounds = [
        f"{word} {schema[name]}"
        for name, word in (("minimum", "from"), ("maximum", "to"), ("maxLength", "up to"), ("default", "default"))
        if schema.get(name) not in {None, ""}
    ]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _link(name: str) -> str:
    enumerated = {
        "NodeState": "string",
        "HookState": "string",
        "Origin": "`administrator` or `file`",
        "RevocationKind": "`credential`, `principal` or `session`",
    }
    return enumerated.get(name) or f"[{name}](#{name.lower()})"
