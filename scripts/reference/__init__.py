"""The reference pages that are made from the source: admin API, configuration, metrics, logs and others.

``python -m scripts.reference docs/reference`` writes them, and a test compares them with what is committed.
"""
