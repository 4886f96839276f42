"""Measurements of the gateway and of its peers; see README.md."""
