"""Zones: which events cross from one cluster to another, by which way, and which of them count there (P18)."""
