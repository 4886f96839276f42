"""Revocation: sessions, principals and credentials that every node refuses from now on (P8: revoked means refused).

```text
revoke ──▶ grid ──▶ every node's follower ──▶ its table ──▶ hello, resume: refused
                                              └──▶ sessions held here: sockets closed at once, then ended in the grid
```

The table of each node is complete before the node serves anybody, and is kept while the grid is away. If the grid comes
back with less than it had, every node puts back what it knows: a revocation is lost only with the last node.
"""

from gateway.app.revocation.enforcement import Enforcement
from gateway.app.revocation.revocations import InvalidRevocation, Revocations, TooManyRevocations

__all__ = ["Enforcement", "InvalidRevocation", "Revocations", "TooManyRevocations"]
