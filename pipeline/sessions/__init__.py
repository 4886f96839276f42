"""Silver: from the events of a session to the one row that tells its life.

```text
events ──Fact──▶ SessionState ──tell()──▶ row of SILVER
                 (a set of facts)
```

The row is a function of the *set* of a session's facts, and of how far time has come. So it is the same in whichever
order the events arrive, however often, and in how many pieces: in the stream, that goes on for years, and in the batch
job, that sees all of them at once. ``docs/explanation/pipeline.md`` tells the rules.
"""

from pipeline.sessions.facts import Fact
from pipeline.sessions.rules import FACT_TYPES
from pipeline.sessions.state import SessionState
from pipeline.sessions.tell import SessionRow, Told, tell

__all__ = ["FACT_TYPES", "Fact", "SessionRow", "SessionState", "Told", "tell"]
