"""Event hooks: events of the session journal, posted to receivers over HTTP.

```text
journal in the grid ──read behind the cursor──▶ Deliverer ──one request at a time──▶ receiver
                    ◀──move the cursor, after a 2xx──┘
```

One node of the cluster delivers for a hook, by a lease and a term in the grid. Nothing is queued but in the journal.
"""

from gateway.app.hooks.hooks import Hooks

__all__ = ["Hooks"]
