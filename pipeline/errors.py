"""What goes wrong in the pipeline, as its users are told.

```text
GatewayError
└── PipelineError        it failed; the message says what, where, and what to do
    └── NotReady         it was not begun: something has to be put right first
```
"""

from __future__ import annotations

from gateway.core.wire.errors import GatewayError


class PipelineError(GatewayError):
    """A job failed. The message is for the one who started it: what is wrong, where, and what to do."""


class NotReady(PipelineError):
    """A job cannot begin before something is put right that only its user can decide; nothing was changed."""
