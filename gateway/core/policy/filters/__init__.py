"""Filters: a small language that chooses sessions by their properties (docs/reference/filters.md).

```python
wanted = parse("$principal is 'alice' and team is 'fx' or not $node is 'n1'")
wanted.holds({"$principal": "bob", "$node": "n2"})  # True
str(wanted)                                          # the canonical text; parses to an equal filter
```
"""

from gateway.core.policy.filters.expressions import All, Any, Expression, Has, Is, Like, Not, OneOf
from gateway.core.policy.filters.parser import MAX_CHARACTERS, MAX_DEPTH, InvalidFilter, parse

__all__ = [
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "All",
    "Any",
    "Expression",
    "Has",
    "InvalidFilter",
    "Is",
    "Like",
    "Not",
    "OneOf",
    "parse",
]
