"""The words of the reference page about authentication that no declaration can hold."""

from __future__ import annotations

from typing import Final

AUTHENTICATION_INTRODUCTION: Final = """\
How clients are authenticated. How to choose and set up is in [Authenticate](../how-to/authenticate.md); this page has
the details. The setting `auth` names one authenticator, or several that are asked one after the other:

| `auth` | accepts |
| --- | --- |
| `anonymous` | every client, under any name; for development only, and never beside others |
| `static:FILE` | principals and hashed secrets in a file |
| `jwt:FILE` | tokens (JWT) of an identity provider; FILE is a TOML file |
| `http:FILE` | what a service that you run accepts; FILE is a TOML file |

```toml
auth = ["static:users", "jwt:keycloak.toml"]
```

An authenticator accepts, refuses for good, or leaves it to the next one:

| | `static` | `jwt` | `http` |
| --- | --- | --- | --- |
| accepts | the principal's own secret | a good token | status 200 |
| refuses for good | any other secret of a principal in the file | a bad token of its issuer | status 403 |
| leaves it to the next | other principals; no secret | no token; other issuer, audience, algorithm | 401; no secret |
| cannot verify now | | its keys cannot be read | anything else; no answer in time |

If no authenticator accepts, or one refuses for good, the client gets the error `unauthenticated`, and never the reason,
which is in the log (`authentication_refused`). If one cannot verify the credentials, the others are not asked. The
client gets `authentication_unavailable` and tries again: a failure of a service neither accepts nor refuses a client.

**Queue.** Hashing a secret (`static`) and asking a service (`http`) are slow, so their number at the same time is
limited: two hashes, in threads with a lower priority than the event loop of the node; and `concurrency` requests. Other
credentials wait in a queue for at most 2 s, 32 for each of these places:

- A remembered result does not wait: `static` remembers a valid secret of each user, and the last 4096 invalid ones,
  until the file is read again (a valid one until its line changes); `http` remembers an acceptance for `remember`.
  Credentials that several clients show at the same time need one hash, or one request.
- Addresses take turns (of IPv6, /64 networks), and within an address principals. An address that has failed ten times
  recently, or a principal with as many failures, comes after all others, also if it is in `limit_exempt`. Its failures
  are forgotten within a minute, and it never waits for ever: of four turns it gets the fourth. The last free place is
  kept for addresses and principals without failures.
- An address with ten failures gets `rate_address_verifications`, and a principal with as many gets
  `rate_principal_verifications` at each address. Among those behind, principals with fewer failures go first, and
  before them credentials that were told `try_later` before.
- Principals that are not in the users file wait in the same queue, but take no turn and no place of others. With
  `static`, refusals are sent after a whole number of seconds, so that time does not tell whether a principal exists.
- A full queue refuses the newest credentials of the address that has most of them, with `try_later` and 4101, and
  those that have waited for too long. Those of a client that disconnects while it waits are dropped.
- A resume that shows a secret is first looked up in the grid: nothing is hashed for a session that has ended.
- A session may show new credentials five times in a row, and then every five seconds.

A client that waits here does not count for `claims_at_once`. A token (`jwt`) is verified at once. The metric
`gateway_verifications_waiting` counts what waits, and `gateway_verifications_refused_total` and the log event
`verification_refused` report what was refused.

Relative paths in a TOML file start from its folder. Users and keys in files are read again at SIGHUP, keys at a URL are
fetched again, and the answers of callbacks are forgotten; existing sessions continue. The TOML files themselves are
read when the node starts.

## static:FILE

One principal a line, as `gateway hash-secret` makes them: `principal:hash`, and behind it, separated by blanks and
quoted as in a shell, its roles and its properties.

```text
alice:scrypt$n=16384,r=8,p=5$…$…  roles=trader,auditor  team=fx  desk="Rates, London"
```

`roles` is a list; every other name is a property. Empty lines and lines that begin with # are skipped."""

AUTHENTICATION_GROUPS: Final[dict[str, str]] = {
    "JwtSettings": """\
Accepts clients that show, as the `secret` of the hello, a JSON Web Token signed for this gateway by a known issuer. The
`principal` of the hello may be left out; if it is given, it must be the token's. The session's credentials end with
`exp` and the leeway (protocol 5.9). The key decides which algorithm it is for. Names that occur twice,
`crit`, times after the year 9999, and keys that a token brings along are never accepted.

Claims are named by their path, segments separated by dots; a name that holds dots itself is found, too. A property that
is no text becomes JSON. At most 64 roles of 128 characters without blanks and commas, and 32 properties of 1024
characters; a token with more is refused, so map a narrower claim.""",
    "CallbackSettings": """\
Asks a service that you run. Each request is a POST of JSON, the answer is JSON:

| Field of the request | Type | Meaning |
| --- | --- | --- |
| `principal` | text | The principal that the client names; may be empty. |
| `secret` | text | The secret of the client. |
| `address` | text | The address of the client; only with `send_address`. |

| Field of the answer | Type | Meaning |
| --- | --- | --- |
| `principal` | text, optional | The principal; if it is missing, the one that the client named. |
| `roles` | array of texts, optional | Its roles. |
| `properties` | object of texts, optional | What you vouch for; seen as `$principal.<name>`. |
| `expires` | number, optional | When the credentials end, in seconds since 1970. |
| `credential` | text, optional | An id of the credentials, by which they can be revoked; not secret. |
| `remember` | number, optional | For how many seconds the answer may be remembered at most; 0 for not at all. |

Status 200 accepts, 403 refuses for good, 401 leaves it to the next authenticator. Everything else is no answer:
another status (a redirect, too), more than 64 KiB, no JSON, a name twice, a field of the wrong type, or nothing in
time. So is an `expires` that is no time before the year 10000, such as one in milliseconds. Other fields are ignored. A
refusal is not remembered.""",
}
"""What goes before the keys of each kind of file, by the class that declares them."""
