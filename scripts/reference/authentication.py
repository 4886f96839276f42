"""The words of the reference page about authentication that no declaration can hold."""

from __future__ import annotations

from typing import Final

AUTHENTICATION_INTRODUCTION: Final = """\
How clients prove who they are. How to choose and set up is in [Authenticate](../how-to/authenticate.md); this page has
the details. The setting `auth` names one way, or several that are asked one after the other:

| `auth` | believes |
| --- | --- |
| `anonymous` | everybody, under any name; for development only, and never beside others |
| `static:FILE` | principals and hashed secrets in a file |
| `jwt:FILE` | tokens (JWT) of an identity provider; FILE is a TOML file |
| `http:FILE` | what a service answers that you run; FILE is a TOML file |

```toml
auth = ["static:users", "jwt:keycloak.toml"]
```

An authenticator accepts, refuses for good, or leaves it to the next one:

| | `static` | `jwt` | `http` |
| --- | --- | --- | --- |
| accepts | the principal's own secret | a good token | status 200 |
| refuses for good | any other secret of a principal in the file | a bad token of its issuer | status 403 |
| leaves it to the next | other principals; no secret | no token; other issuer, audience, algorithm | 401; no secret |
| cannot tell now | | its keys cannot be had | anything else; no answer in time |

If nobody accepts, or one refuses for good, the client is told `unauthenticated`, and never why; the log tells
(`authentication_refused`). If one cannot tell, the others are not asked, and the client is told
`authentication_unavailable` and comes again: nobody is let in, and nobody sent away, because something does not work.

**Places.** To hash a secret (`static`) or to ask a service (`http`) is slow, so each of them does only so many at the
same time: two hashes, in threads that stand behind the node's event loop where processor time is short; and
`concurrency` questions. Other credentials wait in a queue for at most 2 s, 32 for each place:

- A verdict that is remembered waits for nothing: `static` remembers a good secret of each user, and the last 4096 that
  were not, until the file is read again; `http` a yes for `remember`. Credentials that several clients show at the same
  time are one hash, or one question.
- Addresses take turns (of IPv6, /64 networks), and within an address principals. An address that has failed ten times
  lately, or a principal for which others have, goes behind those who did not, also if it is in `limit_exempt`. It is
  forgiven within a minute, and never waits for ever: three turns are the others', the fourth is its own. But the last
  free place is kept for those who did not fail.
- A full queue refuses the newest of the address that takes the most, with `try_later` and 4101; so is refused who has
  waited for too long. For whoever hangs up while it waits, nothing is done.
- A resume that shows a secret is first looked up in the grid: nothing is hashed for a session that has ended.
- A session may show fresh credentials five times in a row, and then every five seconds.

Nobody who waits for this holds a place that others need (`claims_at_once`). A token (`jwt`) is verified at once. How
many wait is in `gateway_verifications_waiting`, who was refused in `gateway_verifications_refused_total` and in the log
(`verification_refused`).

Relative paths in a TOML file start from its folder. Users and keys in files are read again at SIGHUP, keys at a URL are
fetched again, and what callbacks answered is forgotten; sessions that exist go on. The TOML files themselves are read
when the node starts.

## static:FILE

One principal a line, as `gateway hash-secret` makes them: `principal:hash`, and behind it, separated by blanks and
quoted as in a shell, what it may be taken for and what is vouched for of it.

```text
alice:scrypt$n=16384,r=8,p=5$…$…  roles=trader,auditor  team=fx  desk="Rates, London"
```

`roles` is a list; every other name is a property. Empty lines and lines that begin with # are skipped."""

AUTHENTICATION_GROUPS: Final[dict[str, str]] = {
    "JwtSettings": """\
Lets in whoever shows, as the `secret` of its hello, a JSON Web Token that a known issuer signed for this gateway. The
`principal` of the hello may be left out; if it is given, it must be the token's. The session's credentials end with
`exp` and the leeway (protocol 5.9). Which key goes with which algorithm is told by the key. Names that occur twice,
`crit`, times after the year 9999, and keys that a token brings along are never accepted.

Claims are named by their path, segments separated by dots; a name that holds dots itself is found, too. A property that
is no text becomes JSON. At most 64 roles of 128 characters without blanks and commas, and 32 properties of 1024
characters; a token with more is refused, so map a narrower claim.""",
    "CallbackSettings": """\
Asks a service that you run. Each question is a POST of JSON, the answer is JSON:

| Field of the question | Type | Meaning |
| --- | --- | --- |
| `principal` | text | Who the client says it is; may be empty. |
| `secret` | text | Its proof. |
| `address` | text | Where it comes from; only with `send_address`. |

| Field of the answer | Type | Meaning |
| --- | --- | --- |
| `principal` | text, optional | Who it is; if it is missing, who it says it is. |
| `roles` | array of texts, optional | Its roles. |
| `properties` | object of texts, optional | What you vouch for; seen as `$principal.<name>`. |
| `expires` | number, optional | When the credentials end, in seconds since 1970. |
| `credential` | text, optional | An id of the credentials, by which they can be revoked; not secret. |
| `remember` | number, optional | For how many seconds the answer may be remembered at most; 0 for not at all. |

Status 200 says yes, 403 refuses for good, 401 leaves it to the next authenticator. Everything else is no answer:
another status (a redirect, too), more than 64 KiB, no JSON, a name twice, a field of the wrong type, or nothing in
time. So is an `expires` that is no time before the year 10000, such as one in milliseconds. Other fields are ignored. A
no is not remembered.""",
}
"""What goes before the keys of each kind of file, by the class that declares them."""
