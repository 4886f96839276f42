"""One suite per port, run on every implementation of it; each test quotes the sentence that it proves.

``harness`` hides what implementations differ in (time, faults, inventory); the fixtures are in ``conftest``.
"""
