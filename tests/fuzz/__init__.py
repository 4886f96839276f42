"""Fuzzers: strange input without credentials, against a real node process with a witness beside it.

``make fuzz`` runs each for ten minutes; ``test_short.py`` runs each for a moment, in CI.
"""
