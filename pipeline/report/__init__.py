"""The report: one page with charts, made of gold and silver, which needs nothing but a browser to be read.

```text
gold, silver ──reading──▶ Findings ──views──▶ what stands in which row ──charts, page──▶ one HTML file
```

It is made without Spark: gold is small, and of silver only the intervals are read, in columns.
"""

from pipeline.report.findings import read_findings
from pipeline.report.objective import Objective
from pipeline.report.page import write_report

__all__ = ["Objective", "read_findings", "write_report"]
