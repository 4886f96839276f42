"""The session journal: what happens to the sessions of this node and to the node itself, written to the grid.

```text
use cases ──Announcer──▶ Journal ──▶ Buffer, bounded ──Writer, twice a second──▶ grid.journal, one stream per partition
```

Telling an event never waits and never fails. While the grid is unreachable, refuses or is too slow, events wait in the
buffer; what it cannot take is counted, and told as an event of its own as soon as there is room. Delivery and the work
of sessions know nothing of it.
"""

from gateway.app.journal.announcer import Announcer
from gateway.app.journal.recorder import Journal, JournalOptions

__all__ = ["Announcer", "Journal", "JournalOptions"]
