"""``make demo-pipeline``: an incident on a real stack, and what the pipeline tells of it afterwards.

```text
clients ── write down what they see ─────────────────────────────┐
   │                                                             ├─▶ do they say the same?
nodes ─▶ journal ─▶ pipeline ingest, sessions, gold, report ─────┘
```
"""
