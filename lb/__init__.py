"""All that knows HAProxy: renders its configuration, speaks its runtime socket, answers its agent check.

Independent of ``gateway``: nothing here imports it. The parts depend on each other in one direction only:

```text
cli ─→ render ─→ topology ─→ settings ─→ names, errors
 └───→ runtime ────────────────────────────┘

agent (needs only the standard library, for gateway nodes to import)
```
"""
