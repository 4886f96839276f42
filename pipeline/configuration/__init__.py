"""The configuration of the pipeline: every setting declared once, read in layers, checked as a whole.

It is declared as that of a node is (``gateway.settings``), and the two stand beside each other: setting ``trim_lag`` is
``trim_lag`` in a TOML file, ``PIPELINE_TRIM_LAG`` in the environment and ``--trim-lag`` on the command line. The later
of these wins. Where both programs have a setting of the same name (``grid``, ``grid_prefix``), it means the same.

```python
configuration = load(flags={"lake": "/srv/lake"})
configuration.lake  # PosixPath('/srv/lake')
```
"""

from pipeline.configuration.loading import load
from pipeline.configuration.model import (
    FILE_VARIABLE,
    GROUPS,
    SETTINGS,
    Configuration,
)

__all__ = [
    "FILE_VARIABLE",
    "GROUPS",
    "SETTINGS",
    "Configuration",
    "load",
]
